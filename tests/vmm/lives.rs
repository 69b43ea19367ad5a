//! Plans carried out: order, answers, roll-back, cancel, what is left when things fail.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kvmad::host::job::{Ending, Job};
use kvmad::mad::actions::{Answer, Severity};
use kvmad::vmm::execute::{Executor, Limits};
use kvmad::vmm::payload::Action;
use kvmad::vmm::plan::{self, Plan};
use kvmad::vmm::setup::Setup;
use kvmad::vmm::verb::Verb;

use super::corpus;
use super::recorder::{Canned, Fake, Logged, bad, ends, good};

/// A front-end with drivers `dummy` whose scripts exist, and the deployment file of the first document.
fn front_end() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("folder");
    let tm = dir.path().join("tm/dummy");
    let ds = dir.path().join("datastore/dummy");
    std::fs::create_dir_all(&tm).expect("tm");
    std::fs::create_dir_all(&ds).expect("datastore");
    for name in "context clone delete.dummy delete mkimage premigrate failmigrate postmigrate resize ln \
                 snap_create_live prebackup postbackup prebackup_live postbackup_live"
        .split_whitespace()
    {
        std::fs::write(tm.join(name), "").expect(name);
    }
    for name in ["backup", "backup_cancel"] {
        std::fs::write(ds.join(name), "").expect(name);
    }
    std::fs::write(dir.path().join("deployment"), "<domain/>").expect("deployment");
    dir
}

fn planned(number: usize, change: impl Fn(String) -> String) -> Plan {
    let recorded = corpus::document("vmm-7.4", number);
    let action = Action::from_xml(change(recorded.text)).expect(&recorded.name);
    let verb = Verb::from_wire(&recorded.verb).expect("verb");
    let mut setup = Setup::new("kvm");
    setup.live_snapshots.insert("dummy-dummy".to_owned());
    plan::plan(verb, &action, &setup).expect(&recorded.name)
}

fn deploy(dir: &Path) -> Plan {
    let file = dir.join("deployment").display().to_string();
    planned(1, |text| text.replace("/var/lib/one/vms/0/deployment.0", &file))
}

struct Ran {
    answer: Answer,
    lines: Vec<String>,
    log: Logged,
    fake: Arc<Fake>,
}

async fn run_in(dir: &Path, plan: &Plan, fake: Arc<Fake>, limits: Limits) -> Ran {
    let log = Logged::default();
    let executor = Executor::new(fake.clone(), dir.to_owned(), limits);
    let answer = executor.run(plan, &log.context()).await;
    Ran { answer, lines: fake.lines(), log, fake }
}

async fn run(number: usize, decide: impl Fn(&str, &Job) -> Canned + Send + Sync + 'static) -> Ran {
    let dir = front_end();
    run_in(dir.path(), &planned(number, |text| text), Fake::new(decide), Limits::default()).await
}

async fn run_deploy(decide: impl Fn(&str, &Job) -> Canned + Send + Sync + 'static) -> Ran {
    let dir = front_end();
    run_in(dir.path(), &deploy(dir.path()), Fake::new(decide), Limits::default()).await
}

fn failure(ran: &Ran) -> &str {
    match &ran.answer {
        Answer::Failure(text) => text,
        Answer::Success(info) => panic!("SUCCESS {info}"),
    }
}

fn success(ran: &Ran) -> &str {
    match &ran.answer {
        Answer::Success(info) => info,
        Answer::Failure(text) => panic!("FAILURE {text}"),
    }
}

/// The scripts that ran, without their arguments.
fn scripts(ran: &Ran) -> Vec<String> {
    let short = |line: &String| {
        let words = if line.starts_with("~ ") { 3 } else { 2 };
        line.split(' ').take(words).collect::<Vec<_>>().join(" ")
    };
    ran.lines.iter().map(short).collect()
}

const DIR: &str = "/var/lib/one//datastores/100/0";
const UUID: &str = "7eba4a6c-4fa0-4a37-8f35-677b6dcc3662";

