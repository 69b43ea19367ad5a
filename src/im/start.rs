//! The program: from its arguments to a driver that serves, as `oned` or `onemonitord` starts it.

use std::process::ExitCode;
use std::sync::Arc;

use tokio::runtime::Builder;

use super::driver::{Driver, Tries};
use super::form::ImForm;
use super::request::Era;
use crate::host::{Pool, PoolOptions, process};
use crate::mad;
use crate::mad::options::{ImOptions, getopt, last_word, program_name};
use crate::settings::Paths;
use crate::start::{self, Started};

/// Runs the driver with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    process::settle();
    let mut arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = arguments.next();
    let program = program_name(program.as_deref()).to_owned();
    let arguments: Vec<String> = arguments.collect();
    let (options, warnings) = ImOptions::parse(&program, arguments.clone());
    let kind = if options.local { "one_im_sh" } else { "one_im_ssh" };
    let name = format!("{kind}_{}", last_word(&getopt::split(arguments)));
    let paths = Paths::from_environment();
    let own_rc = paths.im_rc(&name);
    let started = start::driver(paths, &own_rc, &name, options.proxy.as_deref());
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    match converse(&options, &started) {
        Ok(end) => end.into(),
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(255)
        }
    }
}

fn converse(options: &ImOptions, started: &Started) -> std::io::Result<mad::End> {
    let runtime = Builder::new_multi_thread().worker_threads(2).thread_name("im").enable_all().build()?;
    // One request a host at a time comes from the subject; parallel, because a host has no other actions here.
    let mut setup = mad::Setup::new(&started.settings.mad, options.threads, true);
    setup.fault = started.fault.clone();
    let im = &started.settings.im;
    let log_limit = started.settings.mad.log_line_limit.0;
    setup.form = Arc::new(ImForm { plain: im.pull_format == "3.8", log_limit });
    let pool = {
        let _inside = runtime.enter();
        Pool::new(PoolOptions::new(&started.settings, &started.paths, started.core.scripts_remote_dir()))
    };
    let pool = Arc::new(pool.map_err(std::io::Error::other)?);
    let tries = Tries {
        retries: options.retries,
        limit: options.timeout.unwrap_or(im.timeout),
        wait: im.retry_wait,
        total: im.total_timeout,
    };
    let mut environment = started.environment.clone();
    if im.pull_format == "3.8" {
        environment.push(("KVMAD_AGENT_PULL_VERSION".to_owned(), "3.8".to_owned()));
    }
    let era = Era::new(&options.hypervisor, started.core.all("IM_MAD"));
    let driver = Driver::new(pool.clone(), era, tries, options.local).with_environment(environment);
    let (input, output) = mad::stdio()?;
    let end = mad::serve(Arc::new(driver), setup, runtime.handle(), input, output)?;
    if end == mad::End::Finalized {
        runtime.block_on(pool.close());
    }
    runtime.shutdown_background();
    Ok(end)
}
