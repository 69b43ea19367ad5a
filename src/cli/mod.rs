//! `kvmad`, the operator's command: one file per subcommand.
//!
//! Exit status: 0 fine, 1 a finding or a refusal, 2 usage or unreadable input, 3 could not check.

mod check_conf;
mod completions;
mod decode;
mod doctor;
mod domain;
mod domain_xml;
pub mod driver_help;
mod explain;
mod input;
mod install_remotes;
mod man;
pub mod migrate_check;
mod monitor;
mod pretty;
mod run;
mod schema;
mod sync;
mod vm;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What `kvmad` was asked to do.
#[derive(Debug, Parser)]
#[command(name = "kvmad", version, about = "The operator's command of the KVM driver layer for OpenNebula")]
#[command(
    after_help = "Exit status: 0 fine, 1 a finding or a refusal, 2 wrong usage or unreadable input, 3 could not check"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check whether hosts are fit for VMs, say what mends them, and mend what can be mended safely
    Doctor(doctor::Arguments),
    /// Find mistakes in vmm_exec_kvm.conf, kvmrc and VMs
    CheckConf(check_conf::Arguments),
    /// Print the libvirt domain of a VM
    DomainXml(domain_xml::Arguments),
    /// Show what gave each value of a VM's domain, or what other defaults would change
    Explain(explain::Arguments),
    /// Carry out one action as the driver would, or show its plan
    Run(run::Arguments),
    /// Push the remotes to hosts and say what changed
    Sync(sync::Arguments),
    /// Look at hosts and their VMs
    Monitor(monitor::Arguments),
    /// Check whether a VM can be migrated live to a host
    MigrateCheck(migrate_check::Arguments),
    /// VMs from cloud images: make, list, reach, delete
    Vm(vm::Arguments),
    /// Make the lines of a driver log on stdin readable: base64, compressed data, XML
    Decode(decode::Arguments),
    /// Lay kvmad's scripts over a front-end's remotes, with a way back
    InstallRemotes(install_remotes::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Write the manual pages
    #[command(hide = true)]
    Man(man::Arguments),
}

/// Fine.
pub const FINE: u8 = 0;
/// A finding or a refusal.
pub const FINDING: u8 = 1;
/// Wrong usage, or input that can't be read.
pub const USAGE: u8 = 2;
/// It could not be checked.
pub const UNCHECKED: u8 = 3;

/// Runs `kvmad` with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (out, err) = (&mut std::io::stdout(), &mut std::io::stderr());
    let status = match arguments.command {
        Command::Doctor(arguments) => doctor::run(&arguments, &mut std::io::stdin().lock(), out, err),
        Command::CheckConf(arguments) => check_conf::run(&arguments, out, err),
        Command::DomainXml(arguments) => domain_xml::run(&arguments, out, err),
        Command::Explain(arguments) => explain::run(&arguments, out, err),
        Command::Run(arguments) => run::run(&arguments, out, err),
        Command::Sync(arguments) => sync::run(&arguments, out, err),
        Command::Monitor(arguments) => monitor::run(&arguments, out, err),
        Command::MigrateCheck(arguments) => migrate_check::run(&arguments, out, err),
        Command::Vm(arguments) => vm::run(&arguments, out, err),
        Command::Decode(arguments) => decode::run(&arguments, &mut std::io::stdin().lock(), out, err),
        Command::InstallRemotes(arguments) => install_remotes::run(&arguments, out, err),
        Command::Completions(arguments) => completions::run(&arguments, out, err),
        Command::Man(arguments) => man::run(&arguments, err),
    };
    ExitCode::from(status)
}

/// `text` without what would drive the terminal of its reader: control characters become U+FFFD.
fn plain(text: &str) -> String {
    text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), "\u{fffd}")
}

/// Tells that the output could not be written, and gives the exit status. A reader that went away had enough: that is
/// fine, and nothing is told.
fn unwritten(error: &io::Error, err: &mut dyn Write) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return FINE;
    }
    // Nobody is left to tell when stderr is gone too.
    let _ = writeln!(err, "the output can't be written: {error}");
    UNCHECKED
}
