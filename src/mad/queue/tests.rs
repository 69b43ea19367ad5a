use super::*;
use proptest::prelude::*;

const SERIAL: Limits = Limits { slots: 4, extra: 2, parallel: false, share: 1 };
const PARALLEL: Limits = Limits { slots: 8, extra: 2, parallel: true, share: 2 };

/// A queue that numbers what is put in.
struct Bench {
    queue: Queue,
    next: u64,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        Self { queue: Queue::new(limits), next: 0 }
    }

    fn put(&mut self, verb: &str, subject: i64, places: &[&str], overtake: Overtake) -> (u64, Accepted) {
        self.next += 1;
        let keys = Keys { subject, places: places.iter().map(|place| (*place).to_owned()).collect() };
        (self.next, self.queue.accept(self.next, verb, None, keys, overtake, |_| true))
    }

    fn wait(&mut self, subject: i64, place: &str) -> u64 {
        self.put(&format!("V{}", self.next), subject, &[place], Overtake::Wait).0
    }

    fn started(&mut self) -> Vec<u64> {
        self.queue.pick().1
    }
}

fn ended(queued: &[u64], running: &[u64]) -> Accepted {
    Accepted::Queued(Ended { queued: queued.to_vec(), running: running.to_vec() })
}

#[test]
fn no_more_run_than_there_are_slots() {
    let mut bench = Bench::new(SERIAL);
    let all: Vec<u64> = (0..6).map(|i| bench.wait(i, &format!("h{i}"))).collect();
    assert_eq!(bench.started(), all[..4]);
    assert!(bench.started().is_empty());
    bench.queue.finished(all[1]);
    assert_eq!(bench.started(), [all[4]]);
}

#[test]
fn without_parallel_mode_a_host_runs_one_and_the_order_is_kept() {
    let mut bench = Bench::new(SERIAL);
    let (a, b, c) = (bench.wait(1, "h"), bench.wait(2, "h"), bench.wait(3, "other"));
    assert_eq!(bench.started(), [a, c]);
    bench.queue.finished(a);
    assert_eq!(bench.started(), [b]);
}

#[test]
fn without_parallel_mode_both_hosts_of_a_migration_are_taken_and_it_is_not_passed_by() {
    let mut bench = Bench::new(SERIAL);
    let on_b = bench.wait(1, "b");
    let (migration, _) = bench.put("MIGRATE", 2, &["a", "b"], Overtake::Wait);
    let on_a = bench.wait(3, "a");
    assert_eq!(bench.started(), [on_b]);
    bench.queue.finished(on_b);
    assert_eq!(bench.started(), [migration]);
    bench.queue.finished(migration);
    assert_eq!(bench.started(), [on_a]);
}

#[test]
fn one_action_per_subject_in_parallel_mode_too() {
    let mut bench = Bench::new(PARALLEL);
    let (a, b, other) = (bench.wait(1, "h"), bench.wait(1, "i"), bench.wait(2, "h"));
    assert_eq!(bench.started(), [a, other]);
    bench.queue.finished(a);
    assert_eq!(bench.started(), [b]);
}

#[test]
fn a_host_holds_its_share_while_others_wait_and_all_slots_when_alone() {
    let mut bench = Bench::new(PARALLEL);
    for i in 0..20 {
        bench.wait(i, "a");
    }
    let b = bench.wait(100, "b");
    let started = bench.started();
    assert_eq!(started.len(), 8);
    assert!(started.contains(&b), "{started:?}");
    let mut alone = Bench::new(PARALLEL);
    for i in 0..20 {
        alone.wait(i, "a");
    }
    assert_eq!(alone.started().len(), 8);
    // The next free slots go to those below their share.
    let b: Vec<u64> = (0..3).map(|i| alone.wait(100 + i, "b")).collect();
    alone.queue.finished(1);
    alone.queue.finished(2);
    alone.queue.finished(3);
    assert_eq!(alone.started(), [b[0], b[1], 9]);
}

