//! Disks, interfaces, snapshots, backups, clean-up; limits, tries again, cancel.

use std::time::Duration;

use kvmad::host::job::Ending;
use kvmad::mad::actions::Answer;
use kvmad::vmm::execute::{Executor, Limits};

use super::carried::{Ran, deploy, failure, front_end, planned, run, run_in, scripts, success};
use super::corpus;
use super::recorder::{Fake, Logged, bad, ends, good};

#[tokio::test]
async fn a_disk_that_can_not_be_attached_is_taken_away_again() {
    let ran = run(4, |line, _| if line.contains("attach_disk") { bad(255, "busy") } else { good("") }).await;
    assert_eq!(failure(&ran), "busy (exit code 255)");
    assert_eq!(
        scripts(&ran),
        ["local tm/dummy/clone", "host1 vmm/kvm/attach_disk", "~ local tm/dummy/delete.dummy"]
    );
    let ran = run(4, |line, _| if line.contains("clone") { bad(1, "full") } else { good("") }).await;
    assert_eq!(scripts(&ran), ["local tm/dummy/clone"]);
}

#[tokio::test]
async fn a_disk_that_can_not_be_taken_away_is_attached_again() {
    let ran = run(5, |line, _| if line.contains("tm/") { bad(1, "full") } else { good("") }).await;
    assert_eq!(failure(&ran), "full (exit code 1)");
    assert_eq!(scripts(&ran).last().map(String::as_str), Some("~ host1 vmm/kvm/attach_disk"));
}

#[tokio::test]
async fn a_nic_whose_context_fails_is_detached_its_network_cleaned_and_the_cd_put_in() {
    let ran = run(10, |line, _| {
        let fails = line.contains("/reconfigure") && !line.starts_with('~');
        if fails { bad(1, "locked") } else { good("") }
    })
    .await;
    assert_eq!(failure(&ran), "locked (exit code 1)");
    assert_eq!(
        scripts(&ran),
        [
            "host1 vnm/dummy/pre",
            "host1 vnm/ovswitch/pre",
            "host1 vmm/kvm/attach_nic",
            "host1 vnm/dummy/post",
            "host1 vnm/ovswitch/post",
            "host1 vmm/kvm/prereconfigure",
            "local tm/dummy/context",
            "host1 vmm/kvm/reconfigure",
            "~ host1 vmm/kvm/reconfigure",
            "~ host1 vmm/kvm/detach_nic",
            "~ host1 vnm/dummy/clean",
            "~ host1 vnm/ovswitch/clean",
        ]
    );
}

#[tokio::test]
async fn a_network_that_was_prepared_by_the_first_of_two_drivers_is_cleaned() {
    let ran = run(10, |line, _| if line.contains("ovswitch/pre") { bad(1, "no") } else { good("") }).await;
    assert_eq!(failure(&ran), "ovswitch: no (exit code 1)");
    assert_eq!(scripts(&ran)[2..], ["~ host1 vnm/dummy/clean", "~ host1 vnm/ovswitch/clean"]);
    let ran = run(10, |line, _| if line.contains("dummy/pre") { bad(1, "no") } else { good("") }).await;
    assert_eq!(ran.lines.len(), 1);
}

#[tokio::test]
async fn a_nic_that_was_detached_is_put_back_when_the_context_fails() {
    let ran = run(12, |line, _| if line.contains("/prereconfigure") { bad(1, "no") } else { good("") }).await;
    failure(&ran);
    assert_eq!(
        scripts(&ran)[4..],
        [
            "~ host1 vnm/dummy/pre",
            "~ host1 vnm/ovswitch/pre",
            "~ host1 vmm/kvm/attach_nic",
            "~ host1 vnm/dummy/post",
            "~ host1 vnm/ovswitch/post",
        ]
    );
}

#[tokio::test]
async fn an_image_that_grew_is_named_when_the_guest_can_not_be_told() {
    let ran = run(21, |line, _| if line.contains("resize_disk") { bad(1, "busy") } else { good("") }).await;
    assert_eq!(failure(&ran), "busy (exit code 1); it remains that the image of disk 0 has 2048 MiB already");
}

#[tokio::test]
async fn cleanup_succeeds_always_but_deletes_nothing_while_the_domain_may_run() {
    let ran = run(50, |_, _| bad(1, "no")).await;
    assert_eq!(success(&ran), "");
    assert_eq!(scripts(&ran), ["host1 vmm/kvm/cancel", "host1 vnm/dummy/clean"]);
    let left: Vec<_> =
        ran.log.texts().into_iter().filter(|text| text.starts_with("Left out tm_delete")).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left[0].contains("/disk.0 2 101: the domain may still run (no (exit code 1))"), "{}", left[0]);

    let ran = run(50, |line, _| if line.contains("/cancel") { good("") } else { bad(1, "no") }).await;
    assert_eq!(success(&ran), "");
    assert_eq!(scripts(&ran).len(), 5);
}

#[tokio::test]
async fn a_finished_backup_is_not_lost_by_what_fails_behind_it() {
    let ran = run(56, |line, _| match line {
        _ if line.contains("/postbackup") => bad(1, "no"),
        _ if line.contains("/backup") => good("restic: done\nabcd 1024 raw\n"),
        _ => good(""),
    })
    .await;
    assert_eq!(success(&ran), "abcd 1024 raw");
    let ran = run(56, |line, _| if line.contains("datastore/") { bad(1, "full") } else { good("") }).await;
    assert_eq!(failure(&ran), "full (exit code 1)");
    assert!(scripts(&ran).last().expect("undo").starts_with("~ local tm/dummy/postbackup"));
    let ran = run(56, |_, _| good("")).await;
    assert_eq!(failure(&ran), "backup printed nothing (host host1)");
}

