//! Every form of a line, and what is answered to it.

use std::io::Read;
use std::time::{Duration, Instant};

use kvmad::mad::End;

use crate::harness::{Driver, MOMENT, setup};

/// Sends one line to a fresh driver and gives all it says until FINALIZE is obeyed.
fn answers(line: &str) -> Vec<String> {
    let mut driver = Driver::start(setup(15, true));
    driver.send_bytes(line.as_bytes());
    driver.send_bytes(b"\nFINALIZE\n");
    assert_eq!(driver.end(), End::Finalized, "{line:?}");
    driver.rest(MOMENT)
}

#[test]
fn init_is_answered_with_exactly_17_bytes_in_one_piece_and_nothing_follows() {
    let mut driver = Driver::unread(setup(15, true));
    driver.send("INIT");
    let mut output = driver.raw_output();
    // oned from 6.0 reads once, at most 31 bytes.
    let mut buffer = [0; 31];
    let count = output.read(&mut buffer).expect("readable");
    assert_eq!(&buffer[..count], b"INIT SUCCESS - -\n");
    // A line that can't be read makes a LOG line, which waits for the first request.
    driver.send("???");
    std::thread::sleep(MOMENT);
    driver.send("REBOOT  1 h echo");
    let mut text = String::new();
    driver.input.take();
    output.read_to_string(&mut text).expect("readable");
    assert!(text.starts_with("LOG W -1 a line can't be answered"), "{text}");
    assert!(text.contains("\nREBOOT "), "{text}");
}

#[test]
fn a_driver_that_can_not_serve_says_so_within_31_bytes_and_refuses() {
    let mut refusing = setup(15, true);
    refusing.fault = Some("idle in kvmad.conf: /etc/one/kvmad.conf, line 3: nonsense".to_owned());
    let mut driver = Driver::start(refusing);
    driver.send("INIT");
    let line = driver.line();
    assert!(line.starts_with("INIT FAILURE - idle in ") && line.len() < 31, "{line}");
    driver.send("DEPLOY  1 h echo");
    assert!(driver.reply().contains("DEPLOY FAILURE 1 idle in kvmad.conf: /etc/one/kvmad.conf, line 3"));
}

#[test]
fn every_form_of_a_request_is_served() {
    for line in [
        "DEPLOY 7 h echo one-7\n",
        "DEPLOY  7 h echo one-7 \n",
        "  DEPLOY 7 h echo one-7\n",
        "DEPLOY 7 h echo one-7\r\n",
        "\tdeploy\t7   h  echo\tone-7\n",
        "\n\r\n  \nDEPLOY 7 h echo one-7\n",
    ] {
        assert_eq!(answers(line), ["DEPLOY SUCCESS 7 one-7"], "{line:?}");
    }
}

#[test]
fn a_last_line_without_newline_is_answered() {
    let mut driver = Driver::ready(true);
    driver.send_bytes(b"DEPLOY 7 h echo one-7");
    driver.input.take();
    let reply = driver.reply();
    assert!(reply.starts_with("DEPLOY SUCCESS 7 one-7") || reply.starts_with("DEPLOY FAILURE 7 "), "{reply}");
    assert_eq!(driver.end(), End::InputClosed);
}

#[test]
fn what_can_not_be_served_is_refused_with_a_reason() {
    for (line, reply) in [
        ("NOSUCH 7 x y\n", "NOSUCH FAILURE 7 NOSUCH is no verb that this driver knows"),
        ("NOSUCH  7\n", "NOSUCH FAILURE 7 NOSUCH is no verb that this driver knows"),
        ("DEPLOY  7\n", "DEPLOY FAILURE 7 the payload is missing"),
        ("DEPLOY 7 h refuse\n", "DEPLOY FAILURE 7 refused; as asked"),
        ("DEPLOY 7 h fail\n", "DEPLOY FAILURE 7 -"),
        ("UPDATESG 7 h fail no\n", "UPDATESG FAILURE 7 101 no"),
        (
            "DEPLOY 7 h panic\n",
            "DEPLOY FAILURE 7 the driver failed inside while serving DEPLOY (a fault of kvmad): as asked",
        ),
        (
            "DEPLOY 7 h panic-early\n",
            "DEPLOY FAILURE 7 the driver failed inside while serving DEPLOY (a fault of kvmad): early",
        ),
    ] {
        assert_eq!(answers(line), [reply], "{line:?}");
    }
}