#[tokio::test]
async fn a_deploy_answers_with_the_deploy_id_and_post_gets_it() {
    let ran = run_deploy(|line, _| good(if line.contains("kvm/deploy") { UUID } else { "" })).await;
    assert_eq!(success(&ran), UUID);
    assert_eq!(
        ran.lines,
        [
            format!("local tm/dummy/context /var/lib/one/vms/0/context.sh host1:{DIR}/disk.2 0 100"),
            "host1 vnm/dummy/pre".to_owned(),
            format!("host1 /bin/sh -c store {DIR} vm.xml"),
            format!("host1 /bin/sh -c store {DIR} ds.xml"),
            format!("host1 vmm/kvm/deploy {DIR}/deployment.0 host1 0 host1"),
            format!("host1 vnm/dummy/post {UUID} host1"),
        ]
    );
    let jobs = ran.fake.jobs.lock().expect("lock");
    assert_eq!(&jobs[4].1.stdin[..], b"<domain/>\n", "the domain and one newline");
    assert!(jobs[2].1.stdin.starts_with(b"<VM><ID>0</ID>") && jobs[2].1.stdin.ends_with(b"</VM>\n"));
    assert!(jobs[3].1.stdin.starts_with(b"<DATASTORE><ID>100</ID>"));
    for text in [
        "Successfully execute transfer manager driver operation: tm_context.",
        "Successfully execute network driver operation: pre.",
        "Successfully execute virtualization driver operation: deploy.",
        "Successfully execute network driver operation: post.",
    ] {
        assert!(ran.log.has(Severity::Info, text), "{text}: {:?}", ran.log.texts());
    }
}

#[tokio::test]
async fn a_failed_deploy_cleans_the_network_and_says_why() {
    let ran = run_deploy(|line, _| {
        if line.contains("kvm/deploy") {
            bad(255, "ERROR: deploy: Command \"virsh\" failed\nCould not create domain from x\n")
        } else {
            good("")
        }
    })
    .await;
    assert_eq!(failure(&ran), "Could not create domain from x (exit code 255)");
    assert_eq!(scripts(&ran)[4..], ["host1 vmm/kvm/deploy", "~ host1 vnm/dummy/clean"]);
    assert!(ran.log.has(Severity::Error, "deploy: Command \"virsh\" failed"));
    assert!(ran.log.has(Severity::Info, "Failed to execute virtualization driver operation: deploy."));
    let command = ran.log.texts().into_iter().find(|text| text.starts_with("Command execution fail"));
    let command = command.expect("the command line is logged");
    assert!(command.starts_with("Command execution fail (exit code: 255): vmm/kvm/deploy "), "{command}");
    let errors = ran.log.texts().into_iter().filter(|text| text.contains("Could not create domain")).count();
    assert_eq!(errors, 1, "no line is logged twice: {:?}", ran.log.texts());
}

#[tokio::test]
async fn when_post_fails_the_domain_is_cancelled_by_its_id_and_the_network_cleaned() {
    let ran = run_deploy(|line, _| match line {
        _ if line.contains("kvm/deploy") => good(&format!("noise\n{UUID}\n")),
        _ if line.contains("/post") => bad(1, "no tap"),
        _ => good(""),
    })
    .await;
    assert_eq!(failure(&ran), "dummy: no tap (exit code 1)");
    assert_eq!(
        ran.lines[6..],
        [format!("~ host1 vmm/kvm/cancel {UUID} host1 0 host1"), "~ host1 vnm/dummy/clean host1".to_owned()]
    );
}

