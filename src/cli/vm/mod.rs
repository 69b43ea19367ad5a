//! `kvmad vm`: VMs from cloud images on a host, through the driver's own DEPLOY and CANCEL, without any other service.

mod action;
mod address;
mod console;
mod create;
mod delete;
mod domain;
mod explain;
mod list;
mod site;
mod size;
mod start;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::host::HostName;
use crate::node::cloud::spec::check_name;
use crate::settings::value::Value as _;
use crate::settings::{Folder, Settings};

/// Arguments of `kvmad vm`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a VM from a cloud image and start it
    Create(Box<create::Arguments>),
    /// Start a VM that was shut down
    Start(start::Arguments),
    /// List the VMs of hosts
    List(list::Arguments),
    /// Take over the serial console of a VM (Ctrl-] leaves it)
    Console(console::Arguments),
    /// Tell the addresses of a VM
    Address(address::Arguments),
    /// End a VM and delete its disk
    Delete(delete::Arguments),
}

/// Which VM.
#[derive(Debug, Args)]
struct Which {
    /// Name of the VM; its domain is kvmad-NAME
    #[arg(value_parser = name)]
    name: String,
    /// The host
    #[arg(long, value_parser = host)]
    host: HostName,
}

/// Where VMs are on a host.
#[derive(Debug, Args)]
struct Place {
    /// Folder of the VMs on the host [default: images of [cloud] in kvmad.conf]
    #[arg(long, value_name = "FOLDER", value_parser = folder)]
    images_path: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// JSON
    Json,
}

impl Place {
    fn images(&self, settings: &Settings) -> PathBuf {
        self.images_path.clone().unwrap_or_else(|| settings.cloud.images.0.clone())
    }
}

fn host(text: &str) -> Result<HostName, String> {
    HostName::new(text).map_err(|error| error.to_string())
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

/// A folder on the host; a relative one starts here.
fn folder(text: &str) -> Result<PathBuf, String> {
    Folder::read(text).map(|folder| folder.0)
}

/// Why it did not come to what was asked for: the text and the exit status.
#[derive(Debug)]
struct Stop {
    reason: String,
    status: u8,
}

impl Stop {
    /// A finding or refusal.
    fn finding(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), status: super::FINDING }
    }

    /// Wrong usage or unreadable input.
    fn usage(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), status: super::USAGE }
    }

    /// It could not be found out.
    fn unchecked(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), status: super::UNCHECKED }
    }
}

/// Does it; what is made or asked for goes to `out`, what happens on the way and what went wrong to `err`.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let text = match &arguments.command {
        Command::Create(arguments) => create::run(arguments),
        Command::Start(arguments) => start::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Console(arguments) => console::run(arguments, err),
        Command::Address(arguments) => address::run(arguments),
        Command::Delete(arguments) => delete::run(arguments),
    };
    match text {
        Ok(text) => match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => super::FINE,
            Err(error) => super::unwritten(&error, err),
        },
        Err(stop) => {
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(err, "{}", super::plain(&stop.reason));
            stop.status
        }
    }
}
