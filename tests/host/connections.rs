//! Connections: refused, lost, shared, closed; what is left of them.

use std::fs;
use std::time::{Duration, Instant};

use kvmad::host::{Boxed, Ending, HostName, Place, Pool, Purpose, Runner, Turn, Watch};

use crate::server::{Oddities, SHARED, Server, Way, assert_exit, go, kill, place, running, sh, until, watch};

fn lost(ending: &Ending) -> &str {
    match ending {
        Ending::Lost(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_of_the_login_shell_is_skipped() {
    for noise in [
        "echo 'Welcome!'; echo warning >&2; head -c 60000 /dev/zero; printf unfinished",
        "echo '@@kvmad-node-serve@ @kvmad:begin'; printf '\\n\\n\\0'",
    ] {
        let odd = Oddities { noise: Some(noise.into()), ..Oddities::default() };
        let server = Server::odd(&odd);
        server.install();
        for way in [Way::Helper, Way::Fallback, Way::Agent, Way::AgentFallback] {
            let pool = server.pool(way);
            let outcome = go(&pool, way, sh("echo out; echo err >&2; exit 7")).await;
            assert_exit(&outcome, 7, &format!("{way:?}"));
            assert_eq!((&outcome.stdout[..], &outcome.stderr[..]), (&b"out\n"[..], &b"err\n"[..]), "{way:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fish_as_login_shell_is_no_obstacle() {
    if !std::path::Path::new("/usr/bin/fish").exists() {
        eprintln!("fish is not installed: not tested");
        return;
    }
    let odd = Oddities {
        noise: Some("exec fish -c \"echo hi; $SSH_ORIGINAL_COMMAND\"".into()),
        ..Oddities::default()
    };
    let server = Server::odd(&odd);
    server.install();
    for way in SHARED {
        let pool = server.pool(way);
        let outcome = go(&pool, way, sh("echo \"$0\"; exit 7")).await;
        assert_exit(&outcome, 7, &format!("{way:?}"));
        assert_eq!(outcome.stdout, b"sh\n", "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_a_helper_gets_a_channel_for_each_command() {
    let server = Server::start();
    let pool = server.pool(Way::Helper);
    for _ in 0..3 {
        assert_exit(&go(&pool, Way::Helper, sh("exit 6")).await, 6, "no helper");
    }
    assert_eq!(running("kvmad-node serve").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_one_session_a_connection_serves_all() {
    let odd = Oddities { config: "MaxSessions 1".into(), ..Oddities::default() };
    for way in SHARED {
        let server = Server::odd(&odd);
        server.install();
        let pool = std::sync::Arc::new(server.pool(way));
        let jobs: Vec<_> = (0..12)
            .map(|number| {
                let pool = pool.clone();
                tokio::spawn(async move { go(&pool, way, sh(&format!("sleep 0.5; exit {number}"))).await })
            })
            .collect();
        for (number, job) in jobs.into_iter().enumerate() {
            assert_exit(&job.await.unwrap(), number as i32, &format!("{way:?}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_connection_is_a_failure_with_the_reason_of_ssh_for_all_that_wait() {
    let mut server = Server::start();
    server.down();
    for way in [Way::Helper, Way::Agent] {
        let pool = server.pool(way);
        let began = Instant::now();
        let place = place(way);
        let (one, two) = tokio::join!(
            pool.run(&place, sh("exit 0"), Watch::nothing()),
            pool.run(&place, sh("exit 0"), Watch::nothing())
        );
        assert!(began.elapsed() < Duration::from_secs(12));
        for outcome in [one, two] {
            let reason = lost(&outcome.ending);
            assert!(reason.contains("node1") && reason.contains("Connection refused"), "{reason}");
        }
    }
    let unknown = "Host *\n HostName no-such-host.invalid\n";
    fs::write(server.path("ssh_config"), unknown).unwrap();
    let outcome = go(&server.pool(Way::Helper), Way::Helper, sh("exit 0")).await;
    assert!(lost(&outcome.ending).contains("no-such-host.invalid"), "{:?}", outcome.ending);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_host_key_is_a_failure_that_says_so() {
    let server = Server::start();
    server.install();
    assert_exit(&go(&server.pool(Way::Helper), Way::Helper, sh("exit 0")).await, 0, "first contact");
    let known = server.path("known_hosts");
    let text = fs::read_to_string(&known).unwrap();
    let other = fs::read_to_string(server.path("user_key.pub")).unwrap();
    let key = other.split_whitespace().nth(1).unwrap();
    let line: Vec<&str> = text.lines().next().unwrap().split(' ').collect();
    fs::write(&known, format!("{} {} {key}\n", line[0], line[1])).unwrap();
    let outcome = go(&server.pool(Way::Helper), Way::Helper, sh("exit 0")).await;
    assert!(lost(&outcome.ending).contains("Host key verification failed"), "{:?}", outcome.ending);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_dies_under_running_jobs_is_a_failure_and_the_next_job_reconnects() {
    for way in SHARED {
        let mut server = Server::start();
        server.install();
        let pool = std::sync::Arc::new(server.pool(way));
        let jobs: Vec<_> = (0..3)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move { go(&pool, way, sh("sleep 30.501")).await })
            })
            .collect();
        until("jobs run", 20, || running("sleep 30.501").len() >= 3).await;
        server.down();
        for job in jobs {
            let outcome = job.await.unwrap();
            assert!(lost(&outcome.ending).contains("node1: "), "{:?}", outcome.ending);
        }
        until("nothing runs on the host", 10, || running("30.501").is_empty()).await;
        assert!(matches!(go(&pool, way, sh("exit 0")).await.ending, Ending::Lost(_)));
        server.up();
        assert_exit(&go(&pool, way, sh("exit 3")).await, 3, "reconnected");
        let sockets = server.path("control");
        pool.close().await;
        drop(pool);
        let left = || running(sockets.to_str().unwrap());
        until("no ssh is left", 10, || left().is_empty()).await;
        until("only the lock is left", 5, || fs::read_dir(&sockets).unwrap().count() == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_killed_is_replaced() {
    for way in SHARED {
        let server = Server::start();
        server.install();
        let pool = server.pool(way);
        assert_exit(&go(&pool, way, sh("exit 0")).await, 0, "first");
        let masters = running(&format!("{}/", server.path("control").display()));
        assert_eq!(masters.len(), 1, "{way:?}");
        kill(masters[0], 9);
        until("it is gone", 5, || running(&format!("{}/", server.path("control").display())).is_empty())
            .await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_exit(&go(&pool, way, sh("exit 4")).await, 4, "next");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_and_its_helper_ends() {
    for way in SHARED {
        let server = Server::start();
        server.install();
        let mut options = server.options(way);
        options.host.idle = Duration::from_secs(1);
        let pool = Pool::new(options).unwrap();
        assert_exit(&go(&pool, way, sh("exit 0")).await, 0, "first");
        let control = server.path("control");
        until("closed", 15, || running(control.to_str().unwrap()).is_empty()).await;
        let state = server.path("state");
        until("helper gone", 5, || running(state.to_str().unwrap()).is_empty()).await;
        assert_exit(&go(&pool, way, sh("exit 0")).await, 0, "again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_hosts_than_connections_are_served_by_closing_idle_ones() {
    let server = Server::start();
    server.install();
    let mut options = server.options(Way::Helper);
    options.host.connections = 2;
    let pool = Pool::new(options).unwrap();
    for number in 0..5 {
        let name = HostName::new(format!("node{number}")).unwrap();
        let place = Place::Host { name, agent: false };
        assert_exit(&pool.run(&place, sh("exit 0"), Watch::nothing()).await, 0, "one of five");
    }
    let masters = || running(&format!("{}/", server.path("control").display())).len();
    until("two at most", 10, || masters() <= 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_wait_together_for_a_connection_all_get_one() {
    let server = Server::start();
    server.install();
    let mut options = server.options(Way::Helper);
    options.host.connections = 2;
    let pool = std::sync::Arc::new(Pool::new(options).unwrap());
    let jobs: Vec<_> = (0..6)
        .map(|number| {
            let (pool, name) = (pool.clone(), HostName::new(format!("node{number}")).unwrap());
            let place = Place::Host { name, agent: false };
            tokio::spawn(async move { pool.run(&place, sh("sleep 0.2"), Watch::nothing()).await })
        })
        .collect();
    // An idle connection is closed by itself after 60 s: that is not waited for.
    for job in jobs {
        let outcome = tokio::time::timeout(Duration::from_secs(30), job).await.expect("in time").unwrap();
        assert_exit(&outcome, 0, "one of six at once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_back_has_a_connection_of_its_own() {
    let server = Server::start();
    server.install();
    for way in SHARED {
        let pool = server.pool(way);
        assert_exit(&go(&pool, way, sh("exit 0")).await, 0, "first");
        let mut job = sh("echo \"$SSH_CONNECTION\"");
        let shared = go(&pool, way, job.clone()).await.stdout;
        job.purpose = Purpose::RollBack;
        let own = go(&pool, way, job).await;
        assert_exit(&own, 0, "roll-back");
        assert_ne!(own.stdout, shared, "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_back_tries_three_times() {
    let mut server = Server::start();
    server.install();
    server.down();
    let pool = server.pool(Way::Fallback);
    let mut job = sh("exit 0");
    job.purpose = Purpose::RollBack;
    let outcome = go(&pool, Way::Fallback, job.clone()).await;
    assert!(lost(&outcome.ending).contains("tried 3 times"), "{:?}", outcome.ending);
    let place = place(Way::Fallback);
    let trying = pool.run(&place, job, Watch::nothing());
    let (outcome, ()) = tokio::join!(trying, async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.up();
    });
    assert_exit(&outcome, 0, "the server came back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helper_that_is_killed_leaves_orphans_that_the_next_one_ends_and_tells() {
    let server = Server::start();
    server.install();
    let pool = std::sync::Arc::new(server.pool(Way::Helper));
    let runner = pool.clone();
    let job = tokio::spawn(async move { go(&runner, Way::Helper, sh("sleep 30.502; :")).await });
    until("it runs", 20, || running("30.502").len() >= 2).await;
    let state = server.path("state");
    let helper: Vec<u32> = running(state.to_str().unwrap());
    helper.into_iter().for_each(|pid| kill(pid, 9));
    assert!(matches!(job.await.unwrap().ending, Ending::Lost(_)));
    let (watch, _, notices) = watch();
    let outcome = pool.run(&place(Way::Helper), sh("exit 0"), watch).await;
    assert_exit(&outcome, 0, "next");
    assert_eq!(running("30.502"), [0u32; 0], "ended before the next one began");
    assert!(notices.lock().unwrap().iter().any(|line| line.contains("still ran")), "{notices:?}");
    let files: Vec<_> = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "that of the helper that is gone went away");
    assert_eq!(fs::read_to_string(&files[0]).unwrap().trim(), "", "no record is left");
}

/// Told whether its host answers.
#[derive(Default)]
struct Heard(std::sync::Mutex<Vec<&'static str>>);

impl Turn for Heard {
    fn waiting(&self, _host: &HostName) {}

    fn ready<'a>(&'a self, _host: &'a HostName) -> Boxed<'a, ()> {
        self.0.lock().unwrap().push("answers");
        Box::pin(std::future::ready(()))
    }

    fn unreachable(&self, _host: &HostName) {
        self.0.lock().unwrap().push("silent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_counts_as_silent_only_until_its_connection_works() {
    let server = Server::start();
    server.install();
    let pool = std::sync::Arc::new(server.pool(Way::Helper));
    let heard = std::sync::Arc::new(Heard::default());
    let go = |script: &'static str| {
        let watch = Watch { turn: heard.clone(), ..Watch::nothing() };
        let pool = pool.clone();
        async move { pool.run(&place(Way::Helper), sh(script), watch).await }
    };
    let job = tokio::spawn(go("sleep 30.509; :"));
    until("it runs", 20, || running("30.509").len() >= 2).await;
    let helper: Vec<u32> = running(server.path("state").to_str().unwrap());
    helper.into_iter().for_each(|pid| kill(pid, 9));
    assert!(matches!(job.await.unwrap().ending, Ending::Lost(_)));
    assert!(!heard.0.lock().unwrap().contains(&"silent"), "its ssh still works");
    assert_exit(&go("exit 0").await, 0, "next");
    heard.0.lock().unwrap().push("silent");
    assert_exit(&go("exit 0").await, 0, "on the same connection");
    assert_eq!(heard.0.lock().unwrap().last(), Some(&"answers"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_connecting_is_a_cancel() {
    let server = Server::start();
    server.install();
    // A server that accepts and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    fs::write(server.path("ssh_config"), format!("Host *\n HostName 127.0.0.1\n Port {port}\n")).unwrap();
    let pool = server.pool(Way::Helper);
    let watch = Watch::nothing();
    let cancel = watch.cancel.clone();
    let place = place(Way::Helper);
    let (outcome, ()) = tokio::join!(pool.run(&place, sh("exit 0"), watch), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancel.cancel();
    });
    assert_eq!(outcome.ending, Ending::Cancelled);
    assert!(outcome.took < Duration::from_secs(3));
    let control = server.path("control");
    until("no ssh is left", 5, || running(control.to_str().unwrap()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_given_up_after_the_connect_timeout() {
    let server = Server::start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    fs::write(server.path("ssh_config"), format!("Host *\n HostName 127.0.0.1\n Port {port}\n")).unwrap();
    let mut options = server.options(Way::Helper);
    options.ssh.connect_timeout = Duration::from_secs(1);
    let pool = Pool::new(options).unwrap();
    let outcome = go(&pool, Way::Helper, sh("exit 0")).await;
    assert!(!lost(&outcome.ending).is_empty());
    assert!(outcome.took < Duration::from_secs(5), "{:?}", outcome.took);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_leave_descriptors_and_processes_flat() {
    let server = Server::start();
    server.install();
    for (way, count) in [(Way::Helper, 1000), (Way::Local, 300), (Way::Fallback, 60)] {
        let pool = std::sync::Arc::new(server.pool(way));
        assert_exit(&go(&pool, way, sh("exit 0")).await, 0, "first");
        tokio::time::sleep(Duration::from_millis(200)).await;
        let census = || {
            let fds = fs::read_dir("/proc/self/fd").unwrap().count();
            (fds, crate::server::descendants(std::process::id()).len())
        };
        let before = census();
        let jobs: Vec<_> = (0..10)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    for _ in 0..count / 10 {
                        assert_exit(&go(&pool, way, sh("exit 1")).await, 1, "one of many");
                    }
                })
            })
            .collect();
        for job in jobs {
            job.await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let after = census();
        assert!(after.0 <= before.0 + 2 && after.1 <= before.1 + 3, "{way:?}: {before:?} {after:?}");
    }
}
