//! `kvmad`, the operator's command: one file per subcommand.
//!
//! Exit status: 0 fine, 1 a finding or a refusal, 2 usage or unreadable input, 3 could not check.

mod completions;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What `kvmad` was asked to do.
#[derive(Debug, Parser)]
#[command(name = "kvmad", version, about = "The operator's command of the KVM driver layer for OpenNebula")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a completion script for a shell
    Completions(completions::Arguments),
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
    let status = match arguments.command {
        Command::Completions(arguments) => completions::run(&arguments),
    };
    ExitCode::from(status)
}
