//! `kvmad explain`: what gave each value of a domain.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::{Map, Value, json};

use super::domain::{Choices, Failure, Ground};
use super::input;
use crate::domain::provenance::{Given, Provenance};
use crate::domain::tree::Line;

/// Arguments of `kvmad explain`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// VMs (onevm show -x), action documents, or templates in text form; - for stdin
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    choices: Choices,
    /// Show what these defaults would change instead; exit status 1 when there is a difference
    #[arg(long, value_name = "OTHER.conf")]
    diff: Option<PathBuf>,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// One value or element, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    path: String,
    value: Option<String>,
    from: Provenance,
}

/// What is different between two domains.
#[derive(Debug)]
struct Change {
    path: String,
    before: Option<Row>,
    after: Option<Row>,
}

enum Report {
    Rows(Vec<Row>),
    Changes(Vec<Change>),
}

/// Explains each file on `out`.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    match explain(arguments, out, err) {
        Ok(status) => status,
        Err(error) => super::unwritten(&error, err),
    }
}

fn explain(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let mut status = super::FINE;
    let mut all = Vec::new();
    let read = arguments.choices.read(err).map_err(Failure::from).and_then(|ground| {
        let other = arguments.diff.as_deref().map(|path| input::defaults(Some(path), err)).transpose()?;
        Ok((ground, other))
    });
    let (ground, other) = match read {
        Ok(read) => read,
        Err(failure) => return Ok(failure.tell(Path::new("-"), err)),
    };
    let other = other.map(|text| text.parsed.template);
    for file in &arguments.files {
        match report(&ground, other.as_ref(), file, err) {
            Err(failure) => status = status.max(failure.tell(file, err)),
            Ok(report) => {
                if matches!(&report, Report::Changes(changes) if !changes.is_empty()) {
                    status = status.max(super::FINDING);
                }
                match arguments.format {
                    Format::Json => all.push(to_json(file, &report)),
                    Format::Table => table(file, &report, arguments.files.len() > 1, out)?,
                }
            }
        }
    }
    if arguments.format == Format::Json {
        serde_json::to_writer_pretty(&mut *out, &all)?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(status)
}

fn report(
    ground: &Ground,
    other: Option<&crate::template::Template>,
    file: &Path,
    err: &mut dyn Write,
) -> Result<Report, Failure> {
    let vm = ground.vm(file)?;
    for note in &vm.notes {
        // Nobody is left to tell when stderr is gone.
        let _ = writeln!(err, "note: {}", super::plain(note));
    }
    let before = ground.domain(&vm)?;
    let rows = |lines: Vec<Line<'_>>| lines.into_iter().map(Row::from).collect::<Vec<_>>();
    match other {
        None => Ok(Report::Rows(rows(before.lines()))),
        Some(other) => {
            let after = ground.domain_with(&vm, other)?;
            let told = |lines| told(&rows(lines)).cloned().collect();
            Ok(Report::Changes(changes(told(before.lines()), told(after.lines()))))
        }
    }
}

impl From<Line<'_>> for Row {
    fn from(line: Line<'_>) -> Self {
        Self { path: line.path, value: line.value.map(str::to_owned), from: line.from.clone() }
    }
}

/// What is in one of them only, or has another value; in the order of the first, then of the second.
fn changes(before: Vec<Row>, after: Vec<Row>) -> Vec<Change> {
    let mut waiting: HashMap<String, Row> = after.iter().map(|row| (row.path.clone(), row.clone())).collect();
    let mut changes = Vec::new();
    for row in before {
        let other = waiting.remove(&row.path);
        if other.as_ref().is_some_and(|other| other.value == row.value) {
            continue;
        }
        changes.push(Change { path: row.path.clone(), before: Some(row), after: other });
    }
    let added = after.into_iter().filter(|row| waiting.contains_key(&row.path));
    changes.extend(added.map(|row| Change { path: row.path.clone(), before: None, after: Some(row) }));
    changes
}