#[tokio::test]
async fn a_deploy_without_an_id_is_a_failure_and_whatever_started_is_cancelled_by_name() {
    for printed in ["", "-\n", "Domain created from file\n"] {
        let ran =
            run_deploy(move |line, _| good(if line.contains("kvm/deploy") { printed } else { "" })).await;
        assert!(failure(&ran).contains("deploy printed"), "{}", failure(&ran));
        assert!(failure(&ran).contains("host1"), "{}", failure(&ran));
        assert_eq!(ran.lines[5], "~ host1 vmm/kvm/cancel one-0 host1 0 host1");
        assert_eq!(ran.lines[6], "~ host1 vnm/dummy/clean host1");
    }
}

#[tokio::test]
async fn a_missing_or_empty_deployment_file_is_a_failure_that_names_it() {
    let dir = front_end();
    let plan = planned(1, |text| text);
    let ran = run_in(dir.path(), &plan, Fake::new(|_, _| good("")), Limits::default()).await;
    assert!(failure(&ran).starts_with("Cannot open deployment file /var/lib/one/vms/0/deployment.0: "));
    assert_eq!(ran.lines.last().map(String::as_str), Some("~ host1 vnm/dummy/clean host1"));

    std::fs::write(dir.path().join("deployment"), "\n").expect("empty");
    let ran = run_in(dir.path(), &deploy(dir.path()), Fake::new(|_, _| good("")), Limits::default()).await;
    assert!(failure(&ran).contains("deployment: it is empty"), "{}", failure(&ran));
}

#[tokio::test]
async fn a_deploy_that_is_ended_on_its_way_is_cancelled_on_the_host() {
    for ending in
        [Ending::TimedOut(Duration::from_secs(7)), Ending::Signaled(9), Ending::Lost("host1: gone".into())]
    {
        let wanted = match &ending {
            Ending::TimedOut(_) => "deploy on host1 did not end within 7 s and was stopped",
            Ending::Signaled(_) => "deploy on host1 died by signal 9 (KILL)",
            _ => "host1: gone",
        };
        let ran = run_deploy(
            move |line, _| {
                if line.contains("kvm/deploy") { ends(ending.clone()) } else { good("") }
            },
        )
        .await;
        assert_eq!(failure(&ran), wanted);
        assert_eq!(scripts(&ran)[5..], ["~ host1 vmm/kvm/cancel", "~ host1 vnm/dummy/clean"]);
    }
}

#[tokio::test]
async fn what_could_not_be_undone_is_named_and_a_lost_host_is_not_asked_again() {
    let ran = run_deploy(|line, _| match line {
        _ if line.contains("kvm/deploy") => good("one-0"),
        _ if line.contains("/post") => bad(1, "no tap"),
        _ if line.starts_with("~ ") => ends(Ending::Lost("host1: Connection refused".to_owned())),
        _ => good(""),
    })
    .await;
    assert_eq!(
        failure(&ran),
        "dummy: no tap (exit code 1); not undone: cancel on host1 (host1: Connection refused); \
         not undone: clean on host1 (host1 can't be reached)"
    );
    assert_eq!(ran.lines.iter().filter(|line| line.starts_with("~ ")).count(), 1);
}

#[tokio::test]
async fn a_failing_clean_does_not_make_a_failure_of_a_stopped_vm() {
    for (number, verb) in [(29, "shutdown"), (31, "cancel"), (27, "save")] {
        let ran =
            run(
                number,
                |line, _| {
                    if line.contains("/clean") { bad(1, "ERROR: clean: no bridge\n") } else { good("") }
                },
            )
            .await;
        assert_eq!(success(&ran), "-", "{verb}");
        assert!(
            ran.log.has(Severity::Error, "dummy: clean: no bridge (exit code 1)"),
            "{:?}",
            ran.log.texts()
        );
        assert!(ran.log.has(Severity::Info, "Failed to execute network driver operation: clean."));
    }
}

#[tokio::test]
async fn a_failed_shutdown_leaves_the_network_alone() {
    let ran = run(29, |_, _| bad(255, "Timed out shutting down\n")).await;
    assert_eq!(failure(&ran), "Timed out shutting down (exit code 255)");
    assert_eq!(ran.lines.len(), 1);
}

