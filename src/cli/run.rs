//! `kvmad run`: one action, carried out by the driver's own code, with its steps and their times; or its plan.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Table, presets};

use crate::host::{Place, Pool, PoolOptions};
use crate::mad::actions::{Answer, Context, Severity};
use crate::mad::options::VmmOptions;
use crate::settings::{Paths, Settings};
use crate::start::Started;
use crate::vmm::execute::{Event, Executor};
use crate::vmm::payload::{Action, PayloadError};
use crate::vmm::plan::{self, Form, Plan, Settle, Step, Undo};
use crate::vmm::setup::Setup;
use crate::vmm::start;
use crate::vmm::verb::Verb;

/// Arguments of `kvmad run`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Without --dry-run the action is carried out on its host, and oned knows nothing of it: DEPLOY starts the VM, CANCEL ends \
it. The document is what oned sends the driver with an action; the guide (docs/guide.md, \"Look at one action\") says how to \
record it. In NNN_VERB.xml NNN is any number, VERB the action: 042_DEPLOY.xml.")]
pub struct Arguments {
    /// An action document (XML or base64), or a line that oned sent; - for stdin
    file: PathBuf,
    /// The action [default: from a file name NNN_VERB.xml, else FILE holds a driver line]
    #[arg(long)]
    verb: Option<String>,
    /// Print what would be run, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Run what is for a host on this machine
    #[arg(long)]
    local: bool,
    /// ARGUMENTS of the VM_MAD in oned.conf
    #[arg(long, value_name = "ARGUMENTS", default_value = "kvm", allow_hyphen_values = true)]
    driver: String,
}

/// Plans or carries out the action; steps and reply go to `out`, the log of the action to `err`.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let (verb, action) = match read(arguments) {
        Ok(read) => read,
        Err(reason) => return told(err, &format!("{}: {reason}", arguments.file.display()), super::USAGE),
    };
    let options = match VmmOptions::parse("one_vmm_exec", [arguments.driver.clone()]) {
        Ok((options, _)) => options,
        Err(error) => return told(err, &error.to_string(), super::USAGE),
    };
    let started = match surroundings() {
        Ok(started) => started,
        Err(reason) => return told(err, &reason, super::USAGE),
    };
    let setup = Setup::of_driver(&options, |name| started.variable(name));
    let mut plan = match plan::plan(verb, &action, &setup) {
        Ok(plan) => plan,
        Err(refusal) => return told(err, &format!("{verb} is refused: {refusal}"), super::FINDING),
    };
    if arguments.local {
        plan.steps.iter_mut().for_each(here);
    }
    if arguments.dry_run {
        return match write!(out, "{plan}") {
            Ok(()) => super::FINE,
            Err(error) => super::unwritten(&error, err),
        };
    }
    match carry_out(&plan, &options, &started) {
        Ok(done) => show(&plan, &done, out, err),
        Err(reason) => told(err, &reason, super::UNCHECKED),
    }
}

const NO_DOCUMENT: &str = "it is no action document: neither XML nor the base64 of one";

fn told(err: &mut dyn Write, text: &str, status: u8) -> u8 {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(err, "{text}");
    status
}

/// The settings and rc files of the front-end, without what a driver changes about its own process.
pub(super) fn surroundings() -> Result<Started, String> {
    let paths = Paths::from_environment();
    let (settings, _) = Settings::load(&paths).map_err(|error| error.to_string())?;
    let own_rc = paths.vmm_execrc();
    let (core, _) = paths.core_config();
    let environment = crate::start::environment(&[&paths.defaultrc(), &own_rc]);
    Ok(Started { paths, settings, core, environment, fault: None })
}

fn read(arguments: &Arguments) -> Result<(Verb, Action), String> {
    let text = contents(&arguments.file)?;
    let named = match &arguments.verb {
        Some(name) => Some(known(name)?),
        None => from_file_name(&arguments.file),
    };
    let line = text.trim();
    let (verb, document) = match named {
        Some(verb) => (verb, last_word(line)),
        None => from_line(line)?,
    };
    let action =
        if document.starts_with('<') { Action::from_xml(document) } else { Action::from_payload(document) };
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    action.map(|action| (verb, action)).map_err(|error| match error {
        // The driver takes any bytes for base64, as OpenNebula's does; a file that was named wrongly is told so.
        error if document.starts_with('<') || document.is_empty() => error.to_string(),
        PayloadError::NotUtf8(_) => NO_DOCUMENT.to_owned(),
        _ if !document.bytes().all(base64) => NO_DOCUMENT.to_owned(),
        error => error.to_string(),
    })
}

