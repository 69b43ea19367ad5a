//! `kvmad-node migrate`: moves a running domain to another host or datastore. The action scripts `migrate` and
//! `migrate_local` load kvmrc and hand over to it.
//!
//! One file a job: what is asked ([`action`]), how ([`settings`], [`transport`]), each host's libvirt ([`libvirt`]), the
//! migration itself ([`migration`], [`hosts`], [`transfer`], [`job`], [`stall`]), the truth after trouble ([`judge`], [`truth`]), the snapshots
//! ([`snapshots`]), the files of local storage ([`storage`], [`image`], [`files`], [`copy`], [`receive`]), the move
//! between datastores of a host ([`datastore`]), small things around it ([`after`]).

pub mod action;
pub mod after;
pub mod copy;
pub mod datastore;
pub mod files;
pub mod hosts;
pub mod image;
pub mod job;
pub mod judge;
pub mod libvirt;
pub mod migration;
pub mod receive;
pub mod settings;
pub mod snapshots;
pub mod stall;
pub mod storage;
pub mod transfer;
pub mod transport;
pub mod truth;
pub mod voice;

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::host::process;
use crate::node::tools::Real;
use action::Action;
use migration::Migration;
use settings::Settings;
use voice::Voice;

/// Exit status when nobody can tell where the VM runs: the driver, which may reach both hosts, is to find out before it
/// undoes anything.
pub const NOT_KNOWN: u8 = 75;

/// Arguments of the action script, and where it runs.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The source is another host, too: this runs on the front-end
    #[arg(long)]
    from_afar: bool,
    /// The folder of remotes, the same on every host
    #[arg(long, default_value = "/var/tmp/one")]
    remote: String,
    /// uuid or name of the domain
    #[arg(allow_hyphen_values = true)]
    deploy_id: String,
    /// Host to which it goes
    target: String,
    /// Host on which it is
    source: String,
    /// Number of the VM
    vm: String,
    /// The source again, as the driver appends it
    host: Option<String>,
}

/// How a migration ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The VM is where it was to go.
    Done,
    /// It is not; why, and where it is.
    Failed(String),
    /// Nobody can tell; why.
    Unknown(String),
}

/// Migrates as the arguments and the document on stdin say.
#[must_use]
pub fn main(args: &MigrateArgs) -> ExitCode {
    process::settle();
    let script = if args.from_afar { "migrate_local" } else { "migrate" };
    let voice = Voice::new(script, Box::new(std::io::stderr()));
    let end = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let end = runtime.block_on(migrate(args, &voice));
            runtime.shutdown_background();
            end
        }
        Err(error) => End::Failed(format!("no runtime: {error}")),
    };
    match end {
        End::Done => ExitCode::SUCCESS,
        End::Failed(text) => {
            voice.reason(&text);
            ExitCode::FAILURE
        }
        End::Unknown(text) => {
            voice.reason(&text);
            ExitCode::from(NOT_KNOWN)
        }
    }
}

async fn migrate(args: &MigrateArgs, voice: &Voice) -> End {
    let term = CancellationToken::new();
    if let Err(error) = listen(&term) {
        return End::Failed(format!("signals can't be received: {error}"));
    }
    let mut document = String::new();
    if let Err(error) = std::io::stdin().lock().read_to_string(&mut document) {
        return End::Failed(format!("the action can't be read: {error}"));
    }
    let action = match Action::read(&args.deploy_id, &args.target, &args.source, &args.vm, &document) {
        Ok(action) => action,
        Err(why) => return End::Failed(format!("Could not migrate domain {}: {why}", args.deploy_id)),
    };
    let kvmrc = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let (settings, notes) = Settings::read(&kvmrc, &|name| action.feature(name));
    for note in notes {
        voice.warning(&note);
    }
    let migration = Migration {
        action: &action,
        settings: &settings,
        kvmrc: &kvmrc,
        voice,
        term: &term,
        tools: Arc::new(Real::default()),
        from_afar: args.from_afar,
        remote: &args.remote,
    };
    if action.source != action.target {
        return migration.to_another_host().await;
    }
    match migration.sides() {
        Ok((host, _)) if !args.from_afar => datastore::run(&migration, &host).await,
        Ok(_) => migration.failed("only the script migrate can move a VM to another datastore of its host"),
        Err(why) => migration.failed(&why),
    }
}

/// TERM, INT and HUP ask for the end: the driver is gone, has cancelled the action, or its time is over.
fn listen(term: &CancellationToken) -> std::io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut signals = signal(kind)?;
        let term = term.clone();
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                term.cancel();
            }
        });
    }
    Ok(())
}