#[tokio::test]
async fn a_missing_transfer_driver_or_script_is_named() {
    let dir = tempfile::tempdir().expect("folder");
    let run = async || {
        let plan = planned(5, |text| text);
        let ran = run_in(dir.path(), &plan, Fake::new(|_, _| good("")), Limits::default()).await;
        failure(&ran).to_owned()
    };
    assert_eq!(run().await, "Transfer Driver 'dummy' not available");
    std::fs::create_dir_all(dir.path().join("tm/dummy")).expect("tm");
    assert!(run().await.ends_with("tm/dummy/delete' does not exist"), "{}", run().await);
}

#[tokio::test]
async fn direct_calls_are_tried_again_as_often_as_r_says_and_others_never() {
    let limits = Limits { retries: 2, retry_pause: Duration::from_millis(5), ..Limits::default() };
    let dir = front_end();
    let fake = Fake::new(|_, _| bad(1, "no"));
    let ran = run_in(dir.path(), &planned(15, |text| text), fake, limits).await;
    assert_eq!((failure(&ran), ran.lines.len()), ("no (exit code 1)", 3));
    let ran = run_in(dir.path(), &planned(2, |text| text), Fake::new(|_, _| bad(1, "no")), limits).await;
    assert_eq!(ran.lines.len(), 1);
}

#[tokio::test]
async fn every_step_has_the_limit_of_w_and_the_roll_back_one_of_its_own() {
    let limits = Limits { step: Some(Duration::from_secs(9)), ..Limits::default() };
    let dir = front_end();
    let fake = Fake::new(|line, _| if line.contains("/attach_disk") { bad(1, "no") } else { good("") });
    let ran = run_in(dir.path(), &planned(4, |text| text), fake, limits).await;
    let jobs = ran.fake.jobs.lock().expect("lock");
    assert_eq!(jobs[0].1.limit, Some(Duration::from_secs(9)));
    let undo = jobs[2].1.limit.expect("a limit");
    assert!(undo > Duration::from_secs(50) && undo <= Duration::from_secs(60), "{undo:?}");
}

#[tokio::test]
async fn a_cancelled_action_ends_its_step_and_rolls_back() {
    let dir = front_end();
    let fake =
        Fake::new(|line, _| if line.contains("kvm/deploy") { ends(Ending::Cancelled) } else { good("") });
    let log = Logged::default();
    let context = log.context();
    let executor = Executor::new(fake.clone(), dir.path().to_owned(), Limits::default());
    let plan = deploy(dir.path());
    let cancel = context.cancel.clone();
    let (answer, ()) = tokio::join!(executor.run(&plan, &context), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cancel.cancel();
    });
    assert!(matches!(answer, Answer::Failure(_)));
    let lines = fake.lines();
    assert_eq!(
        lines[5..],
        ["~ host1 vmm/kvm/cancel one-0 host1 0 host1", "~ host1 vnm/dummy/clean host1"],
        "the roll-back is not cancelled"
    );
}

#[tokio::test]
async fn a_cancel_behind_a_finished_backup_comes_too_late() {
    let log = Logged::default();
    let context = log.context();
    let cancel = context.cancel.clone();
    let fake = Fake::new(move |line, _| match line {
        // It is cancelled while the backup's last words are read.
        _ if line.contains("datastore/") => {
            cancel.cancel();
            good("abcd 1024 raw\n")
        }
        _ => good(""),
    });
    let dir = front_end();
    let executor = Executor::new(fake.clone(), dir.path().to_owned(), Limits::default());
    let Answer::Success(info) = executor.run(&planned(56, |text| text), &context).await else {
        panic!("the backup is there")
    };
    assert_eq!(info, "abcd 1024 raw");
    assert!(fake.lines().last().expect("a step").contains("/postbackup"), "{:?}", fake.lines());
}

#[tokio::test]
async fn an_action_that_was_cancelled_before_it_began_runs_nothing() {
    let fake = Fake::new(|_, _| good(""));
    let context = Logged::default().context();
    context.cancel.cancel();
    let executor = Executor::new(fake.clone(), "/nowhere".into(), Limits::default());
    executor.run(&planned(2, |text| text), &context).await;
    assert!(fake.lines().is_empty());
}

#[tokio::test]
async fn each_network_driver_says_its_part() {
    let ran = run(11, |line, _| good(if line.contains("ovswitch") { "done" } else { "" })).await;
    assert_eq!(success(&ran), "dummy: - ovswitch: done");
    let ran = run(53, |_, _| good("")).await;
    assert_eq!(success(&ran), "dummy: -");
}

#[tokio::test]
async fn a_snapshot_without_a_name_is_a_failure() {
    assert_eq!(success(&run(16, |_, _| good("snap-0\n")).await), "snap-0");
    let ran = run(16, |_, _| good("\n")).await;
    assert_eq!(failure(&ran), "snapshot_create printed nothing (host host1)");
}

#[tokio::test]
async fn a_document_that_does_not_fit_into_an_argument_is_read_from_stdin() {
    let dir = front_end();
    let large = |text: String| text.replace("<CPU>", &format!("<PAD>{}</PAD><CPU>", "x".repeat(120_000)));
    let ran = run_in(dir.path(), &planned(4, large), Fake::new(|_, _| good("")), Limits::default()).await;
    success(&ran);
    let attach = |ran: &Ran| ran.fake.jobs.lock().expect("lock")[1].1.clone();
    assert_eq!(attach(&ran).args[4], "-");
    assert!(attach(&ran).stdin.len() > 120_000);
    let ran = run(4, |_, _| good("")).await;
    let text = corpus::document("vmm-7.4", 4).text;
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    assert_eq!(attach(&ran).args[4], encoded);
}