fn contents(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ())
    } else {
        std::fs::read(file).map(|all| bytes = all)
    };
    read.map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

fn known(name: &str) -> Result<Verb, String> {
    Verb::from_wire(name).ok_or_else(|| {
        let all: Vec<&str> = Verb::all().map(Verb::wire).collect();
        format!("{name:?} is no action; known are {}", all.join(" "))
    })
}

/// `004_ATTACHDISK.xml`.
fn from_file_name(file: &Path) -> Option<Verb> {
    let stem = file.file_stem()?.to_str()?;
    let (number, verb) = stem.split_once('_')?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| Verb::from_wire(verb)).flatten()
}

/// A document in XML is taken whole; of a driver line the payload is its last word.
fn last_word(text: &str) -> &str {
    if text.starts_with('<') { text } else { text.split_whitespace().next_back().unwrap_or("") }
}

fn from_line(line: &str) -> Result<(Verb, &str), String> {
    let mut words = line.strip_prefix("> ").unwrap_or(line).split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(verb), Some(_), Some(payload)) if !verb.starts_with('<') => Ok((known(verb)?, payload)),
        _ => {
            Err("the action is not known: give --verb, name the file NNN_VERB.xml, or give a line that oned \
                  sent (VERB ID DOCUMENT)"
                .to_owned())
        }
    }
}

/// The step with everything on this machine.
fn here(step: &mut Step) {
    for call in &mut step.calls {
        call.place = Place::Local;
        if call.stdin.form == Form::LocalScript {
            call.stdin.form = Form::Line;
        }
    }
    for undo in &mut step.undo {
        if let Undo::Step(undo) = undo {
            here(undo);
        }
    }
    if let Some(Settle::Ask { after, before }) = &mut step.settle {
        here(after);
        here(before);
    }
}

/// One line of the table.
struct Row {
    what: String,
    place: String,
    took: Option<Duration>,
    result: String,
}

struct Done {
    answer: Answer,
    rows: Vec<Row>,
    took: Duration,
}

fn carry_out(plan: &Plan, options: &VmmOptions, started: &Started) -> Result<Done, String> {
    let runtime = start::runtime().map_err(|error| error.to_string())?;
    let rows: Arc<Mutex<Vec<Row>>> = Arc::default();
    runtime.block_on(async {
        let options_of_pool =
            PoolOptions::new(&started.settings, &started.paths, started.core.scripts_remote_dir());
        let pool = Arc::new(Pool::new(options_of_pool).map_err(|error| error.to_string())?);
        let executor = start::executor(pool.clone(), options, started);
        let executor = observed(executor, &rows);
        let begin = Instant::now();
        let context = Context::alone(Arc::new(|severity, text: &str| log(severity, text)));
        let cancel = context.cancel.clone();
        let interrupt = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                cancel.cancel();
            }
        });
        let answer = executor.run(plan, &context).await;
        interrupt.abort();
        let took = begin.elapsed();
        pool.close().await;
        let rows = std::mem::take(&mut *rows.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Done { answer, rows, took })
    })
}

fn observed(executor: Executor, rows: &Arc<Mutex<Vec<Row>>>) -> Executor {
    let rows = Arc::clone(rows);
    let roll_back = Mutex::new(false);
    executor.with_observer(Arc::new(move |event| {
        let mut undoing = roll_back.lock().unwrap_or_else(PoisonError::into_inner);
        let row = match event {
            Event::Begins(_, undoes) => {
                *undoing = undoes;
                return;
            }
            Event::LeftOut(step, why) => row(step, *undoing, None, format!("left out: {why}")),
            Event::Ended(step, took, Ok("")) => row(step, *undoing, Some(took), "done".to_owned()),
            Event::Ended(step, took, Ok(output)) => {
                row(step, *undoing, Some(took), format!("done: {output}"))
            }
            Event::Ended(step, took, Err(why)) => row(step, *undoing, Some(took), format!("FAILED: {why}")),
        };
        rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
    }))
}

fn row(step: &Step, undoing: bool, took: Option<Duration>, result: String) -> Row {
    let place = step.calls.first().map(|call| match &call.place {
        Place::Local => "front-end".to_owned(),
        Place::Host { name, .. } => name.to_string(),
    });
    let mark = if undoing { "roll-back, " } else { "" };
    let what = format!("{mark}{}: {}", step.kind.name(), step.name);
    Row { what, place: place.unwrap_or_default(), took, result }
}