fn table(file: &Path, report: &Report, several: bool, out: &mut dyn Write) -> io::Result<()> {
    if several {
        writeln!(out, "{}", super::plain(&file.display().to_string()))?;
    }
    let mut table = Table::new();
    table.load_style(NOTHING);
    match report {
        Report::Rows(rows) => {
            table.set_header(["element or attribute", "value", "from"]);
            for row in told(rows) {
                table.add_row([row.path.clone(), shown(row), from(&row.from)]);
            }
        }
        Report::Changes(changes) if changes.is_empty() => return writeln!(out, "no difference"),
        Report::Changes(changes) => {
            table.set_header(["element or attribute", "now", "then", "from"]);
            for change in folded(changes) {
                let side = |row: &Option<Row>| row.as_ref().map_or("(absent)".to_owned(), shown);
                let from = match (&change.before, &change.after) {
                    (_, Some(row)) => from(&row.from),
                    (Some(row), None) => format!("no longer {}", from(&row.from)),
                    (None, None) => String::new(),
                };
                table.add_row([change.path.clone(), side(&change.before), side(&change.after), from]);
            }
        }
    }
    writeln!(out, "{}", table.trim_fmt())
}

/// The changes without those inside an element that comes or goes as a whole.
fn folded(changes: &[Change]) -> impl Iterator<Item = &Change> {
    let whole = |change: &Change| {
        let row = change.before.as_ref().xor(change.after.as_ref());
        row.is_some_and(|row| row.value.is_none()).then(|| format!("{}/", change.path))
    };
    let gone: Vec<String> = changes.iter().filter_map(whole).collect();
    changes.iter().filter(move |change| {
        change.before.is_some() == change.after.is_some()
            || !gone.iter().any(|element| change.path.starts_with(element))
    })
}

/// The rows of a table: without elements that only hold others and are the same in every domain.
fn told(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let holds = |row: &Row, next: Option<&Row>| {
        let inside = |path: &str| path.strip_prefix(&row.path).is_some_and(|rest| rest.starts_with('/'));
        row.value.is_none() && row.from == Provenance::BuiltIn && next.is_some_and(|next| inside(&next.path))
    };
    rows.iter().enumerate().filter(move |(n, row)| !holds(row, rows.get(n + 1))).map(|(_, row)| row)
}

/// What gave a value, files by their last name only.
fn from(provenance: &Provenance) -> String {
    super::plain(&shortened(provenance))
}

fn shortened(provenance: &Provenance) -> String {
    let short = |given: &Given| {
        let mut given = given.clone();
        if let Some(file) = &given.origin.file {
            let name = file.rsplit('/').next().unwrap_or(file);
            given.origin.file = Some(name.into());
        }
        given
    };
    match provenance {
        Provenance::BuiltIn => provenance.to_string(),
        Provenance::Given(given) => short(given).to_string(),
        Provenance::Computed { how, from } => {
            let from = from.iter().map(short).collect();
            Provenance::Computed { how, from }.to_string()
        }
    }
}

/// A value on one line, without control characters.
fn shown(row: &Row) -> String {
    let value = row.value.as_deref().unwrap_or("");
    value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn to_json(file: &Path, report: &Report) -> Value {
    let file = file.display().to_string();
    match report {
        Report::Rows(rows) => {
            let lines: Vec<_> = rows.iter().map(|row| Value::Object(row_json(row, true))).collect();
            json!({ "file": file, "lines": lines })
        }
        Report::Changes(changes) => {
            let side = |row: &Option<Row>| {
                row.as_ref().map_or(Value::Null, |row| Value::Object(row_json(row, false)))
            };
            let changes: Vec<_> = changes
                .iter()
                .map(|c| json!({ "path": c.path, "before": side(&c.before), "after": side(&c.after) }))
                .collect();
            json!({ "file": file, "changes": changes })
        }
    }
}

fn row_json(row: &Row, with_path: bool) -> Map<String, Value> {
    let mut map = Map::new();
    if with_path {
        map.insert("path".to_owned(), json!(row.path));
    }
    map.insert("value".to_owned(), json!(row.value));
    let (kind, how, from) = match &row.from {
        Provenance::BuiltIn => ("built-in", None, Vec::new()),
        Provenance::Given(given) => ("given", None, vec![given_json(given)]),
        Provenance::Computed { how, from } => {
            ("computed", Some(*how), from.iter().map(given_json).collect::<Vec<_>>())
        }
    };
    map.insert("kind".to_owned(), json!(kind));
    if let Some(how) = how {
        map.insert("how".to_owned(), json!(how));
    }
    map.insert("from".to_owned(), json!(from));
    map
}

fn given_json(given: &Given) -> Value {
    json!({
        "attribute": given.attribute,
        "level": given.origin.level.word(),
        "file": given.origin.file.as_deref(),
        "line": (given.origin.line > 0).then_some(given.origin.line),
    })
}