#[test]
fn a_host_that_took_all_slots_while_it_was_alone_keeps_nobody_else_waiting() {
    let mut bench = Bench::new(PARALLEL);
    for i in 0..20 {
        bench.wait(i, "hangs");
    }
    assert_eq!(bench.started().len(), 8);
    let others: Vec<u64> = (20..26).map(|i| bench.wait(i, "quick")).collect();
    assert_eq!(bench.started(), others[..2], "its share, although no slot is free");
    assert_eq!(bench.started(), [0u64; 0], "and the other one gets no more");
}

#[test]
fn a_request_that_waits_for_a_connection_holds_no_slot() {
    let limits = Limits { slots: 1, ..PARALLEL };
    let mut bench = Bench::new(limits);
    let (a, b) = (bench.wait(1, "dead"), bench.wait(2, "alive"));
    assert_eq!(bench.started(), [a]);
    bench.queue.waiting(a);
    assert_eq!(bench.started(), [b]);
    assert!(!bench.queue.ready(a, "dead"));
    assert_eq!(bench.queue.pick(), (vec![], vec![]));
    bench.queue.finished(b);
    assert_eq!(bench.queue.pick(), (vec![a], vec![]));
    assert!(bench.queue.ready(a, "dead"), "it holds its slot already");
}

#[test]
fn a_host_that_does_not_answer_holds_one_slot_until_it_answers() {
    let mut bench = Bench::new(PARALLEL);
    bench.queue.unreachable("h");
    let (a, b) = (bench.wait(1, "h"), bench.wait(2, "h"));
    assert_eq!(bench.started(), [a]);
    assert!(bench.started().is_empty());
    bench.queue.ready(a, "h");
    assert_eq!(bench.started(), [b]);
}

#[test]
fn the_same_verb_again_joins_and_another_waits() {
    let mut bench = Bench::new(PARALLEL);
    let (first, _) = bench.put("SAVE", 1, &["h"], Overtake::Wait);
    bench.started();
    assert_eq!(bench.put("SAVE", 1, &["h"], Overtake::Wait).1, Accepted::Joined(first));
    assert_eq!(bench.put("SAVE", 2, &["h"], Overtake::Wait).1, ended(&[], &[]));
    assert_eq!(bench.put("REBOOT", 1, &["h"], Overtake::Wait).1, ended(&[], &[]));
    // Behind another verb it is not the same request any more.
    assert_eq!(bench.put("SAVE", 1, &["h"], Overtake::Wait).1, ended(&[], &[]));
}

#[test]
fn nothing_joins_a_request_that_is_cancelled_answered_spared_or_runs_each_time() {
    let mut bench = Bench::new(PARALLEL);
    bench.put("SAVE", 1, &["h"], Overtake::Wait);
    bench.started();
    bench.queue.cancel(1);
    assert_eq!(bench.put("SAVE", 1, &["h"], Overtake::Wait).1, ended(&[], &[]));
    for overtake in [Overtake::Each, Overtake::Spared] {
        bench.put("X", 3, &["h"], overtake);
        assert_eq!(bench.put("X", 3, &["h"], overtake).1, ended(&[], &[]), "{overtake:?}");
    }
    let keys = Keys { subject: 4, places: vec![] };
    bench.queue.accept(100, "SAVE", None, keys.clone(), Overtake::Wait, |_| true);
    let answered = bench.queue.accept(101, "SAVE", None, keys, Overtake::Wait, |_| false);
    assert_eq!(answered, ended(&[], &[]));
}