fn log(severity: Severity, text: &str) {
    let letter = match severity {
        Severity::Debug => 'D',
        Severity::Info => 'I',
        Severity::Warning => 'W',
        Severity::Error => 'E',
    };
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(std::io::stderr(), "[{letter}] {text}");
}

fn show(plan: &Plan, done: &Done, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let mut table = Table::new();
    let preset =
        if std::io::stdout().is_terminal() { presets::UTF8_FULL_CONDENSED } else { presets::NOTHING };
    table.load_style(preset);
    table.set_header(["step", "on", "ms", "result"]);
    for row in &done.rows {
        let took = row.took.map(|took| took.as_millis().to_string()).unwrap_or_default();
        table.add_row([row.what.as_str(), &row.place, &took, &row.result]);
    }
    let (status, word, info) = match &done.answer {
        Answer::Success(info) => (super::FINE, "SUCCESS", info),
        Answer::Failure(info) => (super::FINDING, "FAILURE", info),
    };
    let prefix = plan.prefix.as_ref().map(|prefix| format!("{prefix} ")).unwrap_or_default();
    let reply = format!("{} {word} {} {prefix}{info}", plan.verb, plan.vm);
    match writeln!(out, "{table}\n{reply}\n{} ms in all", done.took.as_millis()) {
        Ok(()) => status,
        Err(error) => status.max(super::unwritten(&error, err)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    const DOCUMENT: &str = "<VMM_DRIVER_ACTION_DATA><HOST>h1</HOST><DEPLOY_ID>one-7</DEPLOY_ID><VM><ID>7</ID></VM>\
         </VMM_DRIVER_ACTION_DATA>";

    fn dry_run(name: &str, text: &str, verb: Option<&str>) -> (u8, String, String) {
        let dir = tempfile::tempdir().expect("folder");
        let file = dir.path().join(name);
        std::fs::write(&file, text).expect("file");
        let verb = verb.map(str::to_owned);
        let driver = "kvm".to_owned();
        let arguments = Arguments { file, verb, dry_run: true, local: false, driver };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = run(&arguments, &mut out, &mut err);
        (status, String::from_utf8(out).expect("utf-8"), String::from_utf8(err).expect("utf-8"))
    }

    #[test]
    fn the_verb_is_given_or_stands_in_the_file_name_or_in_the_line() {
        let packed = STANDARD.encode(DOCUMENT);
        for (name, text, verb) in [
            ("x", DOCUMENT.to_owned(), Some("reboot")),
            ("002_REBOOT.xml", DOCUMENT.to_owned(), None),
            ("002_REBOOT.xml", packed.clone(), None),
            ("line", format!("REBOOT  7 {packed} \n"), None),
            ("line", format!("> REBOOT 7 {packed}\n"), None),
            ("002_RESET.xml", format!("RESET 7 {packed}\n"), Some("REBOOT")),
        ] {
            let (status, out, err) = dry_run(name, &text, verb);
            assert_eq!((status, err.as_str()), (super::super::FINE, ""), "{name}");
            assert!(out.starts_with("REBOOT of VM 7 on h1\n"), "{out}");
        }
    }

    #[test]
    fn what_can_not_be_understood_is_wrong_usage() {
        for (name, text, verb) in [
            ("x", DOCUMENT, None),
            ("REBOOT.xml", DOCUMENT, None),
            ("002_NONSENSE.xml", DOCUMENT, None),
            ("x", DOCUMENT, Some("NONSENSE")),
            ("002_REBOOT.xml", "", None),
            ("002_REBOOT.xml", "<A/>", None),
        ] {
            let (status, out, err) = dry_run(name, text, verb);
            assert_eq!((status, out.as_str()), (super::super::USAGE, ""), "{name}");
            assert_eq!(err.lines().count(), 1, "{err}");
        }
    }

    #[test]
    fn an_action_that_the_driver_would_refuse_is_a_finding() {
        let (status, _, err) = dry_run("x", DOCUMENT, Some("SAVE"));
        assert_eq!(status, super::super::FINDING);
        assert_eq!(err, "SAVE is refused: Cannot perform SAVE, expecting CHECKPOINT_FILE\n");
    }

    #[test]
    fn with_local_everything_is_on_this_machine() {
        let action = Action::from_xml(DOCUMENT).expect("good");
        let mut plan = plan::plan(Verb::Reboot, &action, &Setup::new("kvm")).expect("a plan");
        plan.steps.iter_mut().for_each(here);
        assert_eq!(plan.steps[0].calls[0].place, Place::Local);
        assert_eq!(plan.steps[0].calls[0].stdin.form, Form::Line);
    }
}
