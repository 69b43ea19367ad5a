//! What holds for a command however it gets to its place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use kvmad::host::{Ending, Job, Program, Runner};

use crate::server::{ALL, Server, Way, assert_exit, go, place, running, sh, until, watch};

#[tokio::test]
async fn every_status_comes_back_as_it_is() {
    let server = Server::start();
    server.install();
    for way in ALL {
        let pool = server.pool(way);
        for status in [0, 1, 42, 126, 127, 255] {
            let outcome = go(&pool, way, sh(&format!("echo out; echo err >&2; exit {status}"))).await;
            assert_exit(&outcome, status, &format!("{way:?}"));
            assert_eq!((&outcome.stdout[..], &outcome.stderr[..]), (&b"out\n"[..], &b"err\n"[..]), "{way:?}");
        }
        let outcome = go(&pool, way, sh("kill -SEGV $$")).await;
        assert_eq!(outcome.ending, Ending::Signaled(11), "{way:?}");
    }
}

#[tokio::test]
async fn words_environment_and_stdin_arrive_as_they_are() {
    let server = Server::start();
    server.install();
    let odd = [
        "'",
        "\"",
        "`x`",
        "$(id)",
        "; & | < > *",
        "a\nEOT\nb",
        "",
        "-n",
        "%s",
        "--option",
        "]]>",
        "\\",
        "x\n",
        "\u{e4}",
    ];
    for way in ALL {
        let pool = server.pool(way);
        let mut job = sh("printf '%s\\0' \"$@\" \"$ODD\"; cat");
        job.args.push("sh".into());
        job.args.extend(odd.map(str::to_owned));
        job.env = vec![("ODD".into(), "'`$(id)\n\"".into())];
        let stdin: Vec<u8> = (0..=255).cycle().take(5 << 20).collect();
        job.stdin = stdin.clone().into();
        let outcome = go(&pool, way, job).await;
        assert_exit(&outcome, 0, &format!("{way:?}"));
        let expected: String =
            odd.iter().copied().chain(["'`$(id)\n\""]).map(|word| format!("{word}\0")).collect();
        assert!(outcome.stdout == [expected.as_bytes(), &stdin].concat(), "{way:?}: not the same bytes");
    }
}

#[tokio::test]
async fn sixty_four_mebibytes_on_both_outputs_are_drained_and_capped() {
    let server = Server::start();
    server.install();
    for way in ALL {
        let mut options = server.options(way);
        options.host.output_limit = kvmad::settings::Size(1000);
        let pool = kvmad::host::Pool::new(options).unwrap();
        let script = "head -c 67108864 /dev/zero >&2 & head -c 67108864 /dev/zero; wait; exit 3";
        let outcome = go(&pool, way, sh(script)).await;
        assert_exit(&outcome, 3, &format!("{way:?}"));
        let kept = (outcome.stdout.len(), outcome.stderr.len(), outcome.dropped);
        assert_eq!(kept, (1000, 1000, 2 * 67_108_864 - 2000), "{way:?}");
    }
}

#[tokio::test]
async fn stdin_that_nobody_reads_is_no_failure() {
    let server = Server::start();
    server.install();
    for way in ALL {
        let pool = server.pool(way);
        let mut job = sh("exit 0");
        job.stdin = vec![b'x'; 5 << 20].into();
        assert_exit(&go(&pool, way, job).await, 0, &format!("{way:?}"));
        let mut job = sh("exec <&-; sleep 0.3; exit 5");
        job.stdin = vec![b'x'; 5 << 20].into();
        assert_exit(&go(&pool, way, job).await, 5, &format!("{way:?}"));
    }
}

#[tokio::test]
async fn the_end_of_the_script_counts_not_that_of_its_background_child() {
    let server = Server::start();
    server.install();
    for way in ALL {
        let pool = server.pool(way);
        let began = Instant::now();
        let outcome = go(&pool, way, sh("sleep 30.401 & yes >&2 & echo $!; exit 4")).await;
        assert_exit(&outcome, 4, &format!("{way:?}"));
        assert!(began.elapsed() < Duration::from_secs(20), "{way:?}");
        let pid = String::from_utf8(outcome.stdout).unwrap().trim().parse().unwrap();
        crate::server::kill(pid, 9);
        assert!(!running("30.401").is_empty(), "{way:?}: what it left on purpose lives on");
        running("30.401").into_iter().for_each(|pid| crate::server::kill(pid, 9));
    }
}

