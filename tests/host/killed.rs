//! A driver that is killed outright, in the middle of work on a host and on the front-end.

use std::process::{Command, Stdio};
use std::time::Duration;

use kvmad::host::Runner;
use kvmad::host::Watch;

use crate::server::{Server, Way, kill, place, running, sh, until};

const SERVER: &str = "KVMAD_TEST_SERVER";

/// The driver: a child of the next test, which gives it its server by the environment.
#[tokio::test]
#[ignore = "a part of the next test"]
async fn driver() {
    let Ok(text) = std::env::var(SERVER) else { return };
    let (dir, way) = text.split_once(' ').unwrap();
    let way = if way == "helper" { Way::Helper } else { Way::Fallback };
    let mut options = Server::options_at(dir.as_ref(), way);
    options.local_helper = Some(env!("CARGO_BIN_EXE_kvmad-node").into());
    let pool = kvmad::host::Pool::new(options).unwrap();
    let script = |number| sh(&format!("trap 'exit 3' TERM; sleep {number} & wait; sleep {number}"));
    let (there, here) = (place(way), place(Way::Local));
    tokio::join!(
        pool.run(&there, script("30.601"), Watch::nothing()),
        pool.run(&here, script("30.602"), Watch::nothing())
    );
}

#[tokio::test]
async fn within_ten_seconds_nothing_is_left_of_a_killed_driver_on_either_side() {
    for way in ["helper", "fallback"] {
        let server = Server::start();
        server.install();
        let mut driver = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::driver", "--ignored"])
            .env(SERVER, format!("{} {way}", server.dir.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let work = || (running("30.601").len(), running("30.602").len());
        until("both run", 60, || work().0 >= 2 && work().1 >= 2).await;
        kill(driver.id(), 9);
        driver.wait().unwrap();
        let dir = server.dir.path().to_str().unwrap().to_owned();
        // sshd is the server itself.
        let left = || {
            let ours = running(&dir).into_iter().filter(|pid| !crate::server::is_sshd(*pid));
            work() == (0, 0) && ours.count() == 0
        };
        until("nothing is left", 10, left).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
