//! A script as both drivers run it: what it says becomes lines of the log and the reason of a failure, and its
//! request gives its slot to others while it waits for a connection.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::host::job::{Boxed, Ending, HostName, Outcome, Place, Turn, Watch};
use crate::mad::actions::{Context, Severity, Slot};

const BLOCK_BEGIN: &str = "ERROR MESSAGE --8<------";
const BLOCK_END: &str = "ERROR MESSAGE ------>8--";

/// Prefixes by which scripts mark lines for the log.
const MARKS: [(&str, Severity); 5] = [
    ("ERROR:", Severity::Error),
    ("WARNING:", Severity::Warning),
    ("WARN:", Severity::Warning),
    ("INFO:", Severity::Info),
    ("DEBUG:", Severity::Debug),
];

fn mark(line: &str) -> Option<(Severity, &str)> {
    let line = line.trim_start();
    MARKS.iter().find_map(|(mark, severity)| line.strip_prefix(mark).map(|rest| (*severity, rest.trim())))
}

/// Turns the lines of one script's stderr into log lines.
#[derive(Debug, Default)]
pub struct Log {
    in_block: bool,
}

impl Log {
    /// The log line for `line`: its mark decides the severity and is left out, lines of an error block are
    /// errors, the borders of the block and empty lines are nothing.
    pub fn line<'a>(&mut self, line: &'a str) -> Option<(Severity, &'a str)> {
        let trimmed = line.trim();
        if trimmed == BLOCK_BEGIN || trimmed == BLOCK_END {
            self.in_block = trimmed == BLOCK_BEGIN;
            return None;
        }
        let (severity, text) = mark(line).unwrap_or((Severity::Info, trimmed));
        let severity = if self.in_block { Severity::Error } else { severity };
        (!text.is_empty()).then_some((severity, text))
    }
}

/// The reason that a script gave on stderr: the lines of its error block if there is one (scripts for cores up
/// to 5.12), else the lines without a mark, else those marked as errors; joined by `; `.
pub fn reason(stderr: &str) -> String {
    let join = |lines: Vec<&str>| lines.join("; ");
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut inside = false;
    let mut block = Vec::new();
    let mut seen = false;
    for line in lines() {
        match line {
            BLOCK_BEGIN => (inside, seen) = (true, true),
            BLOCK_END => inside = false,
            _ if inside => block.push(mark(line).map_or(line, |(_, text)| text)),
            _ => {}
        }
    }
    if seen && !block.is_empty() {
        return join(block);
    }
    let plain: Vec<&str> = lines().filter(|line| mark(line).is_none() && *line != BLOCK_END).collect();
    let plain: Vec<&str> = plain.into_iter().filter(|line| *line != BLOCK_BEGIN).collect();
    if !plain.is_empty() {
        return join(plain);
    }
    join(lines().filter_map(mark).filter(|(s, _)| *s == Severity::Error).map(|(_, text)| text).collect())
}

/// A place, as people name it.
pub fn place(place: &Place) -> String {
    match place {
        Place::Local => "the front-end".to_owned(),
        Place::Host { name, .. } => name.to_string(),
    }
}

/// Why the run of `what` at `at` is no success, in one line for people.
pub fn failure(outcome: &Outcome, what: &str, at: &Place) -> String {
    let said = reason(&String::from_utf8_lossy(&outcome.stderr));
    let with = |end: String| {
        let said = if said.is_empty() { String::new() } else { format!("; {said}") };
        format!("{what} on {} {end}{said}", place(at))
    };
    match &outcome.ending {
        Ending::Exited(code) if said.is_empty() => {
            format!("{what} on {} failed without a reason (exit code {code})", place(at))
        }
        Ending::Exited(code) => format!("{said} (exit code {code})"),
        Ending::Signaled(signal) => with(format!("died by signal {}", signal_name(*signal))),
        Ending::TimedOut(limit) => {
            with(format!("did not end within {} s and was stopped", limit.as_secs_f32().ceil()))
        }
        Ending::Cancelled => with("was cancelled".to_owned()),
        Ending::NotStarted(why) => format!("{what} on {}: {why}", place(at)),
        Ending::Lost(why) | Ending::Silent(why) if why.contains(&place(at)) => why.clone(),
        Ending::Lost(why) | Ending::Silent(why) => format!("{}: {why}", place(at)),
    }
}

fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        6 => "ABRT",
        7 => "BUS",
        8 => "FPE",
        9 => "KILL",
        10 => "USR1",
        11 => "SEGV",
        12 => "USR2",
        13 => "PIPE",
        14 => "ALRM",
        15 => "TERM",
        24 => "XCPU",
        25 => "XFSZ",
        31 => "SYS",
        _ => return number.to_string(),
    };
    format!("{number} ({name})")
}

/// Watches a script for its request: its stderr and all notices go to the log, the slot is given back while a
/// connection is waited for, and `cancel` ends it. Control characters are blanks then: some mean something to those
/// who write the log.
#[must_use]
pub fn watch(context: &Context, cancel: CancellationToken) -> Watch {
    let state = Mutex::new(Log::default());
    let log = Arc::clone(&context.log);
    let notices = Arc::clone(&context.log);
    Watch {
        on_stderr: Arc::new(move |line| {
            let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((severity, text)) = state.line(&line) {
                log(severity, text);
            }
        }),
        on_notice: Arc::new(move |line| notices(Severity::Info, line)),
        turn: Arc::new(SlotTurn(context.slot.clone())),
        cancel,
    }
}

/// A request that waits for its host gives its slot to others meanwhile.
struct SlotTurn(Slot);

impl Turn for SlotTurn {
    fn waiting(&self, host: &HostName) {
        self.0.waiting(host.as_str());
    }

    fn ready<'a>(&'a self, host: &'a HostName) -> Boxed<'a, ()> {
        Box::pin(self.0.ready(host.as_str()))
    }

    fn unreachable(&self, host: &HostName) {
        self.0.unreachable(host.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_lines_are_log_lines_and_the_rest_is_the_reason() {
        let stderr =
            "ERROR: deploy: Command \"x\" failed\nDEBUG: a\nCould not create domain\n\nfrom file\nINFO: b\n";
        assert_eq!(reason(stderr), "Could not create domain; from file");
        let mut log = Log::default();
        let lines: Vec<_> = stderr.lines().filter_map(|line| log.line(line)).collect();
        assert_eq!(
            lines,
            [
                (Severity::Error, "deploy: Command \"x\" failed"),
                (Severity::Debug, "a"),
                (Severity::Info, "Could not create domain"),
                (Severity::Info, "from file"),
                (Severity::Info, "b"),
            ]
        );
    }

    #[test]
    fn a_host_that_a_reason_names_is_named_once() {
        let host = HostName::new("node1").expect("a name");
        let lost = Outcome {
            ending: Ending::Lost("node1: ssh: gone".into()),
            stdout: Vec::new(),
            stderr: Vec::new(),
            dropped: 0,
            took: std::time::Duration::ZERO,
        };
        let place = Place::Host { name: host.clone(), agent: false };
        assert_eq!(host.tells(&failure(&lost, "im/look", &place)), "node1: ssh: gone");
    }

    #[test]
    fn an_error_block_is_the_reason_and_its_borders_are_not_logged() {
        let stderr = "noise\nERROR MESSAGE --8<------\nno such\ndomain\nERROR MESSAGE ------>8--\nmore\n";
        assert_eq!(reason(stderr), "no such; domain");
        let mut log = Log::default();
        let lines: Vec<_> = stderr.lines().filter_map(|line| log.line(line)).collect();
        assert_eq!(lines[1], (Severity::Error, "no such"));
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[3], (Severity::Info, "more"));
    }

    #[test]
    fn what_a_script_says_is_logged_without_control_characters() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let log = Arc::new(move |_, line: &str| kept.lock().expect("free").push(line.to_owned()));
        let watch = watch(&Context::alone(log), CancellationToken::new());
        (watch.on_stderr)("ERROR: \u{1}a\tb");
        (watch.on_stderr)("\u{1}");
        assert_eq!(*lines.lock().expect("free"), ["a b"]);
    }

    #[test]
    fn a_script_that_only_marks_still_gives_its_reason() {
        assert_eq!(reason("ERROR: save: it failed\nINFO: x\n"), "save: it failed");
        assert_eq!(reason("INFO: x\n"), "");
        assert_eq!(reason("ERROR MESSAGE --8<------\nERROR MESSAGE ------>8--\n"), "");
    }
}
