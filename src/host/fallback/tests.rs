use std::sync::{Arc, Mutex};

use super::*;
use crate::host::channel;
use crate::host::process::{Process, Start};

const TIMES: Times =
    Times { begin: Duration::from_secs(60), ping: Duration::from_millis(300), dead: Duration::from_secs(2) };

async fn bash(before: &str) -> Channel {
    let script = format!("{before}\nexec {COMMAND}");
    let (process, pipes) = Process::start(&Start::new("sh").arg("-c").arg(script)).await.unwrap();
    channel::of_process(process, pipes)
}

fn open(script: &str) -> Open {
    let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
    Open { argv, env: vec![], limit: None, grace: Duration::from_secs(5) }
}

async fn go(open: &Open, stdin: &[u8]) -> (Ended, Collector) {
    go_behind("", open, stdin, &Watch::nothing()).await
}

async fn go_behind(before: &str, open: &Open, stdin: &[u8], watch: &Watch) -> (Ended, Collector) {
    let mut output = Collector::new(16 << 20);
    let ended =
        run(bash(before).await, open, Bytes::copy_from_slice(stdin).into(), &mut output, watch, TIMES).await;
    (ended, output)
}

fn exit(ended: &Ended) -> Exit {
    match ended {
        Ended::Exit(exit) => *exit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn status_and_output_come_back_exactly() {
    for (script, status) in
        [("exit 0", 0), ("exit 1", 1), ("exit 42", 42), ("exit 127", 127), ("exit 255", 255)]
    {
        let (ended, _) = go(&open(script), b"").await;
        assert_eq!(exit(&ended), Exit { how: How::Exited(status), by: EndedBy::Itself }, "{script}");
    }
    let (ended, output) = go(&open("printf 'a\\n\\nb'; printf 'c\\377' >&2"), b"").await;
    assert_eq!(exit(&ended).how, How::Exited(0));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"a\n\nb"[..], &b"c\xff"[..]));
    let (ended, _) = go(&open("kill -KILL $$"), b"").await;
    assert_eq!(exit(&ended).how, How::Signaled(9));
}

