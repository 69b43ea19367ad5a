//! The rules of the table, one test each.

use super::*;

const RUN: (i32, i32) = (1, 1);
const USER_PAUSE: (i32, i32) = (3, 1);
const INCOMING: (i32, i32) = (3, 2);

struct Host {
    table: Table,
    now: Millis,
    busy: bool,
}

impl Host {
    fn new() -> Self {
        Self { table: Table::default(), now: 1000, busy: false }
    }

    /// With VM 7 running and told.
    fn running() -> Self {
        let mut host = Self::new();
        host.look(&[RUN]);
        assert_eq!(host.told(), ["7 RUNNING"]);
        host
    }

    fn event(&mut self, told: &str) {
        let event = Event::parse(&format!("event 'lifecycle' for domain 'one-7': {told}")).expect(told);
        let busy = self.busy;
        self.table.event(&event, &mut |_, _| busy);
    }

    fn look(&mut self, states: &[(i32, i32)]) {
        let sights: Vec<Sight> = states
            .iter()
            .map(|state| Sight { name: "one-7".into(), uuid: "u-7".into(), state: Some(*state) })
            .collect();
        self.table.look(&sights, self.now, 1_000_000 + self.now / 1000, false);
    }

    /// What is told now, and sent.
    fn told(&mut self) -> Vec<String> {
        let busy = self.busy;
        let Some(report) = self.table.report(false, self.now, &mut |_, _| busy) else { return Vec::new() };
        self.table.sent(&report, self.now);
        states(&report.text)
    }

    fn list(&mut self) -> Vec<String> {
        let busy = self.busy;
        let report = self.table.report(true, self.now, &mut |_, _| busy).expect("a list");
        assert!(report.text.starts_with("SYNC_STATE=yes\nMISSING_STATE=POWEROFF\n"));
        self.table.sent(&report, self.now);
        states(&report.text)
    }

    fn wait(&mut self, millis: Millis) {
        self.now += millis;
    }
}

fn states(text: &str) -> Vec<String> {
    let field = |line: &str, name: &str| {
        line.split(&format!("{name}=\"")).nth(1)?.split('"').next().map(str::to_owned)
    };
    text.lines().filter_map(|l| Some(format!("{} {}", field(l, "ID")?, field(l, "STATE")?))).collect()
}

#[test]
fn a_state_is_told_once_and_again_after_35_seconds() {
    let mut host = Host::running();
    host.look(&[RUN]);
    assert!(host.told().is_empty());
    host.wait(34_000);
    host.look(&[RUN]);
    assert!(host.told().is_empty());
    host.wait(1000);
    host.look(&[RUN]);
    assert_eq!(host.told(), ["7 RUNNING"]);
    host.wait(100_000);
    host.look(&[RUN]);
    assert!(host.told().is_empty());
    assert_eq!(host.table.due(host.now), None);
}

#[test]
fn the_text_has_the_recorded_form() {
    let mut host = Host::new();
    host.look(&[RUN]);
    let report = host.table.report(false, 0, &mut |_, _| false).expect("news");
    assert_eq!(report.text, "VM = [ ID=\"7\", DEPLOY_ID=\"u-7\",  STATE=\"RUNNING\" ]\n");
}

#[test]
fn what_was_not_sent_is_told_again() {
    let mut host = Host::new();
    host.look(&[RUN]);
    let first = host.table.report(false, host.now, &mut |_, _| false);
    assert_eq!(host.table.report(false, host.now, &mut |_, _| false), first);
}

#[test]
fn a_vm_whose_process_is_killed_is_off() {
    let mut host = Host::running();
    host.event("Stopped Failed");
    host.look(&[]);
    assert_eq!(host.told(), ["7 POWEROFF"]);
    host.wait(35_000);
    host.look(&[]);
    assert_eq!(host.told(), ["7 POWEROFF"]);
    host.look(&[]);
    assert!(host.table.rows().is_empty());
}

#[test]
fn a_vm_that_starts_again_after_its_end_is_running() {
    let mut host = Host::running();
    host.event("Stopped Shutdown");
    host.look(&[]);
    assert_eq!(host.told(), ["7 POWEROFF"]);
    host.event("Started Booted");
    host.look(&[RUN]);
    assert_eq!(host.told(), ["7 RUNNING"]);
}

