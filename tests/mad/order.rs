//! Who runs when.

use std::collections::HashMap;

use crate::harness::{Driver, setup};

#[test]
fn without_parallel_mode_a_host_runs_one_at_a_time_in_order() {
    let mut driver = Driver::ready(false);
    for vm in 1..=3 {
        driver.send(&format!("SAVE  {vm} h sleep 30"));
    }
    for vm in 1..=3 {
        assert_eq!(driver.reply(), format!("SAVE SUCCESS {vm} slept"));
    }
    assert_eq!(driver.record(), ["+1 SAVE", "-1 SAVE", "+2 SAVE", "-2 SAVE", "+3 SAVE", "-3 SAVE"]);
}

#[test]
fn one_action_a_vm_at_a_time_in_parallel_mode() {
    let mut driver = Driver::ready(true);
    driver.send("SAVE  1 h sleep 50");
    driver.send("UPDATESG  1 h echo");
    driver.send("EXEC  1 h echo");
    driver.send("EXEC  1 h echo");
    let replies: Vec<String> = (0..4).map(|_| driver.reply()).collect();
    assert_eq!(
        replies,
        ["SAVE SUCCESS 1 slept", "UPDATESG SUCCESS 1 101 ", "EXEC SUCCESS 1 ", "EXEC SUCCESS 1 "]
    );
    let depth = driver.record().into_iter().scan(0, |open, entry| {
        *open += if entry.starts_with('+') { 1 } else { -1 };
        Some(*open)
    });
    assert_eq!(depth.max(), Some(1));
}

#[test]
fn the_same_verb_again_joins_one_run_and_one_reply() {
    let mut driver = Driver::ready(true);
    driver.send("SAVE  1 h sleep 100");
    driver.until("+1 SAVE");
    driver.send("SAVE  1 h sleep 100");
    driver.send("SAVE  1 h sleep 100");
    assert_eq!(driver.reply(), "SAVE SUCCESS 1 slept");
    assert!(driver.replies_now().is_empty());
    assert_eq!(driver.record(), ["+1 SAVE", "-1 SAVE"]);
    driver.send("SAVE  1 h echo again");
    assert_eq!(driver.reply(), "SAVE SUCCESS 1 again");
}

#[test]
fn a_request_sent_after_the_reply_never_joins_it() {
    let mut driver = Driver::ready(true);
    for round in 0..500 {
        driver.send(&format!("RESIZE  1 h echo {round}"));
        assert_eq!(driver.reply(), format!("RESIZE SUCCESS 1 {round}"));
    }
}

#[test]
fn hosts_that_only_wait_for_a_connection_keep_nobody_waiting() {
    let mut driver = Driver::start(setup(2, true));
    for vm in 0..10 {
        driver.send(&format!("SAVE  {vm} dead{vm} connect 700"));
    }
    driver.send("SAVE  100 alive echo hello");
    assert_eq!(driver.reply(), "SAVE SUCCESS 100 hello");
    for _ in 0..10 {
        assert!(driver.reply().ends_with(" connected"));
    }
}

#[test]
fn one_busy_host_leaves_slots_to_the_others() {
    let mut driver = Driver::start(setup(8, true));
    driver.send("SAVE  1000 b sleep 200");
    driver.until("+1000 SAVE");
    for vm in 0..40 {
        driver.send(&format!("SAVE  {vm} a sleep 40"));
    }
    driver.send("SAVE  500 c echo quick");
    // All slots may be taken when it comes; the next free one is for it.
    let mut before = 0;
    while driver.reply() != "SAVE SUCCESS 500 quick" {
        before += 1;
    }
    assert!(before <= 8, "{before} of one host went before another host");
}

#[test]
fn every_request_is_answered_once_whatever_they_are() {
    for parallel in [false, true] {
        let mut driver = Driver::start(setup(3, parallel));
        let ops =
            ["echo a", "fail b", "panic", "refuse", "sleep 1", "lost", "connect 1", "logs 2 10", "nonsense"];
        let mut expected: HashMap<String, usize> = HashMap::new();
        for number in 0..300usize {
            let (vm, host, op) = (number / 2, number % 5, ops[number % ops.len()]);
            let verb = ["EXEC", "POLL", "UPDATESG"][number % 3];
            driver.send(&format!("{verb}  {vm} h{host} {op}"));
            *expected.entry(format!("{verb} {vm}")).or_default() += 1;
        }
        for _ in 0..300 {
            let reply = driver.reply();
            let words: Vec<&str> = reply.split(' ').collect();
            let count = expected.get_mut(&format!("{} {}", words[0], words[2])).expect("asked for");
            *count = count.checked_sub(1).expect("answered once");
        }
        assert!(driver.replies_now().is_empty());
    }
}
