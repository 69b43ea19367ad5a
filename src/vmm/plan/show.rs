//! A plan as text for people.

use std::fmt;

use crate::host::job::Place;

use super::{Call, Form, Info, OnFailure, Plan, Source, Stdin, Step, Undo, UndoWhen, Value, What};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of VM {} on {}", self.verb, self.vm, self.host)?;
        if let Some(second) = &self.second {
            write!(f, " and {second}")?;
        }
        writeln!(f)?;
        for (number, step) in self.steps.iter().enumerate() {
            write!(f, "{:>2}. ", number + 1)?;
            show_step(f, step, "    ")?;
        }
        let prefix = self.prefix.as_ref().map(|prefix| format!("{prefix} and ")).unwrap_or_default();
        writeln!(f, "SUCCESS says: {prefix}{}", self.info)
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Output(name) => write!(f, "what {name} prints"),
            Self::DeployId => f.write_str("the deploy id that deploy prints"),
            Self::FirstWord(name) => write!(f, "the first word that {name} prints"),
            Self::LastLine(name) => write!(f, "the last line that {name} prints"),
        }
    }
}

fn show_step(f: &mut fmt::Formatter<'_>, step: &Step, indent: &str) -> fmt::Result {
    write!(f, "{}: {}", step.kind.name(), step.name)?;
    let remarks = [
        (step.on_failure == OnFailure::GoOn, "its failure is only logged"),
        (step.on_failure == OnFailure::GoOnKeepingData, "its failure is logged and nothing is deleted then"),
        (step.commits, "no way back behind it"),
        (step.retried, "tried again as -r says"),
        (step.needs_previous, "only when the one before it is done"),
    ];
    for (_, remark) in remarks.iter().filter(|(holds, _)| *holds) {
        write!(f, "; {remark}")?;
    }
    writeln!(f)?;
    if step.calls.is_empty() {
        writeln!(f, "{indent}nothing is called: no network driver is in use")?;
    }
    for call in &step.calls {
        show_call(f, call, indent)?;
    }
    let when = match step.undo_when {
        UndoWhen::Done => "undone by",
        UndoWhen::Unsure => "undone, also when it is ended or lost, by",
        UndoWhen::Failed => "undone, also when it fails, by",
    };
    for undo in &step.undo {
        match undo {
            Undo::Remains(what) => writeln!(f, "{indent}can't be undone: {what}")?,
            Undo::Step(undo) => {
                write!(f, "{indent}{when} ")?;
                show_step(f, undo, &format!("{indent}    "))?;
            }
        }
    }
    Ok(())
}

fn show_call(f: &mut fmt::Formatter<'_>, call: &Call, indent: &str) -> fmt::Result {
    let place = match &call.place {
        Place::Local => "front-end".to_owned(),
        Place::Host { name, agent: false } => name.to_string(),
        Place::Host { name, agent: true } => format!("{name} (agent forwarded)"),
    };
    let program = match &call.program {
        What::Script(path) => path.clone(),
        What::Program(path) => (*path).to_owned(),
        What::Driver { folder, names } => {
            let paths: Vec<String> = names.iter().map(|name| format!("{folder}/{name}")).collect();
            paths.join(" or ")
        }
        What::Impossible(why) => format!("can't be called: {why}"),
    };
    write!(f, "{indent}{place}: {program}")?;
    // The text of the fixed shell script says nothing about this plan.
    let fixed = matches!(call.program, What::Program(_));
    for value in call.args.iter().skip(if fixed { 2 } else { 0 }) {
        write!(f, " {}", show_value(value))?;
    }
    writeln!(f)?;
    writeln!(f, "{indent}    stdin: {}", show_stdin(&call.stdin))
}

fn show_value(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Fitting(text) if text.len() > 200 => {
            format!("({} bytes)", text.len())
        }
        Value::Text(text) | Value::Fitting(text) => shell_words::quote(text).into_owned(),
        Value::DeployId(or) => format!("(deploy id, else {or})"),
        Value::Document => "(document in base64)".to_owned(),
    }
}

fn show_stdin(stdin: &Stdin) -> String {
    let what = match &stdin.source {
        Source::Nothing => return "nothing".to_owned(),
        Source::File(path) => format!("the file {path}"),
        Source::Domain => "the domain made from the document".to_owned(),
        Source::Data(data) => {
            let root = data.strip_prefix(b"<").unwrap_or_default();
            let end = root.iter().position(|byte| matches!(byte, b'>' | b' ')).unwrap_or(0);
            format!("{}, {} bytes", String::from_utf8_lossy(&root[..end]), data.len())
        }
    };
    let form = match stdin.form {
        Form::Plain | Form::Line => "",
        Form::Base64 | Form::Base64Bare => ", in base64",
        Form::Base64Lines => ", in base64 with line breaks",
        Form::LocalScript => ", in base64 for scripts of OpenNebula",
    };
    what + form
}
