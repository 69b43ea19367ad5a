//! Starting, stopping, moving: order, answers, roll-back, what is left when things fail.

use std::time::Duration;

use kvmad::host::job::{Ending, Job};
use kvmad::mad::actions::Severity;
use kvmad::vmm::execute::Limits;

use super::carried::{Ran, deploy, failure, front_end, planned, run, run_deploy, run_in, scripts, success};
use super::recorder::{Canned, Fake, bad, ends, good};

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
async fn a_guest_that_ran_before_is_not_destroyed_when_post_fails() {
    let ran = run_deploy(|line, job| match line {
        // as the contract in docs/actions.md has it
        _ if line.contains("kvm/deploy") => {
            assert!(job.env.contains(&("KVMAD_WHERE".to_owned(), "yes".to_owned())), "{:?}", job.env);
            good(&format!("RAN=before\n{UUID}\n"))
        }
        _ if line.contains("/post") => bad(1, "no tap"),
        _ => good(""),
    })
    .await;
    assert_eq!(failure(&ran), "dummy: no tap (exit code 1)");
    assert!(!ran.lines.iter().any(|line| line.starts_with('~')), "{:?}", ran.lines);
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

#[tokio::test]
async fn a_target_is_brought_up_to_date_before_the_source_works_with_it_and_need_not_be_reachable() {
    let ran = run(26, |_, _| good("")).await;
    assert_eq!(success(&ran), "-");
    assert_eq!(scripts(&ran)[2], "host1 vmm/kvm/migrate");
    assert_eq!(*ran.fake.readied.lock().expect("lock"), [("host2".to_owned(), 2)]);
    let text = "host host2 was not brought up to date before migrate: no way there";
    assert!(ran.log.has(Severity::Warning, text), "{:?}", ran.log.texts());

    let dir = front_end();
    let one_host = planned(26, |text| text.replace("<MIGR_HOST>host2", "<MIGR_HOST>host1"));
    let ran = run_in(dir.path(), &one_host, Fake::new(|_, _| good("")), Limits::default()).await;
    assert_eq!(*ran.fake.readied.lock().expect("lock"), [], "the source is up to date");
}

/// As [`run`], where a host that gives no answer is asked again for `settle` only.
async fn run_settling(
    settle: Duration,
    decide: impl Fn(&str, &Job) -> Canned + Send + Sync + 'static,
) -> Ran {
    let dir = front_end();
    let limits = Limits { settle, ..Limits::default() };
    run_in(dir.path(), &planned(26, |text| text), Fake::new(decide), limits).await
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

    let dir = front_end();
    let one_host = planned(26, |text| text.replace("<MIGR_HOST>host2", "<MIGR_HOST>host1"));
    let fake = Fake::new(|line, _| {
        if line.contains("/migrate") { ends(Ending::Lost("host1: broken".to_owned())) } else { good("") }
    });
    let ran = run_in(dir.path(), &one_host, fake, Limits::default()).await;
    assert!(failure(&ran).contains("nothing was undone"), "{}", failure(&ran));
    assert!(!ran.lines.iter().any(|line| line.contains("failmigrate")));

    let ran = run(26, lost_migration("RUNS=yes STATE=a USEDCPU=1.0", "")).await;
    assert_eq!(success(&ran), "-", "it runs on the target, whatever the source would say");
    let warning = "host1: broken; but the VM runs where migrate brings it; host host1 could not be asked";
    assert!(ran.log.texts().iter().any(|text| text.starts_with(warning)), "{:?}", ran.log.texts());

    let ran = run_settling(Duration::ZERO, lost_migration("STATE=a", "")).await;
    assert!(failure(&ran).contains("nothing was undone"), "it may still be on its way: {}", failure(&ran));

    let ran = run_settling(Duration::ZERO, lost_migration("", "STATE=a")).await;
    assert!(failure(&ran).contains("look at host1 and host2; nothing was undone"), "{}", failure(&ran));
    assert!(!ran.lines.iter().any(|line| line.contains("failmigrate") || line.contains("/clean")));
}

/// The target gets the VM after some looks: the source noticed the silence only then.
#[tokio::test]
async fn a_source_that_fell_silent_may_still_migrate_for_a_moment() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let migrates_late = |lost: fn(String) -> Ending| {
        let looks = AtomicU32::new(0);
        move |line: &str, _: &Job| match line {
            _ if line.contains("/migrate") => ends(lost("host1: no sign of life for 45 s".to_owned())),
            _ if line.contains("host2 vmm/kvm/poll") => {
                let arrived = looks.fetch_add(1, Ordering::Relaxed) >= 2;
                good(if arrived { "RUNS=yes STATE=a" } else { "STATE=d" })
            }
            _ if line.contains("host1 vmm/kvm/poll") => good("STATE=d"),
            _ => good(""),
        }
    };
    let ran = run(26, migrates_late(Ending::Silent)).await;
    assert_eq!(success(&ran), "-", "it arrived in the end");

    let ran = run(26, migrates_late(Ending::Lost)).await;
    assert!(failure(&ran).contains("no sign of life"), "a closed connection ends the script at once");

    let never = |line: &str, _: &Job| match line {
        _ if line.contains("/migrate") => ends(Ending::Silent("host1: no sign of life".to_owned())),
        _ if line.contains("vmm/kvm/poll") => good("STATE=d"),
        _ => good(""),
    };
    let ran = run_settling(Duration::from_millis(1500), never).await;
    assert_eq!(failure(&ran), "host1: no sign of life");
    assert_eq!(scripts(&ran).last().map(String::as_str), Some("~ local tm/dummy/failmigrate"));
}

