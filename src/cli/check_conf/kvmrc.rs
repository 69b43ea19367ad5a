//! Checking kvmrc. It means what bash says it means.

use std::path::Path;
use std::time::Duration;

use super::attach;
use super::finding::{Checked, Kind, line_of_kvmrc};
use super::shell::{self, Broken, Variable};
use crate::cli::input::{self, Unreadable};
use crate::conf::kvmrc::{VARIABLES, find};
use crate::conf::nearest::nearest;
use crate::template::Template;
use crate::template::text::Gravity;

/// Most bytes of a kvmrc.
const LIMIT: u64 = 1 << 20;

/// Checks the file; `defaults` is the vmm_exec_kvm.conf that goes with it, if it is known.
///
/// # Errors
/// When it can't be read.
pub fn check(path: &Path, defaults: Option<&Template>, limit: Duration) -> Result<Checked, Unreadable> {
    let bytes = input::bytes(path, LIMIT)?;
    if path == Path::new("-") {
        return Err(Unreadable(
            "a kvmrc can't come from stdin: bash has to read it; give its path".to_owned(),
        ));
    }
    let name = path.display().to_string();
    let mut checked = Checked::new(&name, Kind::Kvmrc, &String::from_utf8_lossy(&bytes));
    match shell::syntax(path, limit) {
        Err(why) => checked.unchecked.push(format!("what bash makes of the file: {why}")),
        Ok(Some((text, line))) => {
            let why = format!("bash can't read it: {text}");
            let mend = "look for a quote or bracket that is not closed in this line or before it";
            checked.find("syntax", Gravity::Error, String::new(), line_of_kvmrc(line).as_ref(), why, mend);
        }
        Ok(None) => match shell::evaluate(path, limit) {
            Err(why) => checked.unchecked.push(format!("what bash makes of the file: {why}")),
            Ok(evaluated) => {
                how_it_ran(&mut checked, &evaluated, limit);
                for variable in &evaluated.variables {
                    check_variable(&mut checked, variable);
                }
                attach::check(&mut checked, &evaluated.variables, defaults);
            }
        },
    }
    if checked.text.contains('\r') {
        let line = checked.text.lines().position(|line| line.ends_with('\r')).unwrap_or(0);
        let at = line_of_kvmrc(u32::try_from(line + 1).ok());
        let why = "lines end in CR LF: bash takes the CR for a part of the value".to_owned();
        let mend = "convert the file to LF line ends";
        checked.find("carriage-return", Gravity::Error, String::new(), at.as_ref(), why, mend);
    }
    Ok(checked.sorted())
}

fn how_it_ran(checked: &mut Checked, evaluated: &shell::Evaluated, limit: Duration) {
    match &evaluated.broken {
        None => {}
        Some(Broken::Hangs) => {
            let why =
                format!("bash was still at it after {} s; every action would wait as long", limit.as_secs());
            let mend = "take out what waits: the file should only set variables";
            checked.find("hangs", Gravity::Error, String::new(), None, why, mend);
        }
        Some(Broken::Ended { status, line }) => {
            let why = format!(
                "it ends the shell that reads it, with status {status}: no action script gets further"
            );
            let mend =
                "take out exit, exec and what bash can't go on from; the file should only set variables";
            checked.find(
                "ends-shell",
                Gravity::Error,
                String::new(),
                line_of_kvmrc(*line).as_ref(),
                why,
                mend,
            );
        }
    }
    let printed = evaluated.printed.trim();
    if !printed.is_empty() {
        let shown: String = printed.lines().next().unwrap_or("").chars().take(120).collect();
        let why = format!("it prints {shown:?}, which gets into the log of every action");
        checked.find("prints", Gravity::Warning, String::new(), None, why, "let it print nothing");
    }
}

fn check_variable(checked: &mut Checked, variable: &Variable) {
    let place = line_of_kvmrc(variable.line);
    let Some(key) = find(&variable.name) else {
        let known = VARIABLES.iter().map(|key| key.name);
        let (gravity, mend) = match nearest(&variable.name, known) {
            Some(right) => (Gravity::Warning, format!("did you mean {right}?")),
            None => (Gravity::Note, "remove it if nothing of yours reads it".to_owned()),
        };
        let why = format!("no script of kvmad reads {}", variable.name);
        checked.find("unknown-key", gravity, variable.name.clone(), place.as_ref(), why, mend);
        return;
    };
    if let Some(doubt) = key.doubt(&variable.value) {
        let (id, gravity) =
            if doubt.certain { ("bad-value", Gravity::Error) } else { ("odd-value", Gravity::Warning) };
        checked.find(id, gravity, variable.name.clone(), place.as_ref(), doubt.why, doubt.mend);
    }
}
