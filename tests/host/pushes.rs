//! Pushes of the remotes: when, what, and that they disturb nobody.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use kvmad::host::push::{Changes, NotPushed, Pushed, carried_stamp, write_stamp};
use kvmad::host::{Ending, Runner, Watch};

use crate::server::{
    Oddities, SHARED, Server, Way, assert_exit, executable, go, host, place, running, script, sh, until,
    watch,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_host_gets_the_remotes_and_then_its_helper() {
    for way in SHARED {
        let server = Server::start();
        let stamp = write_stamp(&server.path("remotes")).unwrap();
        let pool = server.pool(way);
        let (watch, _, notices) = watch();
        let mut job = script("vmm/kvm/hello");
        job.args = vec!["you".into()];
        let outcome = pool.run(&place(way), job, watch).await;
        assert_exit(&outcome, 0, &format!("{way:?}"));
        assert_eq!(outcome.stdout, b"hello you\n");
        assert_eq!(notices.lock().unwrap().as_slice(), ["node1: remotes updated"], "{way:?}");
        assert_eq!(carried_stamp(&server.path("remote")), Some(stamp));
        let helpers = running(server.path("state").to_str().unwrap()).len();
        assert_eq!(helpers, usize::from(way == Way::Helper), "{way:?}");
        let left: Vec<_> =
            fs::read_dir(server.dir.path()).unwrap().flatten().map(|one| one.file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("stage")), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_stamp_is_not_pushed_again_and_a_change_is() {
    let server = Server::start();
    write_stamp(&server.path("remotes")).unwrap();
    let pool = server.pool(Way::Helper);
    let quiet = Watch::nothing();
    let first = pool.push(&host(), false, &quiet).await.unwrap();
    assert!(matches!(first, Pushed::Done { changes: None, .. }), "{first:?}");
    assert_eq!(pool.push(&host(), false, &quiet).await, Ok(Pushed::Same));
    executable(&server.path("remotes/vmm/kvm/new"), "#!/bin/sh\necho new\n");
    executable(&server.path("remotes/vmm/kvm/hello"), "#!/bin/sh\necho changed\n");
    fs::remove_dir(server.path("remotes/im")).unwrap();
    // The folder is read at most every few seconds.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let pushed = pool.push(&host(), false, &quiet).await.unwrap();
    let changes = Changes {
        added: vec!["vmm/kvm/new".into()],
        changed: vec!["vmm/kvm/hello".into()],
        removed: vec!["im".into()],
    };
    let Pushed::Done { changes: Some(told), .. } = pushed else { panic!("{pushed:?}") };
    assert_eq!(told, changes);
    assert_eq!(go(&pool, Way::Helper, script("vmm/kvm/new")).await.stdout, b"new\n");
    assert!(matches!(pool.push(&host(), true, &quiet).await, Ok(Pushed::Done { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_user_left_beside_the_remotes_stays_and_keeps_no_push_up() {
    let server = Server::start();
    write_stamp(&server.path("remotes")).unwrap();
    let pool = server.pool(Way::Helper);
    assert!(pool.push(&host(), false, &Watch::nothing()).await.is_ok());
    let stage = |name: &str| {
        let remotes = server.path("remote");
        let folder = remotes.with_file_name(format!(
            ".{}.kvmad-stage.{name}",
            remotes.file_name().unwrap().to_str().unwrap()
        ));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        folder
    };
    let (theirs, ours) = (stage("theirs"), stage("ours"));
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    assert!(matches!(pool.push(&host(), true, &Watch::nothing()).await, Ok(Pushed::Done { .. })));
    assert!(theirs.join("file").exists() && !ours.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_remotes_are_pushed_only_when_a_script_is_missing() {
    for way in SHARED {
        let server = Server::start();
        server.install();
        fs::remove_file(server.path("remote/vmm/kvm/hello")).unwrap();
        fs::write(server.path("remote/mark"), "").unwrap();
        let pool = server.pool(way);
        assert_exit(&go(&pool, way, sh("exit 0")).await, 0, "nothing missing");
        assert!(server.path("remote/mark").exists(), "{way:?}: pushed without need");
        let outcome = go(&pool, way, script("vmm/kvm/hello")).await;
        assert_exit(&outcome, 0, &format!("{way:?}"));
        assert!(!server.path("remote/mark").exists());
        let outcome = go(&pool, way, script("vmm/kvm/no-such")).await;
        let Ending::NotStarted(text) = &outcome.ending else { panic!("{:?}", outcome.ending) };
        assert!(text.contains("vmm/kvm/no-such"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_run_are_not_disturbed_by_a_push() {
    for way in SHARED {
        let server = Server::start();
        write_stamp(&server.path("remotes")).unwrap();
        executable(&server.path("remotes/vmm/kvm/slow"), "#!/bin/bash\nsleep 1.5\necho done\nexit 3\n");
        write_stamp(&server.path("remotes")).unwrap();
        let pool = Arc::new(server.pool(way));
        assert_exit(&go(&pool, way, sh("exit 0")).await, 0, "connected");
        let jobs: Vec<_> = (0..3)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move { go(&pool, way, script("vmm/kvm/slow")).await })
            })
            .collect();
        until("they run", 10, || running("vmm/kvm/slow").len() >= 3).await;
        assert!(matches!(pool.push(&host(), true, &Watch::nothing()).await, Ok(Pushed::Done { .. })));
        assert_exit(&go(&pool, way, script("vmm/kvm/hello")).await, 0, "beside them");
        for job in jobs {
            let outcome = job.await.unwrap();
            assert_exit(&outcome, 3, &format!("{way:?}"));
            assert_eq!(outcome.stdout, b"done\n");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_drivers_may_push_at_once_while_scripts_start() {
    let server = Arc::new(Server::start());
    write_stamp(&server.path("remotes")).unwrap();
    let first = server.pool(Way::Helper);
    assert_exit(&go(&first, Way::Helper, script("vmm/kvm/hello")).await, 0, "installed");
    let pushing: Vec<_> = [Way::Helper, Way::Fallback, Way::Helper]
        .map(|way| {
            let server = server.clone();
            tokio::spawn(async move {
                let pool = server.pool(way);
                for _ in 0..3 {
                    assert!(matches!(
                        pool.push(&host(), true, &Watch::nothing()).await,
                        Ok(Pushed::Done { .. })
                    ));
                }
            })
        })
        .into();
    let mut started = 0;
    while pushing.iter().any(|one| !one.is_finished()) {
        let outcome = go(&first, Way::Helper, script("vmm/kvm/hello")).await;
        assert_exit(&outcome, 0, "while they push");
        started += 1;
    }
    assert!(started > 0);
    for one in pushing {
        one.await.unwrap();
    }
    assert_eq!(write_stamp(&server.path("remotes")).ok(), carried_stamp(&server.path("remote")));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_session_a_connection_is_enough_to_push_and_go_on_with_the_helper() {
    let server = Server::odd(&Oddities { config: "MaxSessions 1".into(), ..Oddities::default() });
    write_stamp(&server.path("remotes")).unwrap();
    let pool = server.pool(Way::Helper);
    for _ in 0..3 {
        assert!(matches!(pool.push(&host(), true, &Watch::nothing()).await, Ok(Pushed::Done { .. })));
        assert_exit(&go(&pool, Way::Helper, script("vmm/kvm/hello")).await, 0, "after a push");
    }
    assert_eq!(running(server.path("state").to_str().unwrap()).len(), 1, "the helper is used");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_holds_something_else_is_not_touched() {
    let server = Server::start();
    write_stamp(&server.path("remotes")).unwrap();
    fs::create_dir_all(server.path("remote/0/7")).unwrap();
    fs::write(server.path("remote/0/7/disk.0"), "a disk").unwrap();
    let pool = server.pool(Way::Helper);
    let error = pool.push(&host(), true, &Watch::nothing()).await.unwrap_err();
    assert!(
        matches!(&error, NotPushed::Failed(why) if why.starts_with("node1: ") && why.contains("something else")),
        "{error}"
    );
    assert_eq!(fs::read_to_string(server.path("remote/0/7/disk.0")).unwrap(), "a disk");
}
