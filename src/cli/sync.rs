//! `kvmad sync`: pushes the remotes to hosts and says what changed.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;

use crate::host::push::{NotPushed, Pushed};
use crate::host::{AlwaysMyTurn, HostName, Pool, PoolOptions, Watch};
use crate::settings::{Paths, Settings};
use crate::vmm::start;

/// Arguments of `kvmad sync`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The hosts
    #[arg(required = true, value_parser = host)]
    hosts: Vec<HostName>,
    /// Push also to hosts that have the same remotes
    #[arg(long)]
    force: bool,
}

fn host(text: &str) -> Result<HostName, String> {
    HostName::new(text).map_err(|error| error.to_string())
}

/// Pushes to all hosts at once; what changed goes to `out` in the order of the hosts. Exit status: fine when every
/// host has the remotes, a finding when a host could not take them, unchecked when one was not reached.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Err(error) = Settings::load(&Paths::from_environment()) {
        // Nobody is left to tell when stderr is gone.
        let _ = writeln!(err, "{error}");
        return super::USAGE;
    }
    match pushed(arguments) {
        Err(reason) => {
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(err, "{reason}");
            super::UNCHECKED
        }
        Ok(results) => {
            let mut status = super::FINE;
            for (host, result, notices) in results {
                for notice in notices {
                    let _ = writeln!(err, "{host}: {notice}");
                }
                let shown = match result {
                    Ok(pushed) => out.write_all(said(&host, &pushed).as_bytes()),
                    Err(reason) => {
                        status = status.max(status_of(&reason));
                        writeln!(err, "{}", super::plain(&reason.to_string()))
                    }
                };
                if let Err(error) = shown {
                    return status.max(super::unwritten(&error, err));
                }
            }
            status
        }
    }
}

const fn status_of(reason: &NotPushed) -> u8 {
    match reason {
        NotPushed::Unreachable(_) => super::UNCHECKED,
        NotPushed::Failed(_) => super::FINDING,
    }
}

type Result3 = (HostName, Result<Pushed, NotPushed>, Vec<String>);

fn pushed(arguments: &Arguments) -> Result<Vec<Result3>, String> {
    let paths = Paths::from_environment();
    let (settings, _) = Settings::load(&paths).map_err(|error| error.to_string())?;
    let (core, _) = paths.core_config();
    let runtime = start::runtime().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let options = PoolOptions::new(&settings, &paths, core.scripts_remote_dir());
        let pool = Arc::new(Pool::new(options).map_err(|error| error.to_string())?);
        let mut running = Vec::new();
        for host in &arguments.hosts {
            let (pool, host, force) = (pool.clone(), host.clone(), arguments.force);
            running.push(tokio::spawn(async move {
                let notices: Arc<Mutex<Vec<String>>> = Arc::default();
                let watch = watch(&notices);
                let result = pool.push(&host, force, &watch).await;
                let notices = std::mem::take(&mut *notices.lock().unwrap_or_else(PoisonError::into_inner));
                (host, result, notices)
            }));
        }
        let mut results = Vec::new();
        for one in running {
            results.push(one.await.map_err(|error| error.to_string())?);
        }
        pool.close().await;
        Ok(results)
    })
}

fn watch(notices: &Arc<Mutex<Vec<String>>>) -> Watch {
    let kept = Arc::clone(notices);
    let keep = move |line: &str| {
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    };
    Watch {
        on_stderr: Arc::new(|_| {}),
        on_notice: Arc::new(keep),
        turn: Arc::new(AlwaysMyTurn),
        cancel: tokio_util::sync::CancellationToken::new(),
    }
}

fn said(host: &HostName, pushed: &Pushed) -> String {
    match pushed {
        Pushed::Same => format!("{host}: has the same remotes\n"),
        Pushed::Done { stamp, changes } => {
            let mut text = format!("{host}: pushed, now at {stamp}\n");
            let Some(changes) = changes else { return text };
            let parts =
                [("added", &changes.added), ("changed", &changes.changed), ("removed", &changes.removed)];
            for (what, path) in
                parts.iter().flat_map(|(what, paths)| paths.iter().map(move |path| (what, path)))
            {
                text.push_str(&format!("{host}:   {what} {path}\n"));
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_was_not_reached_is_unchecked_and_one_that_refuses_a_finding() {
        assert_eq!(status_of(&NotPushed::Unreachable("n: ssh".into())), 3);
        assert_eq!(status_of(&NotPushed::Failed("n: no space".into())), 1);
    }
}