#[tokio::test]
async fn stderr_is_streamed_and_made_valid() {
    let server = Server::start();
    server.install();
    for way in ALL {
        let pool = server.pool(way);
        let (watch, lines, _) = watch();
        let cancel = watch.cancel.clone();
        let job = sh("printf 'INFO: one\\n\\377two\\n' >&2; sleep 30.402; echo never");
        let place = place(way);
        let run = pool.run(&place, job, watch);
        let stop = async {
            until("lines", 20, || lines.lock().unwrap().len() == 2).await;
            cancel.cancel();
            std::future::pending::<()>().await
        };
        let outcome = tokio::select! { outcome = run => outcome, () = stop => unreachable!() };
        assert_eq!(outcome.ending, Ending::Cancelled, "{way:?}");
        assert_eq!(*lines.lock().unwrap(), ["INFO: one", "\u{fffd}two"], "{way:?}");
        assert_eq!(running("30.402"), [0u32; 0], "{way:?}: cancel ends the whole group");
    }
}

#[tokio::test]
async fn the_limit_ends_the_group_and_lets_it_roll_back() {
    let server = Server::start();
    server.install();
    for way in ALL {
        let pool = server.pool(way);
        let mut job = sh("trap 'echo undone; exit 9' TERM; sleep 30.403 & wait");
        job.limit = Some(Duration::from_secs(3));
        let outcome = go(&pool, way, job).await;
        assert_eq!(outcome.ending, Ending::TimedOut(Duration::from_secs(3)), "{way:?}");
        assert_eq!(outcome.stdout, b"undone\n", "{way:?}");
        assert_eq!(running("30.403"), [0u32; 0], "{way:?}");
    }
}

#[tokio::test]
async fn what_ignores_term_is_killed_after_the_grace() {
    let server = Server::start();
    server.install();
    for way in ALL {
        let pool = server.pool(way);
        let mut job = sh("trap '' TERM; sleep 30.404; sleep 30.404");
        job.limit = Some(Duration::from_millis(700));
        job.grace = Duration::from_millis(400);
        let outcome = go(&pool, way, job).await;
        assert_eq!(outcome.ending, Ending::TimedOut(Duration::from_millis(700)), "{way:?}");
        assert_eq!(running("30.404"), [0u32; 0], "{way:?}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_not_started_and_named() {
    let server = Server::start();
    server.install();
    for way in ALL {
        let pool = server.pool(way);
        for program in ["/nonexistent/prog", "no-such-program"] {
            let outcome = go(&pool, way, Job::new(Program::Path(program.into()))).await;
            let Ending::NotStarted(text) = &outcome.ending else { panic!("{way:?}: {:?}", outcome.ending) };
            assert!(text.contains(program), "{way:?}: {text}");
        }
        let script = server.path("no-interpreter");
        fs::write(&script, "#!/nonexistent/ruby\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let outcome = go(&pool, way, Job::new(Program::Path(script.display().to_string()))).await;
        if way == Way::Helper {
            let Ending::NotStarted(text) = &outcome.ending else { panic!("{way:?}: {:?}", outcome.ending) };
            assert!(text.contains("no-interpreter") && text.contains("interpreter that"), "{way:?}: {text}");
        }
        assert!(!outcome.succeeded(), "{way:?}");
        let outcome = go(&pool, way, Job::new(Program::Script("../../bin/sh".into()))).await;
        assert!(matches!(outcome.ending, Ending::NotStarted(_)), "{way:?}");
        let mut job = sh("exit 0");
        job.args.push("a\0b".into());
        assert!(matches!(go(&pool, way, job).await.ending, Ending::NotStarted(_)), "{way:?}");
        let mut job = sh("exit 0");
        job.args.extend(std::iter::repeat_n("x".repeat(100_000), 60));
        let ending = go(&pool, way, job).await.ending;
        assert!(
            !matches!(ending, Ending::Exited(0) | Ending::Lost(_) | Ending::Silent(_)),
            "{way:?}: {ending:?}"
        );
        assert_exit(&go(&pool, way, sh("exit 0")).await, 0, "the next one works");
    }
}

#[tokio::test]
async fn a_full_output_of_one_keeps_no_other_back() {
    let server = Server::start();
    server.install();
    let pool = server.pool(Way::Helper);
    let (flooded, _, _) = watch();
    let flooded = kvmad::host::Watch { on_stderr: std::sync::Arc::new(|_| {}), ..flooded };
    let mut stuck = sh("kill -STOP $$");
    stuck.stdin = vec![b'x'; 5 << 20].into();
    let place = place(Way::Helper);
    let flood = pool.run(&place, sh("yes >&2"), flooded.clone());
    let stuck = pool.run(&place, stuck, flooded.clone());
    let others = async {
        for _ in 0..20 {
            assert_exit(&go(&pool, Way::Helper, sh("exit 0")).await, 0, "beside a flood");
        }
        flooded.cancel.cancel();
        std::future::pending::<()>().await
    };
    let both = async { tokio::join!(flood, stuck) };
    let (flood, stuck) = tokio::select! { both = both => both, () = others => unreachable!() };
    assert_eq!((flood.ending, stuck.ending), (Ending::Cancelled, Ending::Cancelled));
}
