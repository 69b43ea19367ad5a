//! A plan as short lines, for comparison with lines written from the documents.
//!
//! `vmm! host1+ vmm/kvm/save 'a b' <doc` : layer, `!` when its failure is ignored, place, `+` with the agent, the
//! script, its arguments quoted for a shell, what it reads. Roll-back stands below its step behind `~`.

use kvmad::host::job::Place;
use kvmad::vmm::plan::{Call, Form, Kind, OnFailure, Plan, Source, Step, Undo, Value, What};

/// All steps of a plan.
pub fn plan(plan: &Plan) -> Vec<String> {
    plan.steps.iter().flat_map(|step| lines(plan, step, "")).collect()
}

fn lines(plan: &Plan, step: &Step, indent: &str) -> Vec<String> {
    let kind = match step.kind {
        Kind::Vmm => "vmm",
        Kind::Network => "vnm",
        Kind::Transfer => "tm",
        Kind::Datastore => "ds",
    };
    let mark = if step.on_failure == OnFailure::Stop { "" } else { "!" };
    let mut all: Vec<String> =
        step.calls.iter().map(|one| format!("{indent}{kind}{mark} {}", call(plan, one))).collect();
    for undo in &step.undo {
        match undo {
            Undo::Step(undo) => all.extend(lines(plan, undo, "~ ")),
            Undo::Remains(what) => all.push(format!("~ remains: {what}")),
        }
    }
    all
}

fn call(plan: &Plan, call: &Call) -> String {
    let place = match &call.place {
        Place::Local => "local".to_owned(),
        Place::Host { name, agent } => format!("{name}{}", if *agent { "+" } else { "" }),
    };
    let program = match &call.program {
        What::Script(path) => path.clone(),
        What::Program(path) => (*path).to_owned(),
        What::Driver { folder, names } => format!("{folder}/{}", names.join("|")),
        What::Impossible(why) => format!("impossible({why})"),
    };
    let mut words = vec![place, program];
    // The text of the shell is fixed: it is looked at elsewhere.
    let args = if call.program == What::Program("/bin/sh") { &call.args[2..] } else { &call.args[..] };
    words.extend(args.iter().map(value));
    words.push(format!("<{}", stdin(plan, call)));
    words.join(" ")
}

fn value(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Fitting(text) => shell_words::quote(text).into_owned(),
        Value::DeployId(or) => format!("$deploy:{or}"),
        Value::Document => "$document64".to_owned(),
    }
}

fn stdin(plan: &Plan, call: &Call) -> String {
    let what = match &call.stdin.source {
        Source::Nothing => return "-".to_owned(),
        Source::File(path) => format!("file:{path}"),
        Source::Domain => "domain".to_owned(),
        Source::Data(data) if *data == plan.document => "doc".to_owned(),
        Source::Data(data) => {
            let text = std::str::from_utf8(data).expect("utf-8");
            let document = std::str::from_utf8(&plan.document).expect("utf-8");
            match text {
                _ if text.starts_with("<DS_DRIVER") => "ds+vm",
                _ if text.starts_with("<DATASTORE>") && document.contains(text) => "ds",
                _ if text.starts_with("<VM>") && document.contains(text) => "vm",
                _ if text.starts_with("<VM>") => "net",
                _ => "?",
            }
            .to_owned()
        }
    };
    let form = match call.stdin.form {
        Form::Plain => ":plain",
        Form::Line => "",
        Form::Base64 => ":64nl",
        Form::Base64Bare => ":64",
        Form::Base64Lines => ":64lines",
        Form::LocalScript => ":local",
    };
    format!("{what}{form}")
}
