//! `kvmad completions`: completion scripts for shells.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Arguments of `kvmad completions`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The shell that will read the script
    shell: Shell,
}

/// Prints the script.
pub fn run(arguments: &Arguments) -> u8 {
    let mut command = super::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "kvmad", &mut std::io::stdout());
    super::FINE
}