#[tokio::test]
async fn when_the_network_fails_behind_a_restore_the_vm_is_saved_again() {
    let ran = run(28, |line, _| if line.contains("/post") { bad(1, "no") } else { good("") }).await;
    failure(&ran);
    let back = ["~ host1 vmm/kvm/save", "~ host1 vmm/kvm/cancel", "~ host1 vnm/dummy/clean"];
    assert_eq!(scripts(&ran)[4..], back);

    let ran = run(28, |line, _| match line {
        _ if line.contains("/post") || line.contains("/save") => bad(1, "no"),
        _ => good(""),
    })
    .await;
    assert!(failure(&ran).contains("not undone: save on host1"), "{}", failure(&ran));
    assert!(!ran.lines.iter().any(|line| line.contains("/cancel")), "its memory is not thrown away");

    let ran = run(28, |line, _| if line.contains("/restore") { bad(1, "no") } else { good("") }).await;
    assert_eq!(scripts(&ran)[3..], ["~ host1 vnm/dummy/clean"]);
}

#[tokio::test]
async fn a_failed_migration_is_undone_on_both_sides() {
    let ran =
        run(26, |line, _| if line.contains("/migrate") { bad(1, "Error migrating VM") } else { good("") })
            .await;
    assert_eq!(failure(&ran), "Error migrating VM (exit code 1)");
    assert_eq!(
        scripts(&ran),
        [
            "local tm/dummy/premigrate",
            "host2 vnm/dummy/pre",
            "host1 vmm/kvm/migrate",
            "~ host2 vnm/dummy/clean",
            "~ local tm/dummy/failmigrate"
        ]
    );
    for failing in ["/premigrate", "vnm/dummy/pre"] {
        let ran = run(26, move |line, _| {
            if line.split(' ').any(|word| word.ends_with(failing)) { bad(1, "no") } else { good("") }
        })
        .await;
        assert_eq!(
            scripts(&ran).last().map(String::as_str),
            Some("~ local tm/dummy/failmigrate"),
            "{failing}"
        );
    }
}

#[tokio::test]
async fn what_fails_behind_a_migration_is_logged_and_the_migration_succeeded() {
    let ran = run(26, |line, _| {
        let behind = ["/clean", "/post", "/postmigrate"].iter().any(|name| line.contains(name));
        if behind { bad(1, "oh") } else { good("") }
    })
    .await;
    assert_eq!(success(&ran), "-");
    assert_eq!(scripts(&ran).len(), 6);
    assert!(
        ran.log.has(Severity::Info, "Failed to execute transfer manager driver operation: tm_postmigrate.")
    );
}

fn lost_migration(target: &'static str, source: &'static str) -> impl Fn(&str, &Job) -> Canned + Send + Sync {
    move |line: &str, _: &Job| match line {
        _ if line.contains("/migrate") => ends(Ending::Lost("host1: broken".to_owned())),
        _ if line.contains("host2 vmm/kvm/poll") => good(target),
        _ if line.contains("host1 vmm/kvm/poll") => good(source),
        _ => good(""),
    }
}

#[tokio::test]
async fn a_lost_migration_is_judged_by_where_the_vm_is() {
    let ran = run(26, lost_migration("STATE=a", "STATE=d")).await;
    assert_eq!(success(&ran), "-", "it runs on the target");
    assert!(scripts(&ran).contains(&"local tm/dummy/postmigrate".to_owned()));

    let ran = run(26, lost_migration("STATE=d", "STATE=a")).await;
    assert_eq!(failure(&ran), "host1: broken");
    assert_eq!(scripts(&ran).last().map(String::as_str), Some("~ local tm/dummy/failmigrate"));

    let ran = run(26, lost_migration("", "STATE=a")).await;
    assert!(failure(&ran).contains("look at host1 and host2; nothing was undone"), "{}", failure(&ran));
    assert!(!ran.lines.iter().any(|line| line.contains("failmigrate") || line.contains("/clean")));
}

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
