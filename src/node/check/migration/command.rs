//! `kvmad-node migration`: what `kvmad migrate-check` and the doctor run on each of two hosts.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Subcommand;
use tokio::signal::unix::{SignalKind, signal};

use super::hold::{self, Held, Markers};
use super::side::{self, Kvmrc, Request};
use crate::node::monitor::virsh::Virsh;
use crate::node::root::Root;
use crate::node::tools::Real;

/// What is asked.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the XML of a domain as it would go to another host; nothing when there is no such domain
    Domain {
        /// Its name or UUID
        #[arg(allow_hyphen_values = true)]
        domain: String,
    },
    /// Hold a port and marker files ready for the other host until TERM, or for so many seconds
    Hold {
        /// A folder that gets a marker file
        #[arg(long = "marker", value_name = "FOLDER")]
        markers: Vec<String>,
        /// Give up after so many seconds
        #[arg(long, default_value_t = 120)]
        seconds: u64,
    },
    /// Look at this host and the other one: the request as JSON on stdin, the answer as JSON on stdout
    Side,
}

const LIMIT: Duration = Duration::from_secs(20);

/// Runs it. Exit status: 0 done, 1 not possible (the reason on stderr), 2 usage.
#[must_use]
pub fn main(command: Command) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return told(Err(format!("no runtime: {error}"))),
    };
    let result = runtime.block_on(async {
        match command {
            Command::Domain { domain } => print_domain(&domain).await,
            Command::Hold { markers, seconds } => hold(&markers, Duration::from_secs(seconds)).await,
            Command::Side => look().await,
        }
    });
    // Threads that wait for a hung file system are left behind.
    runtime.shutdown_timeout(Duration::from_millis(50));
    told(result)
}

fn told(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // Nobody is left to tell when stderr is gone.
            let _ = std::io::stderr().write_all(format!("{}\n", reason.replace('\n', "; ")).as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// A variable of kvmrc, which the script has loaded.
fn variable(name: &str, default: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned())
}

fn libvirt() -> Virsh {
    Virsh::new(Arc::new(Real::default()), &variable("LIBVIRT_URI", "qemu:///system"), LIMIT)
}

async fn print_domain(domain: &str) -> Result<(), String> {
    let libvirt = libvirt();
    let sights = libvirt.look().await?;
    if !sights.iter().any(|sight| sight.name == domain || sight.uuid == domain) {
        return Ok(());
    }
    let xml = libvirt.run(&["dumpxml", "--migratable", "--domain", domain], Bytes::new(), LIMIT).await?;
    std::io::stdout().write_all(xml.as_bytes()).map_err(|error| error.to_string())
}

async fn hold(folders: &[String], limit: Duration) -> Result<(), String> {
    // Before anything is made: from now on TERM leaves nothing behind.
    let mut term = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut markers = Markers::default();
    let listening = hold::listen(hold::port_range(&Root::system())).await;
    let held = Held {
        hostname: libvirt()
            .run(&["hostname"], Bytes::new(), LIMIT)
            .await
            .ok()
            .map(|name| name.trim().to_owned()),
        port: Some(listening.as_ref().map(|(_, port)| *port).map_err(Clone::clone)),
        markers: folders.iter().map(|folder| markers.make(folder)).collect(),
    };
    let line = serde_json::to_string(&held).map_err(|error| error.to_string())?;
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).map_err(|error| error.to_string())?;
    let accepting = async {
        match listening {
            Ok((listener, _)) => hold::accept(listener).await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = term.recv() => {}
        () = tokio::time::sleep(limit) => {}
    }
    drop(markers);
    Ok(())
}

async fn look() -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().take(64 << 20).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let request: Request = serde_json::from_str(&text).map_err(|error| format!("the request: {error}"))?;
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let kvmrc = Kvmrc::read(set, &request.peer);
    let side = side::look(&libvirt(), &Root::system(), &request, &kvmrc).await;
    let answer = serde_json::to_string(&side).map_err(|error| error.to_string())?;
    std::io::stdout().write_all(format!("{answer}\n").as_bytes()).map_err(|error| error.to_string())
}