#[test]
fn saved_migrated_and_reverted_vms_are_never_off() {
    for why in ["Migrated", "Saved", "Snapshot"] {
        for busy in [false, true] {
            let mut host = Host::running();
            host.busy = busy;
            host.event(&format!("Stopped {why}"));
            host.busy = false;
            for _ in 0..20 {
                host.look(&[]);
                assert!(host.told().is_empty(), "{why}");
                host.wait(6000);
            }
            // By hand: listed, so that its absence is no end. By an action: oned knows.
            let expected: &[&str] = if busy { &[] } else { &["7 UNKNOWN"] };
            assert_eq!(host.list(), expected, "{why} {busy}");
        }
    }
}

#[test]
fn a_defined_domain_tells_its_reason_itself() {
    for (reason, expected) in
        [(1, vec!["7 POWEROFF"]), (6, vec!["7 POWEROFF"]), (4, vec![]), (5, vec![]), (7, vec![])]
    {
        let mut host = Host::running();
        host.look(&[(5, reason)]);
        assert_eq!(host.told(), expected, "{reason}");
    }
}

#[test]
fn one_miss_without_a_word_is_no_end_and_six_are() {
    let mut host = Host::running();
    for _ in 0..5 {
        host.look(&[]);
        host.look(&[]);
        assert!(host.told().is_empty());
        assert_eq!(host.table.due(host.now), Some(host.now + 5000));
        assert_eq!(host.list(), ["7 RUNNING"]);
        host.wait(5000);
    }
    host.look(&[]);
    assert_eq!(host.told(), ["7 POWEROFF"]);
    assert!(host.list().is_empty());

    let mut host = Host::running();
    host.look(&[]);
    host.wait(5000);
    host.look(&[RUN]);
    assert!(host.told().is_empty());
}

#[test]
fn an_incoming_migration_is_no_news_and_its_failure_neither() {
    let mut host = Host::new();
    host.event("Started Migrated");
    host.look(&[INCOMING]);
    assert!(host.told().is_empty());
    assert_eq!(host.list(), ["7 RUNNING"]);
    host.event("Stopped Failed");
    host.look(&[]);
    assert!(host.told().is_empty());
    assert!(host.list().is_empty());

    let mut host = Host::new();
    host.event("Started Migrated");
    host.look(&[INCOMING]);
    host.event("Resumed Migrated");
    host.look(&[RUN]);
    assert_eq!(host.told(), ["7 RUNNING"]);
}

#[test]
fn a_migration_that_the_agent_finds_on_its_start_is_no_news() {
    let mut host = Host::new();
    host.look(&[INCOMING]);
    assert!(host.told().is_empty());
    host.look(&[RUN]);
    assert_eq!(host.told(), ["7 RUNNING"]);
}

#[test]
fn the_source_of_a_migration_stays_running() {
    let mut host = Host::running();
    host.event("Suspended Migrated");
    host.look(&[INCOMING]);
    assert!(host.told().is_empty());
    assert_eq!(host.list(), ["7 RUNNING"]);
}

#[test]
fn a_vm_that_comes_back_by_migration_is_running() {
    let mut host = Host::running();
    host.event("Stopped Migrated");
    host.look(&[]);
    host.event("Started Migrated");
    host.look(&[INCOMING]);
    assert!(host.told().is_empty());
    host.event("Resumed Migrated");
    host.look(&[RUN]);
    assert_eq!(host.told(), ["7 RUNNING"]);
    assert_eq!(host.list(), ["7 RUNNING"]);
}

#[test]
fn a_pause_is_believed_when_it_lasts() {
    let mut host = Host::running();
    host.event("Suspended Paused");
    host.look(&[USER_PAUSE]);
    assert!(host.told().is_empty());
    assert_eq!(host.table.due(host.now), Some(host.now + 2000));
    host.wait(2000);
    host.look(&[USER_PAUSE]);
    assert_eq!(host.told(), ["7 SUSPENDED"]);
    host.event("Resumed Unpaused");
    host.look(&[RUN]);
    assert_eq!(host.told(), ["7 RUNNING"]);
}

