//! What runs on a host, all of it in `kvmad-node`: one file or folder per subcommand.

pub mod check;
pub mod monitor;
pub mod root;
pub mod serve;
pub mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What `kvmad-node` was asked to do.
#[derive(Debug, Parser)]
#[command(name = "kvmad-node", version, about = "What kvmad runs on a KVM host")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print version and protocol
    Version,
    /// Run commands for a driver, over stdin and stdout
    #[command(hide = true)]
    Serve(serve::ServeArgs),
}

/// Runs `kvmad-node` with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command {
        Command::Serve(args) => serve::main(&args),
        Command::Version => {
            let text = format!("kvmad-node {}\n", env!("CARGO_PKG_VERSION"));
            match std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
    }
}