#[test]
fn a_line_without_verb_or_id_gets_a_log_line_that_never_names_vm_0() {
    for (line, log) in
        [("REBOOT 1 h echo\nDEPLOY\n", "LOG W - "), ("REBOOT  1 h echo\n12 DEPLOY\n", "LOG W -1 ")]
    {
        let answers = answers(line);
        assert_eq!(answers.len(), 2, "{answers:?}");
        assert!(answers.iter().any(|answer| answer.starts_with(log)), "{answers:?}");
    }
}

#[test]
fn garbage_never_ends_the_driver() {
    let mut driver = Driver::ready(true);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for length in 0..2000usize {
        let mut line: Vec<u8> = (0..length % 97)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[3]
            })
            .filter(|byte| *byte != b'\n')
            .collect();
        if length % 3 == 0 {
            line.splice(0..0, *b"DEPLOY  ");
        }
        line.push(b'\n');
        driver.send_bytes(&line);
    }
    driver.send("SAVE  99 h echo alive");
    while driver.reply() != "SAVE SUCCESS 99 alive" {}
}

#[test]
fn a_line_of_64_mb_is_served() {
    let mut driver = Driver::ready(true);
    let text = "x".repeat(64 << 20);
    driver.send(&format!("DEPLOY  7 h echo {text}"));
    let reply = driver.reply();
    assert!(reply.starts_with("DEPLOY SUCCESS 7 xxx") && reply.ends_with("x ..."));
    assert!(reply.len() < 5000, "{}", reply.len());
}

#[test]
fn a_line_beyond_the_limit_is_refused_and_the_next_served() {
    let mut small = setup(15, true);
    small.request_limit = 1 << 20;
    let mut driver = Driver::start(small);
    driver.send(&format!("DEPLOY  7 h echo {}", "x".repeat(3 << 20)));
    assert!(driver.reply().starts_with("DEPLOY FAILURE 7 the request has 3145745 bytes"));
    driver.send("SAVE  7 h echo ok");
    assert_eq!(driver.reply(), "SAVE SUCCESS 7 ok");
}

#[test]
fn text_of_scripts_can_not_forge_lines() {
    let mut driver = Driver::ready(true);
    driver.send("DEPLOY  7 h echo one-7\\nCANCEL SUCCESS 8 -\\n\\nLOG I 3 x");
    assert_eq!(driver.reply(), "DEPLOY SUCCESS 7 one-7; CANCEL SUCCESS 8 -; LOG I 3 x");
    driver.send("DEPLOY  7 h fail bad\\nLOG E 1 forged");
    assert_eq!(driver.reply(), "DEPLOY FAILURE 7 bad; LOG E 1 forged");
}

#[test]
fn finalize_takes_no_more_and_finishes_what_runs() {
    let mut driver = Driver::ready(true);
    driver.send("SAVE  1 h sleep 300");
    driver.send("REBOOT  1 h echo queued");
    driver.until("+1 SAVE");
    driver.send("FINALIZE");
    driver.send("SAVE  2 h echo late");
    assert_eq!(
        driver.reply(),
        "REBOOT FAILURE 1 REBOOT was ended before it began: the driver is ending (FINALIZE)"
    );
    assert_eq!(driver.reply(), "SAVE FAILURE 2 the driver is ending (FINALIZE)");
    assert_eq!(driver.reply(), "SAVE SUCCESS 1 slept");
    assert_eq!(driver.end(), End::Finalized);
}

#[test]
fn when_stdin_ends_the_driver_ends_within_a_second_and_what_runs_is_ended() {
    let mut driver = Driver::ready(true);
    driver.send("SAVE  1 h hang 50");
    driver.send("SAVE  2 h hang 60000");
    driver.send("REBOOT  1 h echo queued");
    driver.until("+2 SAVE");
    let start = Instant::now();
    driver.input.take();
    assert_eq!(driver.end(), End::InputClosed);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let mut replies = driver.rest(MOMENT);
    replies.sort();
    assert_eq!(replies.len(), 3, "{replies:?}");
    assert!(replies[0].starts_with("REBOOT FAILURE 1 REBOOT was ended before it began"), "{replies:?}");
    assert_eq!(replies[1], "SAVE FAILURE 1 rolled back");
    assert!(replies[2].starts_with("SAVE FAILURE 2 oned closed the connection"), "{replies:?}");
}
