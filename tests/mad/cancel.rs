//! DRIVER_CANCEL, and requests that end or stop others.

use std::time::{Duration, Instant};

use crate::harness::{Driver, setup};

#[test]
fn a_cancelled_request_is_ended_logged_and_not_answered() {
    for cancel in ["DRIVER_CANCEL 1", "DRIVER_CANCEL  1 ", " driver_cancel 1\r"] {
        let mut driver = Driver::ready(true);
        driver.send("SHUTDOWN  1 h hang 30");
        driver.until("+1 SHUTDOWN");
        driver.send(cancel);
        assert_eq!(driver.line(), "LOG I 1 Driver command for 1 cancelled", "{cancel:?}");
        driver.until("-1 SHUTDOWN");
        driver.send("CANCEL  1 h echo gone");
        assert_eq!(driver.reply(), "CANCEL SUCCESS 1 gone");
        assert!(driver.replies_now().is_empty());
    }
}

#[test]
fn queued_requests_are_dropped_and_others_served() {
    let mut driver = Driver::ready(false);
    driver.send("SAVE  1 h sleep 100");
    driver.until("+1 SAVE");
    driver.send("REBOOT  2 h echo");
    driver.send("RESET  2 h echo");
    driver.send("UPDATESG  2 h echo updated");
    driver.send("REBOOT  3 h echo other");
    driver.send("DRIVER_CANCEL  2 ");
    let mut replies: Vec<String> = (0..3).map(|_| driver.reply()).collect();
    replies.sort();
    assert_eq!(replies, ["REBOOT SUCCESS 3 other", "SAVE SUCCESS 1 slept", "UPDATESG SUCCESS 2 101 updated"]);
    assert!(driver.replies_now().is_empty());
    assert!(!driver.record().iter().any(|entry| entry.contains("2 RE")), "{:?}", driver.record());
}

#[test]
fn an_unknown_or_idle_id_is_nothing() {
    let mut driver = Driver::start(setup(1, true));
    for _ in 0..20 {
        driver.send("DRIVER_CANCEL  77 ");
        driver.send("DRIVER_CANCEL nonsense");
    }
    // Slots are not counted wrongly by it: still one at a time.
    driver.send("SAVE  1 h sleep 20");
    driver.send("SAVE  2 h sleep 20");
    assert_eq!(driver.reply(), "SAVE SUCCESS 1 slept");
    assert_eq!(driver.reply(), "SAVE SUCCESS 2 slept");
    assert_eq!(driver.record(), ["+1 SAVE", "-1 SAVE", "+2 SAVE", "-2 SAVE"]);
}

#[test]
fn after_a_cancel_no_reply_comes_even_if_it_was_ready() {
    let mut driver = Driver::ready(true);
    let mut answered = 0;
    for round in 0..400u64 {
        driver.send(&format!("SHUTDOWN  {round} h sleep {}", round % 3));
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_micros(round * 10));
        }
        driver.send(&format!("DRIVER_CANCEL  {round} "));
        // Whatever is answered to what comes behind the cancel is behind it on the line too.
        driver.send(&format!("CANCEL  {round} h echo"));
        loop {
            match driver.line() {
                line if line == format!("CANCEL SUCCESS {round} ") => break,
                line if line.starts_with("LOG ") => {}
                line => {
                    assert!(line.starts_with(&format!("SHUTDOWN SUCCESS {round} ")), "{line}");
                    answered += 1;
                }
            }
        }
    }
    assert!(driver.replies_now().is_empty());
    assert!(answered < 400);
}

#[test]
fn a_reply_that_nobody_has_read_yet_is_taken_back() {
    // The pipe is full, so the reply to SHUTDOWN waits in the driver when the cancel comes.
    let mut driver = Driver::unread(setup(15, true));
    driver.send(&format!("SAVE  9 h logs 100 {}", 4000));
    driver.until("-9 SAVE");
    driver.send("SHUTDOWN  1 h fail no");
    driver.send("UPDATESG  1 h echo kept");
    driver.until("-1 UPDATESG");
    std::thread::sleep(Duration::from_millis(50));
    driver.send("DRIVER_CANCEL  1 ");
    driver.send("CANCEL  1 h echo");
    driver.until("-1 CANCEL");
    driver.read();
    let replies: Vec<String> = (0..3).map(|_| driver.reply()).collect();
    assert_eq!(replies, ["SAVE SUCCESS 9 logged", "UPDATESG SUCCESS 1 101 kept", "CANCEL SUCCESS 1 "]);
    assert!(driver.replies_now().is_empty());
}