#[tokio::test]
async fn a_host_that_gives_no_answer_while_the_domain_comes_or_goes_is_asked_again() {
    use std::sync::atomic::{AtomicU32, Ordering};
    // libvirt of both hosts answers nothing `silent` times, then the domain is at the target
    let recovers = |silent: u32| {
        let looks = AtomicU32::new(0);
        move |line: &str, _: &Job| match line {
            _ if line.contains("/migrate") => ends(Ending::Signaled(9)),
            _ if line.contains("vmm/kvm/poll") && looks.fetch_add(1, Ordering::Relaxed) < silent => {
                bad(1, "libvirt did not answer")
            }
            _ if line.contains("host2 vmm/kvm/poll") => good("RUNS=yes STATE=a"),
            _ if line.contains("host1 vmm/kvm/poll") => good("STATE=d"),
            _ => good(""),
        }
    };
    for silent in [1, 2] {
        let ran = run(26, recovers(silent)).await;
        assert_eq!(success(&ran), "-", "{silent}");
    }
    let ran = run_settling(Duration::from_millis(1500), recovers(u32::MAX)).await;
    assert!(failure(&ran).contains("not known where the VM runs"), "{}", failure(&ran));
}

#[tokio::test]
async fn a_migration_that_goes_on_without_its_script_is_waited_for() {
    use std::sync::atomic::{AtomicU32, Ordering};
    // `moving` looks at the source, then it has left it
    let goes_on = |moving: u32, target: &'static str, source: &'static str| {
        let looks = AtomicU32::new(0);
        move |line: &str, _: &Job| match line {
            _ if line.contains("/migrate") => ends(Ending::Signaled(9)),
            _ if line.contains("host2 vmm/kvm/poll") => {
                good(if looks.load(Ordering::Relaxed) < moving { "STATE=d" } else { target })
            }
            _ if line.contains("host1 vmm/kvm/poll") && looks.fetch_add(1, Ordering::Relaxed) < moving => {
                good("MOVES=yes RUNS=yes STATE=a")
            }
            _ if line.contains("host1 vmm/kvm/poll") => good(source),
            _ => good(""),
        }
    };
    let ran = run(26, goes_on(2, "RUNS=yes STATE=a", "STATE=d")).await;
    assert_eq!(success(&ran), "-", "it arrived in the end");
    let ran = run(26, goes_on(2, "STATE=d", "RUNS=yes STATE=a")).await;
    assert!(failure(&ran).contains("signal"), "{}", failure(&ran));
    assert_eq!(scripts(&ran).last().map(String::as_str), Some("~ local tm/dummy/failmigrate"));
}