#[test]
fn a_short_pause_of_a_snapshot_is_no_news() {
    let mut host = Host::running();
    host.look(&[USER_PAUSE]);
    host.wait(1000);
    host.look(&[RUN]);
    host.wait(1500);
    host.look(&[USER_PAUSE]);
    assert!(host.told().is_empty());
}

#[test]
fn a_paused_vm_is_suspended_in_the_first_look_of_an_agent() {
    let mut table = Table::default();
    let sight = Sight { name: "one-7".into(), uuid: "u".into(), state: Some(USER_PAUSE) };
    table.look(&[sight], 0, 0, true);
    let report = table.report(true, 0, &mut |_, _| false).expect("list");
    assert_eq!(states(&report.text), ["7 SUSPENDED"]);
}

#[test]
fn nothing_is_told_while_an_action_runs_and_the_truth_after_it() {
    let mut host = Host::running();
    host.busy = true;
    host.event("Stopped Shutdown");
    host.look(&[]);
    assert!(host.told().is_empty());
    assert_eq!(host.list(), ["7 RUNNING"]);
    assert!(!host.table.needs_look(host.now, &mut |_, _| true));
    assert_eq!(host.table.due(host.now), Some(host.now + 500));
    host.busy = false;
    assert!(host.table.needs_look(host.now, &mut |_, _| false));
    host.look(&[]);
    assert_eq!(host.told(), ["7 POWEROFF"]);
}

#[test]
fn an_action_that_was_undone_leaves_no_trace() {
    let mut host = Host::running();
    host.busy = true;
    host.event("Suspended Paused");
    host.look(&[USER_PAUSE]);
    host.wait(3000);
    host.look(&[USER_PAUSE]);
    assert!(host.told().is_empty());
    host.busy = false;
    host.look(&[RUN]);
    assert!(host.told().is_empty());
}

#[test]
fn a_state_that_could_not_be_read_changes_nothing() {
    let mut host = Host::running();
    let sight = Sight { name: "one-7".into(), uuid: "u-7".into(), state: None };
    for _ in 0..10 {
        host.table.look(std::slice::from_ref(&sight), host.now, 0, false);
        host.wait(2000);
    }
    assert!(host.told().is_empty());
    assert_eq!(host.list(), ["7 RUNNING"]);
}

#[test]
fn a_failed_start_of_an_unknown_vm_is_no_news() {
    let mut host = Host::new();
    host.event("Stopped Failed");
    host.look(&[]);
    assert!(host.told().is_empty() && host.list().is_empty());
    host.look(&[(5, 6)]);
    assert!(host.told().is_empty() && host.list().is_empty());
}

#[test]
fn other_domains_are_not_ours() {
    let mut host = Host::new();
    let sight = Sight { name: "one-7x".into(), uuid: "u".into(), state: Some(RUN) };
    host.table.look(&[sight], 0, 0, false);
    assert!(host.list().is_empty());
    let event =
        Event::parse("event 'lifecycle' for domain 'one-7': Stopped Failed': Started Booted").expect("event");
    assert!(!host.table.event(&event, &mut |_, _| false));
}

#[test]
fn rows_outlive_the_agent_and_a_vm_lost_meanwhile_is_missed_in_time() {
    let host = Host::running();
    let saved = serde_json::to_string(host.table.rows()).expect("json");
    let rows = serde_json::from_str(&saved).expect("json");
    let mut host = Host { table: Table::new(Rules::default(), rows), now: 0, busy: false };
    host.look(&[]);
    assert_eq!(host.list(), ["7 RUNNING"]);
    for _ in 0..6 {
        host.wait(5000);
        host.look(&[]);
    }
    assert_eq!(host.told(), ["7 POWEROFF"]);
}

#[test]
fn after_trouble_everything_is_told_again() {
    let mut host = Host::running();
    host.table.forget_told();
    host.look(&[RUN]);
    assert_eq!(host.told(), ["7 RUNNING"]);
}

#[test]
fn a_fault_of_storage_is_a_failure_and_its_mend_running() {
    let mut host = Host::running();
    host.event("Suspended I/O Error");
    host.look(&[(3, 5)]);
    assert_eq!(host.told(), ["7 FAILURE"]);
    host.look(&[RUN]);
    assert_eq!(host.told(), ["7 RUNNING"]);
}
