//! `kvmad check-conf`: what is wrong in vmm_exec_kvm.conf, kvmrc, kvmad.conf, and VMs.

mod attach;
mod attributes;
mod conf;
mod effect;
mod finding;
mod kvmrc;
mod markup;
mod report;
mod settings;
mod shell;
mod vm;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::input::{self, Unreadable};
use crate::template::text::{Gravity, Rules};
use crate::template::{Level, Template};
use finding::{Checked, Kind};

/// Arguments of `kvmad check-conf`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// vmm_exec_kvm.conf, kvmrc, kvmad.conf, VM templates or documents; given together they are checked against each other
    ///
    /// A name with `kvmrc` in it is a kvmrc, one that begins with kvmad.conf the settings of kvmad, one that ends in .tmpl or .xml a VM, all else a vmm_exec_kvm.conf.
    /// A kvmrc is shell: bash evaluates it, in an empty environment, and so runs what stands in it.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// What the files are, instead of telling it from their names
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Longest that bash may take with a kvmrc, in seconds: an action waits as long before it does anything
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    kvmrc_timeout: u64,
    /// Notes count as findings too
    #[arg(long)]
    strict: bool,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Checks all files and reports on `out`.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let (checked, unreadable) = check_all(arguments);
    for error in &unreadable {
        // Nobody is left to tell when stderr is gone.
        let _ = writeln!(err, "{}", super::plain(&error.to_string()));
    }
    let written = match arguments.format {
        Format::Text => report::text(&checked, out),
        Format::Json => report::json(&checked, out),
    };
    match written.and_then(|()| out.flush()) {
        Err(error) => super::unwritten(&error, err),
        Ok(()) if !unreadable.is_empty() => super::USAGE,
        Ok(()) => status(&checked, arguments.strict),
    }
}

fn status(checked: &[Checked], strict: bool) -> u8 {
    let counts = |gravity| strict || gravity != Gravity::Note;
    if checked.iter().flat_map(|file| &file.findings).any(|finding| counts(finding.gravity)) {
        super::FINDING
    } else if checked.iter().any(|file| !file.unchecked.is_empty()) {
        super::UNCHECKED
    } else {
        super::FINE
    }
}

fn check_all(arguments: &Arguments) -> (Vec<Checked>, Vec<Unreadable>) {
    let mut unreadable = Vec::new();
    let mut checked = Vec::new();
    let kind = |path: &Path| arguments.kind.unwrap_or_else(|| Kind::of(path));
    // The defaults first: the others are checked against them.
    let mut defaults: Option<Template> = None;
    for path in arguments.files.iter().filter(|path| kind(path) == Kind::Conf) {
        match input::text(path, Level::Defaults, Rules::DEFAULTS) {
            Err(error) => unreadable.push(error),
            Ok(text) => {
                checked.push(conf::check(&text));
                defaults = Some(text.parsed.template);
            }
        }
    }
    for path in arguments.files.iter().filter(|path| kind(path) != Kind::Conf) {
        let result = match kind(path) {
            Kind::Kvmrc => {
                kvmrc::check(path, defaults.as_ref(), Duration::from_secs(arguments.kvmrc_timeout))
            }
            Kind::Settings => settings::check(path),
            _ => vm::check(path, defaults.as_ref()),
        };
        match result {
            Ok(file) => checked.push(file),
            Err(error) => unreadable.push(error),
        }
    }
    (checked, unreadable)
}

/// `io::Result` of the reports.
type Written = io::Result<()>;
