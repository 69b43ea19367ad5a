//! What scripts say: lines for the log, the reason of a failure, the info of a success.

use crate::host::job::{Ending, Outcome, Place};
use crate::mad::actions::Severity;

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
pub(crate) struct Log {
    in_block: bool,
}

impl Log {
    /// The log line for `line`: its mark decides the severity and is left out, lines of an error block are
    /// errors, the borders of the block and empty lines are nothing.
    pub(crate) fn line<'a>(&mut self, line: &'a str) -> Option<(Severity, &'a str)> {
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
pub(crate) fn reason(stderr: &str) -> String {
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
pub(crate) fn place(place: &Place) -> String {
    match place {
        Place::Local => "the front-end".to_owned(),
        Place::Host { name, .. } => name.to_string(),
    }
}

/// Why the run of `what` at `at` is no success, in one line for people.
pub(crate) fn failure(outcome: &Outcome, what: &str, at: &Place) -> String {
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
        Ending::Lost(why) if why.contains(&place(at)) => why.clone(),
        Ending::Lost(why) => format!("{}: {why}", place(at)),
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

/// The deploy id in what `deploy` printed: the last line that is a UUID or `one-<id>`, whatever else was printed;
/// else the last line when it is one word (other hypervisors have ids of their own form).
///
/// # Errors
/// What is wrong, for people: nothing, `-`, or only prose was printed.
pub(crate) fn deploy_id(stdout: &str) -> Result<String, String> {
    let mut lines = stdout.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    if let Some(id) = lines.clone().find(|line| is_domain_id(line)) {
        return Ok(id.to_owned());
    }
    match lines.next() {
        None | Some("-") => Err("deploy printed no deploy id".to_owned()),
        Some(word) if !word.contains(char::is_whitespace) => Ok(word.to_owned()),
        Some(line) => Err(format!("deploy printed {line:?} where its deploy id is expected")),
    }
}

fn is_domain_id(line: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let uuid = line.len() == 36
        && line.bytes().enumerate().all(|(at, byte)| {
            if matches!(at, 8 | 13 | 18 | 23) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        });
    uuid || line.strip_prefix("one-").is_some_and(digits)
}

/// The last line that is not empty.
///
/// # Errors
/// When there is none, or it is `-`.
pub(crate) fn last_line(stdout: &str, what: &str) -> Result<String, String> {
    match stdout.lines().map(str::trim).rfind(|line| !line.is_empty()) {
        None | Some("-") => Err(format!("{what} printed nothing")),
        Some(line) => Ok(line.to_owned()),
    }
}

/// The state in the answer of `poll` (`STATE=a CPU=...`): `a` active, `p` paused, `e` failed, `d` not there.
pub(crate) fn polled_state(stdout: &str) -> Option<char> {
    let state = stdout.split_whitespace().find_map(|word| word.strip_prefix("STATE="))?;
    state.trim_matches(['"', '\'']).chars().next().map(|c| c.to_ascii_lowercase())
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
    fn a_script_that_only_marks_still_gives_its_reason() {
        assert_eq!(reason("ERROR: save: it failed\nINFO: x\n"), "save: it failed");
        assert_eq!(reason("INFO: x\n"), "");
        assert_eq!(reason("ERROR MESSAGE --8<------\nERROR MESSAGE ------>8--\n"), "");
    }

    #[test]
    fn the_deploy_id_is_found_behind_stray_output_and_its_absence_is_a_failure() {
        let uuid = "7eba4a6c-4fa0-4a37-8f35-677b6dcc3662";
        assert_eq!(deploy_id(&format!("{uuid}\n")).as_deref(), Ok(uuid));
        assert_eq!(deploy_id(&format!("Domain created\n {uuid} \nbye now\n")).as_deref(), Ok(uuid));
        assert_eq!(deploy_id("one-7\n").as_deref(), Ok("one-7"));
        assert_eq!(deploy_id("host1:lc-dummy:dummy\n").as_deref(), Ok("host1:lc-dummy:dummy"));
        for bad in ["", "\n\n", "-", " - \n", "two words"] {
            assert!(deploy_id(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_state_of_a_poll_is_read() {
        assert_eq!(polled_state("STATE=a CPU=3\n"), Some('a'));
        assert_eq!(polled_state("CPU=3 STATE=\"D\""), Some('d'));
        assert_eq!(polled_state("nothing"), None);
        assert_eq!(polled_state("STATE="), None);
    }
}