#[test]
fn an_ending_request_ends_earlier_ones_and_waits_for_those_that_run() {
    let mut bench = Bench::new(SERIAL);
    let (shutdown, _) = bench.put("SHUTDOWN", 1, &["h"], Overtake::Wait);
    assert_eq!(bench.started(), [shutdown]);
    let (queued, _) = bench.put("REBOOT", 1, &["h"], Overtake::Wait);
    let (other, _) = bench.put("DEPLOY", 2, &["h"], Overtake::Wait);
    let (cancel, accepted) = bench.put("CANCEL", 1, &["h"], Overtake::End);
    assert_eq!(accepted, ended(&[queued], &[shutdown]));
    assert!(bench.started().is_empty());
    bench.queue.finished(shutdown);
    assert_eq!(bench.started(), [cancel], "it goes before others of the host");
    bench.queue.finished(cancel);
    assert_eq!(bench.started(), [other]);
}

#[test]
fn when_time_is_up_the_ended_one_hinders_nobody() {
    let mut bench = Bench::new(SERIAL);
    let (shutdown, _) = bench.put("SHUTDOWN", 1, &["h"], Overtake::Wait);
    bench.started();
    let (cancel, _) = bench.put("CANCEL", 1, &["h"], Overtake::End);
    assert_eq!(bench.queue.abandon_for(cancel), [shutdown]);
    assert_eq!(bench.started(), [cancel]);
    bench.queue.finished(cancel);
    assert!(bench.queue.is_idle());
    bench.queue.finished(shutdown);
    assert!(bench.queue.abandon_for(cancel).is_empty());
}

#[test]
fn two_slots_beyond_the_limit_are_for_ending_and_stopping() {
    let mut bench = Bench::new(PARALLEL);
    for i in 0..10 {
        bench.wait(i, "h");
    }
    assert_eq!(bench.started().len(), 8);
    let cancels: Vec<u64> = (0..3).map(|i| bench.put("CANCEL", 100 + i, &["h"], Overtake::End).0).collect();
    assert_eq!(bench.started(), cancels[..2]);
    bench.queue.finished(cancels[0]);
    assert_eq!(bench.started(), cancels[2..]);
}

#[test]
fn a_cancel_spares_those_that_are_spared() {
    let mut bench = Bench::new(PARALLEL);
    let (running, _) = bench.put("SAVE", 1, &["h"], Overtake::Wait);
    bench.started();
    let (update, _) = bench.put("UPDATESG", 1, &["h"], Overtake::Spared);
    let (queued, _) = bench.put("REBOOT", 1, &["h"], Overtake::Wait);
    assert!(bench.started().is_empty(), "it waits for the subject");
    assert_eq!(bench.queue.cancel(1), Ended { queued: vec![queued], running: vec![running] });
    assert_eq!(bench.queue.cancel(1), Ended::default(), "counted once");
    assert_eq!(bench.queue.cancel(77), Ended::default());
    bench.queue.finished(running);
    assert_eq!(bench.started(), [update]);
}

#[test]
fn a_stopping_request_runs_beside_what_it_stops() {
    let mut bench = Bench::new(SERIAL);
    let (backup, _) = bench.put("BACKUP", 1, &["h"], Overtake::Wait);
    bench.started();
    let (stop, accepted) = bench.put("BACKUPCANCEL", 1, &["h"], Overtake::Stop("BACKUP"));
    assert_eq!(accepted, ended(&[], &[]));
    assert_eq!(bench.started(), [stop]);
    assert_eq!(bench.queue.stoppable(stop, "BACKUP"), [backup]);
    assert_eq!(bench.queue.stop(stop, "BACKUP", true), Ended::default());
    assert_eq!(bench.queue.stop(stop, "BACKUP", false), Ended { queued: vec![], running: vec![backup] });
}