#[tokio::test]
async fn words_and_stdin_are_data() {
    let odd =
        ["'", "\"", "`x`", "$(id)", ";&|<>*", "a\nb", "", "-n", "%s", "EOT", "\u{e4}\u{1}", "\\", "x\n"];
    let mut open = open("printf '%s\\0' \"$@\"; printf '%s\\0' \"$ODD\"; cat");
    open.argv.push("sh".into());
    open.argv.extend(odd.map(str::to_owned));
    open.env = vec![("ODD".into(), "'$(id)`\n".into()), ("kvmad_argv".into(), "x".into())];
    let stdin: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let (ended, output) = go(&open, &stdin).await;
    assert_eq!(exit(&ended).how, How::Exited(0));
    let expected =
        odd.iter().copied().chain(["'$(id)`\n"]).map(|word| format!("{word}\0")).collect::<String>();
    assert_eq!(output.stdout, [expected.as_bytes(), &stdin].concat());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn the_command_sees_nothing_of_the_bootstrap() {
    let (_, output) =
        go(&open("env | grep ^kvmad_; trap; for fd in 5 6 7 8 9; do [ ! -e /proc/$$/fd/$fd ] || echo $fd; done; cut -d' ' -f5 /proc/$$/stat; echo $$"), b"x")
            .await;
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!((words.len(), words[0]), (2, words[1]), "{text}");
}

#[tokio::test]
async fn noise_before_the_shell_is_skipped() {
    let noise = "echo motd; echo @kvmad:00:begin >&2; head -c 20000 /dev/zero; printf unfinished";
    let (ended, output) = go_behind(noise, &open("echo out; echo err >&2"), b"", &Watch::nothing()).await;
    assert_eq!(exit(&ended).how, How::Exited(0));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_missing() {
    for program in ["/nonexistent/x", "no-such-program", "/etc/passwd", "/"] {
        let open = Open { argv: vec![program.into()], ..open("") };
        let (ended, _) = go(&open, b"abc").await;
        assert!(
            matches!(ended, Ended::Refused(Refusal { why: WhyRefused::Missing, .. })),
            "{program}: {ended:?}"
        );
    }
}

#[tokio::test]
async fn a_background_child_does_not_keep_us() {
    let began = Instant::now();
    let (ended, output) = go(&open("sleep 20 & echo done"), b"").await;
    assert_eq!((exit(&ended).how, &output.stdout[..]), (How::Exited(0), &b"done\n"[..]));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn much_stdin_that_nobody_reads_is_no_failure() {
    let (ended, _) = go(&open("exit 3"), &vec![b'x'; 5 << 20]).await;
    assert_eq!(exit(&ended).how, How::Exited(3));
}

#[tokio::test]
async fn the_limit_ends_the_group_after_its_trap() {
    let mut open = open("trap 'echo undone; exit 7' TERM; sleep 4002 & wait");
    open.limit = Some(Duration::from_millis(500));
    let (ended, output) = go(&open, b"").await;
    assert_eq!(exit(&ended), Exit { how: How::Exited(7), by: EndedBy::Limit });
    assert_eq!(output.stdout, b"undone\n");
}

#[tokio::test]
async fn cancelling_ends_what_ignores_term() {
    let watch = Watch::nothing();
    let (cancel, lines) = (watch.cancel.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = lines.clone();
    let watch = Watch {
        on_stderr: Arc::new(move |line| {
            seen.lock().unwrap().push(line.to_owned());
            cancel.cancel();
        }),
        ..watch
    };
    let mut open = open("trap '' TERM; echo up >&2; sleep 4003; sleep 4003");
    open.grace = Duration::from_millis(300);
    let (ended, _) = go_behind("", &open, b"", &watch).await;
    assert_eq!(exit(&ended), Exit { how: How::Signaled(9), by: EndedBy::Request });
    assert_eq!(*lines.lock().unwrap(), ["up"]);
}

#[tokio::test]
async fn when_the_channel_goes_the_group_is_ended() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let script =
        format!("trap 'echo undone >{0}; exit' TERM; echo up >{0}; sleep 4004 & wait", file.path().display());
    let text = || std::fs::read_to_string(file.path()).unwrap();
    let open = open(&script);
    let mut output = Collector::new(100);
    let watch = Watch::nothing();
    // Killing the channel's process would be harsher than a lost connection: here only the pipes go.
    let mut channel = bash("").await;
    let end = std::mem::replace(&mut channel.end, Box::pin(std::future::pending()));
    let running = run(channel, &open, Bytes::new().into(), &mut output, &watch, TIMES);
    tokio::select! {
        ended = running => panic!("{ended:?}"),
        () = async { while text() != "up\n" { tokio::time::sleep(Duration::from_millis(20)).await } } => {}
    }
    let done = async {
        while text() != "undone\n" {
            tokio::time::sleep(Duration::from_millis(20)).await
        }
    };
    tokio::time::timeout(Duration::from_secs(10), done).await.unwrap();
    drop(end);
}

#[tokio::test]
async fn a_place_without_bash_says_what_it_said() {
    let (process, pipes) =
        Process::start(&Start::new("sh").arg("-c").arg("echo 'no bash here' >&2; exit 127")).await.unwrap();
    let channel = channel::of_process(process, pipes);
    let mut output = Collector::new(100);
    let ended = run(channel, &open("true"), Bytes::new().into(), &mut output, &Watch::nothing(), TIMES).await;
    let Ended::Lost(reason) = ended else { panic!("{ended:?}") };
    assert!(reason.contains("bash") && reason.contains("no bash here"), "{reason}");
}

#[test]
fn what_a_shell_cannot_take_is_refused_before() {
    assert!(check(&open("true")).is_ok());
    assert!(check(&open("a\0b")).is_err());
    for key in ["", "a-b", "1a", "a=b", "a b"] {
        assert!(check(&Open { env: vec![(key.into(), String::new())], ..open("") }).is_err(), "{key}");
    }
}

#[tokio::test]
async fn signs_of_life_keep_a_long_command() {
    let (ended, _) = go(&open("sleep 5; exit 3"), b"").await;
    assert_eq!(exit(&ended).how, How::Exited(3));
}

#[tokio::test]
async fn silence_of_the_driver_ends_the_command() {
    let mut output = Collector::new(100);
    let times = Times { ping: Duration::from_secs(100), ..TIMES };
    let began = Instant::now();
    let watch = Watch::nothing();
    let ended =
        run(bash("").await, &open("sleep 100"), Bytes::new().into(), &mut output, &watch, times).await;
    assert_eq!(exit(&ended).how, How::Signaled(15));
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_command_that_is_over_at_once_is_told() {
    // more at a time than there are processors, so that the shell's own parts overtake each other
    for _ in 0..12 {
        let quick = (0..25).map(|_| tokio::spawn(async { go(&open("exit 3"), b"").await }));
        for run in quick.collect::<Vec<_>>() {
            let done = tokio::time::timeout(Duration::from_secs(60), run).await;
            let (ended, _) = done.expect("it is over long ago").unwrap();
            assert_eq!(exit(&ended).how, How::Exited(3));
        }
    }
}

#[tokio::test]
async fn a_command_is_told_where_signals_are_ignored_from_the_start() {
    let (watch, open) = (Watch::nothing(), open("exit 3"));
    let going = go_behind("trap '' HUP TERM INT", &open, b"", &watch);
    let (ended, _) = tokio::time::timeout(Duration::from_secs(60), going).await.expect("its end is told");
    assert_eq!(exit(&ended).how, How::Exited(3));
}

/// What bash prints for `script` as the bootstrap and `command`, up to the marker of its end or the time-out.
async fn told(script: &str, command: &str) -> String {
    let (_process, mut pipes) = Process::start(&Start::new("bash").args(["-s"])).await.expect("bash starts");
    let open = open(command);
    let whole = header("@nonce", &open, Duration::from_secs(60), 0);
    let mut stdin = pipes.stdin.take().expect("it is piped");
    stdin.write_all(script.as_bytes()).await.expect("written");
    stdin.write_all(&whole[BOOTSTRAP.len()..]).await.expect("written");
    let mut said = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&said).contains("@nonce:end exit") {
            if pipes.stderr.read_buf(&mut said).await.unwrap_or(0) == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(10), reading).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn a_command_that_is_over_before_its_watcher_is_up_is_told() {
    let begin = "(\n    exec 5<&- 7>&- 8>&-\n";
    assert_eq!(BOOTSTRAP.matches(begin).count(), 1, "the watcher's begin");
    let late = BOOTSTRAP.replace(begin, &format!("(\n    sleep 0.5\n{}", &begin[2..]));
    assert!(told(&late, "exit 3").await.contains("@nonce:end exit 3"));
    // The same with a signal that the watcher may lose: the check notices when the end is not told.
    let kill = "kill -KILL \"$kvmad_watch\"";
    assert_eq!(BOOTSTRAP.matches(kill).count(), 1, "the end of the watcher");
    let lost = late.replace(kill, "kill -CONT \"$kvmad_watch\"");
    assert!(!told(&lost, "exit 3").await.contains("@nonce:end"));
}

#[tokio::test]
async fn the_status_is_the_commands_own_also_when_it_ends_while_it_is_being_ended() {
    for _ in 0..20 {
        let mut open = open("trap 'exit 9' TERM; echo up >&2; sleep 0.05; sleep 5 & wait");
        open.limit = Some(Duration::from_millis(50));
        let (ended, _) = go(&open, b"").await;
        assert_eq!(exit(&ended), Exit { how: How::Exited(9), by: EndedBy::Limit });
    }
}
