//! `kvmad-node check`: what `kvmad doctor` runs on a host. Exit status: 0 checked (whatever was found), 1 not possible.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use clap::Args;

use super::edit::Edit;
use super::host::{Host, Wanted};
use super::report::{Chosen, report};
use crate::node::root::Root;
use crate::node::tools::Real;

/// Arguments of `kvmad-node check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    chosen: Chosen,
    /// Show what the edits on stdin (JSON) would change
    #[arg(long, hide = true, conflicts_with = "apply")]
    show: bool,
    /// Make the edits on stdin (JSON); the value ends the names of backups
    #[arg(long, hide = true, value_name = "SUFFIX")]
    apply: Option<String>,
}

/// Longest list of edits.
const LONGEST: u64 = 4 << 20;

/// Checks, or edits.
#[must_use]
pub fn main(args: CheckArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(answer(args)),
        Err(error) => Err(error.to_string()),
    };
    let written = result.and_then(|text| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| error.to_string())
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::FAILURE
        }
    }
}

async fn answer(args: CheckArgs) -> Result<String, String> {
    let json = |value: Result<String, serde_json::Error>| value.map_err(|error| error.to_string());
    if !args.show && args.apply.is_none() {
        let report = report(&Host::this(args.wanted).await, &args.chosen).await;
        return json(serde_json::to_string(&report));
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().take(LONGEST).read_to_string(&mut text);
    read.map_err(|error| format!("the edits on stdin can't be read: {error}"))?;
    let edits: Vec<Edit> =
        serde_json::from_str(&text).map_err(|error| format!("the edits on stdin: {error}"))?;
    match args.apply {
        None => json(serde_json::to_string(&shown(&Root::system(), &edits))),
        Some(suffix) => json(serde_json::to_string(&applied(&Root::system(), &edits, &suffix).await)),
    }
}

/// For each edit the lines that show it (none when it is already so), or why that can't be told.
#[must_use]
pub fn shown(root: &Root, edits: &[Edit]) -> Vec<Result<Vec<String>, String>> {
    edits.iter().map(|edit| edit.shown(root).map(Option::unwrap_or_default)).collect()
}

/// For each edit what was done, or why not.
pub async fn applied(root: &Root, edits: &[Edit], suffix: &str) -> Vec<Result<String, String>> {
    let tools = Real::default();
    let mut done = Vec::new();
    for edit in edits {
        done.push(edit.apply(root, &tools, suffix).await);
    }
    done
}
