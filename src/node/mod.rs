//! What runs on a host, all of it in `kvmad-node`: one file or folder per subcommand.

pub mod agent;
pub mod check;
pub mod cloud;
pub mod migrate;
pub mod monitor;
pub mod root;
pub mod serve;
pub mod tied;
pub mod tools;
pub mod vnm;
pub mod xml;

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
    /// Exchange two folders in one step
    #[command(hide = true)]
    Swap {
        /// One
        one: std::path::PathBuf,
        /// The other
        other: std::path::PathBuf,
    },
    /// Run commands for a driver, over stdin and stdout
    Serve(serve::ServeArgs),
    /// Requests to a guest's agent and its answers, for the action scripts
    Agent {
        #[command(subcommand)]
        command: agent::Command,
    },
    /// Settings of the network drivers for their scripts
    Vnm {
        #[command(subcommand)]
        command: vnm::Command,
    },
    /// Whether VMs can migrate between this host and another one; for `kvmad migrate-check` and the doctor
    Migration {
        #[command(subcommand)]
        command: check::migration::command::Command,
    },
    /// Read and change XML for the action scripts
    Xml {
        #[command(subcommand)]
        command: xml::Command,
    },
    /// VMs from cloud images: fetch, prepare, list, delete
    Cloud {
        #[command(subcommand)]
        command: cloud::Command,
    },
    /// Start, stop or be the monitoring agent of a host
    Monitor(monitor::command::MonitorArgs),
    /// Print what the monitoring agents of this machine have done
    Status(monitor::command::StatusArgs),
    /// Print the figures of the monitoring agents as Prometheus text
    Metrics(monitor::command::MetricsArgs),
    /// Check whether this host is fit for VMs, and print what was found as JSON
    Check(check::command::CheckArgs),
    /// Look at this host and its VMs once, and print it as JSON
    Look(monitor::command::LookArgs),
    /// Move a running domain to another host or datastore, for the action script
    Migrate(migrate::MigrateArgs),
    /// Take the files of a VM that comes to this host
    #[command(hide = true)]
    Receive,
    /// Become a program that ends with its parent
    #[command(hide = true)]
    Tied(tied::TiedArgs),
}

/// Runs `kvmad-node` with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command {
        Command::Swap { one, other } => swap(&one, &other),
        Command::Serve(args) => serve::main(&args),
        Command::Agent { command } => agent::main(command),
        Command::Vnm { command } => vnm::main(command),
        Command::Migration { command } => check::migration::command::main(command),
        Command::Xml { command } => xml::main(command),
        Command::Cloud { command } => cloud::main(command),
        Command::Monitor(args) => monitor::command::monitor(args),
        Command::Status(args) => monitor::command::status(&args),
        Command::Metrics(args) => monitor::command::metrics(&args),
        Command::Check(args) => check::command::main(args),
        Command::Look(args) => monitor::command::look(args),
        Command::Receive => migrate::receive::main(),
        Command::Migrate(args) => migrate::main(&args),
        Command::Tied(args) => tied::main(&args),
        Command::Version => {
            let text = format!("kvmad-node {}\n", env!("CARGO_PKG_VERSION"));
            match std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
    }
}

/// Fails on file systems that can't do it; the caller then renames in two steps.
fn swap(one: &std::path::Path, other: &std::path::Path) -> ExitCode {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
