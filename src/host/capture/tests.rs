use std::sync::Mutex;

use super::*;

fn sh(script: &str) -> Start {
    Start::new("sh").arg("-c").arg(script)
}

async fn go(start: &Start, stdin: &[u8], limits: &Limits) -> Finished {
    run(start, Bytes::copy_from_slice(stdin), limits, &|_| {}).await.unwrap()
}

fn ps_finds(marker: &str) -> bool {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.into_iter().any(|pid| {
        let text = std::fs::read(pid.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&text).split('\0').any(|word| word == marker)
    })
}

#[tokio::test]
async fn output_and_status_come_back() {
    let done = go(&sh("cat; echo err >&2; exit 255"), b"in", &Limits::default()).await;
    assert_eq!((done.end, done.cause), (End::Exited(255), Cause::Itself));
    assert_eq!((done.stdout.as_slice(), done.stderr.as_slice()), (&b"in"[..], &b"err\n"[..]));
}

#[tokio::test]
async fn arguments_arrive_as_they_are() {
    let odd = ["'", "\"", "`x`", "$(id)", ";&|<>*", "a\nb", "", "-n", "%s", "--option", "\u{e4}"];
    let done = go(&Start::new("printf").arg("%s\\0").args(odd), b"", &Limits::default()).await;
    assert_eq!(done.stdout, odd.map(|word| format!("{word}\0")).concat().into_bytes());
}

#[tokio::test]
async fn a_script_that_dies_by_a_signal_is_told_so() {
    let done = go(&sh("kill -SEGV $$"), b"", &Limits::default()).await;
    assert_eq!((done.end, done.cause), (End::Signaled(11), Cause::Itself));
}

#[tokio::test]
async fn much_output_on_both_pipes_is_drained_and_capped() {
    let script = "head -c 8000000 /dev/zero >&2; head -c 8000000 /dev/zero; head -c 10 /dev/zero >&2";
    let done = go(&sh(script), b"", &Limits { cap: 1000, ..Limits::default() }).await;
    assert_eq!(done.end, End::Exited(0));
    assert_eq!((done.stdout.len(), done.stderr.len(), done.dropped), (1000, 1000, 16_000_010 - 2000));
}

#[tokio::test]
async fn a_script_that_does_not_read_its_stdin_is_no_failure() {
    let done = go(&sh("exec <&-; exit 0"), &vec![b'x'; 1 << 20], &Limits::default()).await;
    assert_eq!(done.end, End::Exited(0));
    let done = go(&sh("exit 0"), &vec![b'x'; 1 << 20], &Limits::default()).await;
    assert_eq!(done.end, End::Exited(0));
}

#[tokio::test]
async fn the_end_of_the_script_counts_not_that_of_its_background_child() {
    let began = Instant::now();
    let script = "sleep 4000.125 & head -c 100000 /dev/zero | tr '\\0' y; echo $!";
    let done = go(&sh(script), b"", &Limits::default()).await;
    assert!(began.elapsed() < Duration::from_secs(5), "waited for the child");
    assert!(done.stdout.len() > 100_000, "the last words are there");
    assert!(ps_finds("4000.125"), "the child was not left alone");
    let pid = String::from_utf8(done.stdout[100_000..].to_vec()).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

#[tokio::test]
async fn a_script_that_somebody_kills_takes_its_children_with_it() {
    let done = go(&sh("sleep 4000.126 & kill -TERM $$; sleep 4000.126"), b"", &Limits::default()).await;
    assert_eq!((done.end, done.cause), (End::Signaled(15), Cause::Itself));
    assert!(!ps_finds("4000.126"), "a child was left");
}

#[tokio::test]
async fn a_background_child_that_writes_without_end_does_not_keep_us() {
    let done = go(&sh("yes & echo $! >&2"), b"", &Limits::default()).await;
    let pid = String::from_utf8(done.stderr).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .ok();
    assert_eq!(done.end, End::Exited(0));
}

#[tokio::test]
async fn stderr_is_streamed_while_it_runs() {
    let cancel = CancellationToken::new();
    let seen = Mutex::new(Vec::new());
    let limits = Limits { cancel: cancel.clone(), ..Limits::default() };
    let sink = |line: &str| {
        seen.lock().unwrap().push(line.to_owned());
        cancel.cancel();
    };
    let done = run(&sh("printf 'first\\nsec' >&2; sleep 4000"), Bytes::new(), &limits, &sink).await.unwrap();
    assert_eq!(done.cause, Cause::Cancel);
    assert_eq!(*seen.lock().unwrap(), ["first", "sec"]);
}

#[tokio::test]
async fn the_limit_ends_the_whole_group() {
    let limits = Limits { limit: Some(Duration::from_millis(300)), ..Limits::default() };
    let done = go(&sh("sleep 4000.25 & sleep 4000.25; :"), b"", &limits).await;
    assert_eq!((done.end, done.cause), (End::Signaled(15), Cause::Limit));
    assert!(done.took < Duration::from_secs(10));
    assert!(!ps_finds("4000.25"));
}

#[tokio::test]
async fn a_trap_may_roll_back_within_the_grace() {
    let limits = Limits { limit: Some(Duration::from_millis(300)), ..Limits::default() };
    let done = go(&sh("trap 'sleep 0.3; echo undone; exit 3' TERM; sleep 4000 & wait"), b"", &limits).await;
    assert_eq!((done.end, done.cause), (End::Exited(3), Cause::Limit));
    assert_eq!(done.stdout, b"undone\n");
}

#[tokio::test]
async fn what_ignores_term_is_killed_after_the_grace() {
    let limits = Limits {
        limit: Some(Duration::from_millis(300)),
        grace: Duration::from_millis(300),
        ..Limits::default()
    };
    let done = go(&sh("trap '' TERM; sleep 4000.5 & sleep 4000.5; :"), b"", &limits).await;
    assert_eq!((done.end, done.cause), (End::Signaled(9), Cause::Limit));
    assert!(!ps_finds("4000.5"));
}

#[tokio::test]
async fn what_outlives_its_leader_is_killed_after_the_grace() {
    let limits = Limits {
        limit: Some(Duration::from_millis(300)),
        grace: Duration::from_millis(300),
        ..Limits::default()
    };
    let script = "(trap '' TERM; sleep 4000.75; sleep 4000.75) & sleep 4000";
    let done = go(&sh(script), b"", &limits).await;
    assert_eq!(done.cause, Cause::Limit);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!ps_finds("4000.75"));
}

#[tokio::test]
async fn a_dropped_run_leaves_nothing() {
    let start = sh("sleep 4001.25 & sleep 4001.25; :");
    let limits = Limits::default();
    let run = run(&start, Bytes::new(), &limits, &|_| {});
    assert!(tokio::time::timeout(Duration::from_millis(300), run).await.is_err());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!ps_finds("4001.25"));
}

#[test]
fn it_works_without_a_runtime() {
    let done = run_blocking(&sh("echo x"), Bytes::new(), &Limits::default()).unwrap();
    assert_eq!(done.stdout, b"x\n");
}
