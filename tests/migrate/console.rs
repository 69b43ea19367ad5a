//! What the guest said on its serial console, across hosts: each host has a log of its own, to which the guest appends
//! while it is there.

use std::fs;
use std::path::PathBuf;

use crate::harness::bed;

/// A stay of the guest on a host: where its words begin in the host's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stay {
    /// The host.
    pub host: String,
    /// Length of the log when the guest came.
    pub from: usize,
}

/// The log of domain `name` on `host`, as the machine can open it.
pub fn log(name: &str, host: &str) -> PathBuf {
    bed::host_path(host, format!("/var/log/libvirt/qemu/{name}-serial.log"))
}

/// Length of that log; 0 when there is none.
pub fn length(name: &str, host: &str) -> usize {
    fs::metadata(log(name, host)).map_or(0, |about| usize::try_from(about.len()).expect("a length"))
}

/// Puts the words of all stays one behind the other; `read` gives the log of a host.
pub fn stitched(stays: &[Stay], read: impl Fn(&str) -> Vec<u8>) -> String {
    let mut all = Vec::new();
    for (at, stay) in stays.iter().enumerate() {
        let log = read(&stay.host);
        let next = stays[at + 1..].iter().find(|later| later.host == stay.host).map(|later| later.from);
        let end = next.unwrap_or(log.len()).min(log.len());
        all.extend_from_slice(log.get(stay.from..end).unwrap_or_default());
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// The heartbeat in what a guest said.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Heartbeat {
    /// Number of the last tick.
    pub last: u64,
    /// Ticks whose line did not come over whole.
    pub torn: u64,
}

/// Reads the heartbeat.
///
/// # Errors
/// What shows that it is not one and the same guest that kept running: a second boot, a tick or an uptime that goes
/// back, or ticks that are missing.
pub fn heartbeat(text: &str) -> Result<Heartbeat, String> {
    let boots = text.matches("GUEST: READY at").count();
    if boots > 1 {
        return Err(format!("the guest booted {boots} times"));
    }
    let mut seen: Option<(u64, f64)> = None;
    let mut torn = 0;
    for (number, up) in ticks(text) {
        if let Some((last, last_up)) = seen {
            if number <= last || up <= last_up {
                return Err(format!("after tick {last} (up {last_up} s) came tick {number} (up {up} s)"));
            }
            let missing = number - last - 1;
            torn += missing;
            if missing > 1 {
                return Err(format!("ticks {} to {} are missing", last + 1, number - 1));
            }
        }
        seen = Some((number, up));
    }
    seen.map(|(last, _)| Heartbeat { last, torn }).ok_or_else(|| "the guest does not tick".to_owned())
}

/// Whole tick lines: `TICK number up seconds`.
fn ticks(text: &str) -> impl Iterator<Item = (u64, f64)> {
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).filter_map(|line| {
        // the shell's prompt or its echo may stand before it
        let words = line[line.find("TICK ")?..].split_whitespace().collect::<Vec<_>>();
        match words.as_slice() {
            ["TICK", number, "up", up] => Some((number.parse().ok()?, up.parse().ok()?)),
            _ => None,
        }
    })
}

#[test]
fn stays_are_put_together_in_their_order() {
    let stay = |host: &str, from| Stay { host: host.into(), from };
    let read = |host: &str| if host == "a" { b"READY1\nTI5\n".to_vec() } else { b"oldCK 2\n3\nT".to_vec() };
    let stays = [stay("a", 0), stay("b", 3), stay("a", 9)];
    assert_eq!(stitched(&stays, read), "READY1\nTICK 2\n3\nT5\n");
}

#[test]
fn a_heartbeat_that_goes_on_is_told_from_one_that_does_not() {
    let ticks = |numbers: &[u64]| -> String {
        numbers.iter().map(|n| format!("TICK {n} up {}.5\r\n", 10 + n)).collect::<String>()
    };
    let good = format!("GUEST: READY at 3 s\n/ # {}", ticks(&[1, 2, 3]));
    assert_eq!(heartbeat(&good), Ok(Heartbeat { last: 3, torn: 0 }));
    assert_eq!(heartbeat(&ticks(&[1, 3])), Ok(Heartbeat { last: 3, torn: 1 }));
    for bad in [&[][..], &[1, 2, 1], &[1, 2, 2], &[1, 5]] {
        assert!(heartbeat(&ticks(bad)).is_err(), "{bad:?}");
    }
    assert!(heartbeat("TICK 7 up 20.0\nTICK 8 up 3.0\n").is_err(), "a reset uptime");
    assert!(heartbeat(&format!("{good}GUEST: READY at 3 s\n")).is_err(), "a second boot");
    assert_eq!(heartbeat("TICK 7 up 20.0\nTICK 8 up 2").map(|beat| beat.last), Ok(7), "a half line is none");
}
