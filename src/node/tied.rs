//! `kvmad-node tied`: becomes another program that ends when its parent does, however that ends. The kernel's wish
//! for a signal at the parent's death outlives the change of program.

use std::process::ExitCode;

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::host::process::Start;

/// Arguments of `kvmad-node tied`.
#[derive(Debug, Args)]
pub struct TiedArgs {
    /// Process number of the parent: when it has died already there is nothing to become
    #[arg(long)]
    parent: i32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Becomes the program.
#[must_use]
pub fn main(args: &TiedArgs) -> ExitCode {
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    let orphaned = getppid().is_none_or(|pid| pid.as_raw_nonzero().get() != args.parent);
    let Some((program, rest)) = args.command.split_first().filter(|_| tied.is_ok() && !orphaned) else {
        return ExitCode::from(255);
    };
    let error = Start::new(program).args(rest).exec();
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{error}\n").as_bytes());
    ExitCode::from(127)
}
