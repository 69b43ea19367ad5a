//! Letting bash say what a kvmrc means.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

use crate::host::capture::{Finished, Limits, run_blocking};
use crate::host::process::{End, Start, StartError};
use crate::host::supervise::Cause;

/// Reads the file in the way of the action scripts and prints every variable, `NAME=value` and NUL, to the stdout
/// that it was started with; what the file itself prints goes to stderr. Every command of the file is traced with
/// its line into the second argument. `kvmad_completed` is there when the file came to its end.
const SCRIPT: &str = r#"
kvmad_report() {
  set +xeu
  local kvmad_name
  for kvmad_name in $(compgen -v); do
    printf '%s=%s\0' "$kvmad_name" "${!kvmad_name-}" >&3
  done
}
exec 3>&1 1>&2 9>"$2"
trap kvmad_report EXIT
BASH_XTRACEFD=9
PS4=$'\001${BASH_SOURCE-}\001${LINENO}\001'
set -a
set -x
. "$1"
{ set +x; } 9>/dev/null
kvmad_completed=yes
"#;

/// Variables that bash keeps for itself.
const OF_BASH: [&str; 24] = [
    "_",
    "BASHOPTS",
    "BASHPID",
    "COLUMNS",
    "COMP_WORDBREAKS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "LINENO",
    "LINES",
    "OPTIND",
    "PIPESTATUS",
    "PPID",
    "PS4",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SRANDOM",
    "UID",
    "kvmad_completed",
];

/// A variable that the file sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The last line that assigned it, when bash told.
    pub line: Option<u32>,
}

/// What became of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evaluated {
    /// What it sets.
    pub variables: Vec<Variable>,
    /// What it prints, both streams.
    pub printed: String,
    /// How it ended when it did not come to its end.
    pub broken: Option<Broken>,
}

/// Why a file did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// It ended the shell: by `exit`, or by an error that bash does not go on from.
    Ended {
        /// Status of the shell.
        status: i32,
        /// The last line that was run.
        line: Option<u32>,
    },
    /// It was still running after the limit.
    Hangs,
}

/// What bash says about the syntax; `None` when it is right.
///
/// # Errors
/// When bash can't be asked; the reason.
pub fn syntax(path: &Path, limit: Duration) -> Result<Option<(String, Option<u32>)>, String> {
    let finished = bash(&["-n", "--"], &[path], limit)?;
    if finished.end == End::Exited(0) {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    let name = path.display().to_string();
    let lines = said.lines().map(|line| line.strip_prefix(&name).unwrap_or(line).trim_start_matches(": "));
    // bash has no other form for it than "line N: text".
    let mut line = None;
    let mut texts = Vec::new();
    for text in lines {
        let numbered = text.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
        match numbered.and_then(|(number, text)| Some((number.parse::<u32>().ok()?, text))) {
            Some((number, text)) => {
                line = line.or(Some(number));
                texts.push(text.to_owned());
            }
            None => texts.push(text.to_owned()),
        }
    }
    Ok(Some((texts.first().cloned().unwrap_or_else(|| "bash refuses it".to_owned()), line)))
}

/// Evaluates the file in an empty environment and compares with evaluating nothing.
///
/// # Errors
/// When bash can't be asked; the reason.
pub fn evaluate(path: &Path, limit: Duration) -> Result<Evaluated, String> {
    let (before, _, _) = variables(Path::new("/dev/null"), limit)?;
    let (after, trace, finished) = variables(path, limit)?;
    let file = absolute(path).display().to_string();
    let lines = assignments(&trace, &file);
    let last = trace_lines(&trace, &file).map(|(line, _)| line).last();
    let completed = after.contains_key("kvmad_completed");
    let broken = match (finished.cause, finished.end) {
        (Cause::Limit, _) => Some(Broken::Hangs),
        (_, End::Exited(status)) if !completed => Some(Broken::Ended { status, line: last }),
        (_, End::Signaled(signal)) => Some(Broken::Ended { status: 128 + signal, line: last }),
        _ => None,
    };
    let set = after.into_iter().filter(|(name, value)| {
        !OF_BASH.contains(&name.as_str()) && !name.starts_with("BASH") && before.get(name) != Some(value)
    });
    let variables =
        set.map(|(name, value)| Variable { line: lines.get(&name).copied(), name, value }).collect();
    Ok(Evaluated { variables, printed: String::from_utf8_lossy(&finished.stderr).into_owned(), broken })
}

/// All variables after `path` was read, the trace, and how bash ended.
fn variables(path: &Path, limit: Duration) -> Result<(BTreeMap<String, String>, String, Finished), String> {
    let trace = tempfile::NamedTempFile::new().map_err(|error| format!("no temporary file: {error}"))?;
    let finished = bash(&["-c", SCRIPT, "bash"], &[path, trace.path()], limit)?;
    let text = String::from_utf8_lossy(&finished.stdout);
    let all = text.split('\0').filter_map(|entry| entry.split_once('='));
    let all = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let trace =
        std::fs::read(trace.path()).map_err(|error| format!("the trace of bash can't be read: {error}"))?;
    Ok((all, String::from_utf8_lossy(&trace).into_owned(), finished))
}

fn bash(options: &[&str], paths: &[&Path], limit: Duration) -> Result<Finished, String> {
    let paths: Vec<_> = paths.iter().map(|path| absolute(path)).collect();
    let start = Start::new("/usr/bin/env")
        .args(["-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "bash"])
        .args(["--noprofile", "--norc"])
        .args(options.iter().copied())
        .args(paths)
        .no_stdin();
    let limits = Limits { limit: Some(limit), grace: Duration::from_secs(1), ..Limits::default() };
    match run_blocking(&start, Bytes::new(), &limits) {
        Ok(Finished { end: End::Exited(127), .. }) => Err("bash is not installed".to_owned()),
        Ok(finished) => Ok(finished),
        Err(StartError::NotFound { .. }) => Err("env is not installed".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The absolute form: `.` looks for a name without a slash in PATH.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Line and command of each entry of the trace that stands in `file` itself.
fn trace_lines<'a>(trace: &'a str, file: &'a str) -> impl Iterator<Item = (u32, &'a str)> {
    trace.lines().filter_map(move |entry| {
        let rest = entry.trim_start_matches('\u{1}').strip_prefix(file)?.strip_prefix('\u{1}')?;
        let (line, command) = rest.split_once('\u{1}')?;
        Some((line.parse().ok()?, command))
    })
}

/// The last line that assigned each variable.
fn assignments(trace: &str, file: &str) -> BTreeMap<String, u32> {
    let mut lines = BTreeMap::new();
    for (line, command) in trace_lines(trace, file) {
        for word in command.split(' ') {
            let Some((name, _)) = word.split_once('=') else { continue };
            if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                lines.insert(name.to_owned(), line);
            }
        }
    }
    lines
}