#[derive(Debug, Clone)]
enum Step {
    Put { verb: u8, subject: i64, place: u8, overtake: Overtake },
    Finish(usize),
    Wait(usize),
    Ready(usize),
    Cancel(i64),
    Abandon(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let overtake = prop_oneof![
        6 => Just(Overtake::Wait),
        1 => Just(Overtake::Each),
        1 => Just(Overtake::End),
        1 => Just(Overtake::Spared),
        1 => Just(Overtake::Stop("V0")),
    ];
    let step = prop_oneof![
        5 => (0u8..4, 0i64..5, 0u8..4, overtake)
            .prop_map(|(verb, subject, place, overtake)| Step::Put { verb, subject, place, overtake }),
        5 => any::<usize>().prop_map(Step::Finish),
        2 => any::<usize>().prop_map(Step::Wait),
        2 => any::<usize>().prop_map(Step::Ready),
        1 => (0i64..5).prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Abandon),
    ];
    proptest::collection::vec(step, 0..150)
}

proptest! {
    #[test]
    fn limits_hold_and_nothing_is_stuck_or_lost(steps in steps(), parallel in any::<bool>()) {
        let limits = Limits { slots: 3, extra: 2, parallel, share: 1 };
        let mut bench = Bench::new(limits);
        let mut running: Vec<(u64, i64, bool, Overtake)> = Vec::new();
        let mut waiting: Vec<(u64, i64, Overtake)> = Vec::new();
        for step in steps {
            let at = |index: usize, len: usize| (len > 0).then(|| index % len.max(1));
            match step {
                Step::Put { verb, subject, place, overtake } => {
                    let (serial, accepted) =
                        bench.put(&format!("V{verb}"), subject, &[&format!("h{place}")], overtake);
                    if let Accepted::Queued(ended) = accepted {
                        waiting.retain(|(serial, _, _)| !ended.queued.contains(serial));
                        waiting.push((serial, subject, overtake));
                    }
                }
                Step::Finish(i) => if let Some(i) = at(i, running.len()) {
                    bench.queue.finished(running.remove(i).0);
                },
                Step::Wait(i) => if let Some(i) = at(i, running.len()) {
                    bench.queue.waiting(running[i].0);
                    running[i].2 = false;
                },
                Step::Ready(i) => if let Some(i) = at(i, running.len()) {
                    bench.queue.ready(running[i].0, "h0");
                },
                Step::Cancel(subject) => {
                    let ended = bench.queue.cancel(subject);
                    waiting.retain(|(serial, _, _)| !ended.queued.contains(serial));
                }
                Step::Abandon(i) => if let Some(i) = at(i, waiting.len()) {
                    let gone = bench.queue.abandon_for(waiting[i].0);
                    running.retain(|(serial, ..)| !gone.contains(serial));
                },
            }
            let (granted, started) = bench.queue.pick();
            for (serial, _, holds, _) in &mut running {
                *holds |= granted.contains(serial);
            }
            for serial in started {
                let i = waiting.iter().position(|entry| entry.0 == serial).expect("was waiting");
                let (_, subject, overtake) = waiting.remove(i);
                let beside = |o: Overtake| matches!(o, Overtake::Stop(_));
                let clash = running.iter().any(|(_, s, _, o)| *s == subject && !beside(*o));
                prop_assert!(!clash || beside(overtake), "two run for subject {subject}");
                running.push((serial, subject, true, overtake));
            }
            let holding = running.iter().filter(|entry| entry.2).count();
            // a place may have been lent all slots, those that hurry included, before others came
            let lent = if parallel { limits.slots + limits.extra - limits.share } else { 0 };
            prop_assert!(holding <= limits.slots + limits.extra + lent);
        }
        // Everything that waits gets its turn when what runs ends.
        for _ in 0..10_000 {
            for (serial, ..) in running.drain(..) {
                bench.queue.finished(serial);
            }
            for serial in bench.queue.pick().1 {
                let i = waiting.iter().position(|entry| entry.0 == serial).expect("was waiting");
                let (_, subject, overtake) = waiting.remove(i);
                running.push((serial, subject, true, overtake));
            }
            if running.is_empty() {
                break;
            }
        }
        prop_assert!(waiting.is_empty(), "stuck: {waiting:?}");
        prop_assert!(bench.queue.is_idle());
    }
}
