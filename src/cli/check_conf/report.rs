//! Telling what was found.

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};

use super::Written;
use super::finding::{Checked, Finding};
use crate::template::text::{Gravity, Picture};

/// For people: a picture of each place, and a line for each file.
pub fn text(checked: &[Checked], out: &mut dyn Write) -> Written {
    let colours = std::io::stdout().is_terminal();
    for file in checked {
        for finding in &file.findings {
            writeln!(out, "{}\n", drawn(file, finding, colours))?;
        }
        for unchecked in &file.unchecked {
            writeln!(out, "could not check {unchecked}\n")?;
        }
        writeln!(out, "{}: {}", file.file, summary(file))?;
    }
    Ok(())
}

fn drawn(file: &Checked, finding: &Finding, colours: bool) -> String {
    let (why, mend) = (crate::cli::plain(&finding.why), crate::cli::plain(&finding.mend));
    if let Some((_, _, span)) = finding.place.as_ref().filter(|_| !file.text.is_empty()) {
        return Picture {
            file: &file.file,
            text: &file.text,
            span: span.clone(),
            gravity: finding.gravity,
            id: Some(finding.id),
            title: &why,
            label: "",
            help: Some(&mend),
        }
        .draw(colours);
    }
    let (gravity, id) = (word(finding.gravity), finding.id);
    format!("{gravity}[{id}]: {}: {why}\n  = help: {mend}", file.file)
}

fn word(gravity: Gravity) -> &'static str {
    match gravity {
        Gravity::Error => "error",
        Gravity::Warning => "warning",
        Gravity::Note => "note",
    }
}

fn summary(file: &Checked) -> String {
    let count = |gravity| file.findings.iter().filter(|finding| finding.gravity == gravity).count();
    let mut parts = Vec::new();
    for gravity in [Gravity::Error, Gravity::Warning, Gravity::Note] {
        match count(gravity) {
            0 => {}
            1 => parts.push(format!("1 {}", word(gravity))),
            n => parts.push(format!("{n} {}s", word(gravity))),
        }
    }
    if parts.is_empty() {
        parts.push("nothing found".to_owned());
    }
    if !file.unchecked.is_empty() {
        parts.push(format!("{} not checked", file.unchecked.len()));
    }
    parts.join(", ")
}

/// For programs.
pub fn json(checked: &[Checked], out: &mut dyn Write) -> Written {
    let files: Vec<Value> = checked
        .iter()
        .map(|file| {
            let findings: Vec<Value> = file.findings.iter().map(finding).collect();
            json!({
                "file": file.file,
                "kind": file.kind.word(),
                "findings": findings,
                "unchecked": file.unchecked,
            })
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &files)?;
    writeln!(out)
}

fn finding(finding: &Finding) -> Value {
    json!({
        "id": finding.id,
        "severity": word(finding.gravity),
        "key": finding.key,
        "line": finding.place.as_ref().map(|place| place.0),
        "column": finding.place.as_ref().map(|place| place.1),
        "why": finding.why,
        "mend": finding.mend,
    })
}