#[test]
fn cancel_and_cleanup_end_what_runs_without_a_cancel_line() {
    for verb in ["CANCEL", "CLEANUP"] {
        let mut driver = Driver::ready(false);
        driver.send("SHUTDOWN  1 h hang 30");
        driver.until("+1 SHUTDOWN");
        driver.send("REBOOT  1 h echo queued");
        driver.send(&format!("{verb}  1 h echo done"));
        assert_eq!(driver.reply(), format!("{verb} SUCCESS 1 done"));
        assert!(driver.replies_now().is_empty());
        let ended = format!("+1 {verb}");
        assert_eq!(driver.record()[..3], ["+1 SHUTDOWN", "-1 SHUTDOWN", ended.as_str()]);
    }
}

#[test]
fn an_ending_request_does_not_wait_for_ever() {
    let mut hasty = setup(1, false);
    hasty.overtake_wait = Duration::from_millis(300);
    let mut driver = Driver::start(hasty);
    driver.send("SHUTDOWN  1 h hang 3000");
    driver.until("+1 SHUTDOWN");
    let start = Instant::now();
    driver.send("CANCEL  1 h echo done");
    assert_eq!(driver.line(), "LOG I 1 CANCEL ends earlier actions");
    assert_eq!(driver.line(), "LOG W 1 CANCEL goes on although SHUTDOWN has not ended yet");
    assert_eq!(driver.reply(), "CANCEL SUCCESS 1 done");
    assert!(start.elapsed() >= Duration::from_millis(300) && start.elapsed() < Duration::from_secs(2));
    // What was given up holds nothing any more.
    driver.send("SAVE  2 h echo free");
    assert_eq!(driver.reply(), "SAVE SUCCESS 2 free");
    driver.until("-1 SHUTDOWN");
    assert!(driver.replies_now().is_empty());
}

#[test]
fn ending_requests_find_a_slot_when_all_are_taken() {
    let mut driver = Driver::start(setup(2, true));
    for vm in 1..=4 {
        driver.send(&format!("MIGRATE  {vm} h{vm} sleep 400"));
    }
    driver.until("+2 MIGRATE");
    driver.send("CANCEL  50 h echo now");
    assert_eq!(driver.reply(), "CANCEL SUCCESS 50 now");
}

#[test]
fn a_backup_that_is_stopped_is_answered() {
    let mut driver = Driver::ready(false);
    driver.send("BACKUP  1 h hang 30");
    driver.until("+1 BACKUP");
    driver.send("BACKUPCANCEL  1 h echo");
    let mut replies = vec![driver.reply(), driver.reply()];
    replies.sort();
    assert_eq!(replies, ["BACKUP FAILURE 1 rolled back", "BACKUPCANCEL SUCCESS 1 "]);
    assert!(driver.replies_now().is_empty());
}

#[test]
fn a_backup_that_is_stopped_is_answered_before_the_cleanup_that_follows() {
    let mut driver = Driver::ready(false);
    driver.send("BACKUP  1 h hang 100");
    driver.until("+1 BACKUP");
    driver.send("BACKUPCANCEL  1 h sleep 2000");
    driver.send("CLEANUP  1 h echo");
    assert_eq!(driver.reply(), "BACKUP FAILURE 1 rolled back");
    assert_eq!(driver.reply(), "CLEANUP SUCCESS 1 ");
}

#[test]
fn a_backup_that_has_not_begun_is_answered_when_it_is_stopped() {
    let mut driver = Driver::ready(false);
    driver.send("SAVE  2 h sleep 300");
    driver.until("+2 SAVE");
    driver.send("BACKUP  1 h echo never");
    driver.send("BACKUPCANCEL  1 h echo");
    assert_eq!(driver.reply(), "BACKUP FAILURE 1 BACKUP was ended before it began: BACKUPCANCEL");
    assert_eq!(driver.reply(), "BACKUPCANCEL SUCCESS 1 ");
    assert_eq!(driver.reply(), "SAVE SUCCESS 2 slept");
}

#[test]
fn a_backup_ended_by_driver_cancel_is_not_answered() {
    let mut driver = Driver::ready(true);
    driver.send("BACKUP  1 h hang 10");
    driver.until("+1 BACKUP");
    driver.send("DRIVER_CANCEL  1 ");
    driver.until("-1 BACKUP");
    assert!(driver.replies_now().is_empty());
}
