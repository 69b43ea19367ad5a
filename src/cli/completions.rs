//! `kvmad completions`: completion scripts for shells.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Arguments of `kvmad completions`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The shell that will read the script
    shell: Shell,
}

/// Prints the script on `out`.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let mut command = super::Arguments::command();
    // Into memory first: it takes for granted that it can write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "kvmad", &mut script);
    match out.write_all(&script).and_then(|()| out.flush()) {
        Ok(()) => super::FINE,
        Err(error) => super::unwritten(&error, err),
    }
}
