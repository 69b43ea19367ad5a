//! `kvmad-node serve`: runs many commands at once for a driver, over one pair of pipes.
//!
//! Each command leads a process group of its own. When the driver goes away (its end of the pipe closes, or it
//! gives no sign of life), every group gets TERM, its grace, KILL; then this program ends too. What runs is also
//! written down, so that the next one can find and end what a killed one left.

mod channel;
mod command;
mod orphans;
mod records;
mod stdio;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::host::process::settle;

/// Options of `kvmad-node serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Seconds between two questions whether the driver is there
    #[arg(long, default_value_t = 15)]
    ping: u64,
    /// Without a sign of life from the driver for so many seconds it is taken as gone
    #[arg(long, default_value_t = 45)]
    dead: u64,
    /// Folder in which running commands are written down
    #[arg(long, default_value = "/var/tmp/one_db/kvmad/serve")]
    state: PathBuf,
    /// Folder of the remotes, whose stamp is told; by default the one that this program stands in
    #[arg(long)]
    remotes: Option<PathBuf>,
}

/// Serves the driver at stdin and stdout until it goes away.
#[must_use]
pub fn main(args: &ServeArgs) -> ExitCode {
    settle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return ExitCode::FAILURE };
    let served = runtime.block_on(serve(args));
    // What reads stdin may sit in a thread that nothing ends.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

async fn serve(args: &ServeArgs) -> std::io::Result<()> {
    let stop = CancellationToken::new();
    let (ending, stopped) = (stop.clone(), stop.clone());
    let mut hangup = signal(SignalKind::hangup())?;
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let signals = tokio::spawn(async move {
        loop {
            tokio::select! {
                // The session went away; whether the driver did is told by the pipe.
                _ = hangup.recv() => {}
                _ = term.recv() => ending.cancel(),
                _ = interrupt.recv() => ending.cancel(),
            }
        }
    });
    let hello = crate::wire::Hello {
        protocol: crate::wire::PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        stamp: records::stamp(args.remotes.as_deref()),
    };
    let records = records::Records::open(&args.state);
    let times = channel::Times { ping: Duration::from_secs(args.ping), dead: Duration::from_secs(args.dead) };
    channel::serve(stdio::input()?, stdio::output()?, &hello, records, times, stopped).await;
    signals.abort();
    Ok(())
}
