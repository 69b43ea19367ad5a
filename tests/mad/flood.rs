//! Much at once, and a reader that does not read.

use std::collections::HashSet;
use std::io::Read;
use std::time::Duration;

use crate::harness::{Driver, setup};

#[test]
fn ten_thousand_requests_get_ten_thousand_replies() {
    for parallel in [true, false] {
        let mut driver = Driver::ready(parallel);
        let mut text = String::new();
        for vm in 0..10_000 {
            text.push_str(&format!("SAVE  {vm} h{} echo {vm}\n", vm % 7));
        }
        let mut writer = driver.input.take().expect("open");
        let feeding = std::thread::spawn(move || {
            std::io::Write::write_all(&mut writer, text.as_bytes()).expect("the driver reads");
            writer
        });
        let mut missing: HashSet<String> = (0..10_000).map(|vm| format!("SAVE SUCCESS {vm} {vm}")).collect();
        while !missing.is_empty() {
            let reply = driver.reply();
            assert!(missing.remove(&reply), "{reply}");
        }
        driver.input = Some(feeding.join().expect("fed"));
        assert!(driver.replies_now().is_empty());
    }
}

#[test]
fn a_full_stdout_keeps_no_request_from_being_read_and_nothing_is_lost() {
    let mut driver = Driver::unread(setup(15, true));
    // 2,000 requests of 20 KiB, 40 MB in all, each answered with 1 KiB: far more than the pipe holds.
    let padding = "p".repeat(20 << 10);
    for vm in 0..2000 {
        driver.send(&format!("SAVE  {vm} h bytes 1000 {padding}"));
    }
    driver.until("-1999 SAVE");
    driver.read();
    let mut seen = HashSet::new();
    for _ in 0..2000 {
        let reply = driver.reply();
        assert_eq!(
            reply.len(),
            format!("SAVE SUCCESS {} ", reply.split(' ').nth(2).expect("id")).len() + 1000
        );
        assert!(seen.insert(reply));
    }
}

#[test]
fn log_lines_beyond_the_buffer_are_dropped_and_counted_and_replies_are_not() {
    let mut small = setup(15, true);
    small.log_buffer = 100_000;
    let mut driver = Driver::unread(small);
    driver.send("SAVE  1 h logs 1000 1000");
    driver.until("-1 SAVE");
    for vm in 2..20 {
        driver.send(&format!("SAVE  {vm} h echo"));
        driver.until(&format!("-{vm} SAVE"));
    }
    driver.read();
    let lines = driver.rest(Duration::from_millis(300));
    let logs = lines.iter().filter(|line| line.starts_with("LOG I 1 yyy")).count();
    let told: usize = lines
        .iter()
        .filter_map(|line| {
            line.strip_prefix("LOG W -1 ")?.strip_suffix(" log lines were dropped because they were not read")
        })
        .map(|count| count.parse::<usize>().expect("a number"))
        .sum();
    assert_eq!(logs + told, 1000, "{logs} written, {told} told");
    assert!(told > 500);
    assert_eq!(lines.iter().filter(|line| line.starts_with("SAVE SUCCESS")).count(), 19);
}

#[test]
fn no_line_comes_in_two_pieces_with_a_gap() {
    // oned up to 5.12 kills a driver that pauses for 25 ms within a line: every line must be written in one piece.
    let mut driver = Driver::unread(setup(15, true));
    for vm in 0..50 {
        driver.send(&format!("SAVE  {vm} h bytes {}", 10 * vm));
    }
    let mut output = driver.raw_output();
    let mut buffer = vec![0; 64 << 10];
    let mut replies = 0;
    while replies < 50 {
        let count = output.read(&mut buffer).expect("readable");
        assert_eq!(buffer[count - 1], b'\n', "a read ended within a line");
        replies += buffer[..count].iter().filter(|byte| **byte == b'\n').count();
    }
}
