//! The program: from its arguments to a driver that serves, as `oned` starts it.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::domain;
use super::driver::Driver;
use super::execute::{Executor, Limits};
use super::setup::Setup;
use crate::host::{Pool, PoolOptions, Runner, process};
use crate::mad;
use crate::mad::options::{VmmOptions, getopt, last_word, program_name};
use crate::settings::{Paths, Settings};
use crate::start::{self, Started};

/// Runs the driver with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    process::settle();
    let mut arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = arguments.next();
    let program = program_name(program.as_deref()).to_owned();
    let arguments: Vec<String> = arguments.collect();
    match VmmOptions::parse(&program, arguments.clone()) {
        Ok((options, warnings)) => {
            let log = format!("one_vmm_{}", last_word(&getopt::split(arguments)));
            serve(&options, &warnings, &log)
        }
        Err(error) => {
            // Without stderr nobody can be told.
            let _ = writeln!(std::io::stderr(), "{program}: {error}");
            ExitCode::from(255)
        }
    }
}

fn serve(options: &VmmOptions, warnings: &[String], log: &str) -> ExitCode {
    let paths = Paths::from_environment();
    let own_rc = paths.vmm_execrc();
    let started = start::driver(paths, &own_rc, log, options.proxy.as_deref());
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    match converse(options, &started) {
        Ok(end) => end.into(),
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(255)
        }
    }
}

fn converse(options: &VmmOptions, started: &Started) -> std::io::Result<mad::End> {
    let runtime = runtime()?;
    let mut setup = mad::Setup::new(&started.settings.mad, options.threads, options.parallel);
    setup.fault = started.fault.clone();
    let pool = {
        let _inside = runtime.enter();
        Pool::new(PoolOptions::new(&started.settings, &started.paths, started.core.scripts_remote_dir()))
    };
    let pool = Arc::new(pool.map_err(std::io::Error::other)?);
    let executor = executor(pool.clone(), options, started);
    let plans = Setup::of_driver(options, |name| started.variable(name));
    let (input, output) = mad::serve::stdio()?;
    let driver = Arc::new(Driver::new(plans, executor));
    let end = mad::serve(driver, setup, runtime.handle(), input, output)?;
    if end == mad::End::Finalized {
        runtime.block_on(pool.close());
    }
    runtime.shutdown_background();
    Ok(end)
}

/// The runtime of a driver: its work is waiting, two threads are plenty.
///
/// # Errors
/// When threads can't be started.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).thread_name("vmm").enable_all().build()
}

/// What carries out the plans of a driver that was started with `options`.
#[must_use]
pub fn executor(runner: Arc<dyn Runner>, options: &VmmOptions, started: &Started) -> Executor {
    let limits = limits(options, &started.settings);
    let executor =
        Executor::new(runner, started.paths.remotes(), limits).with_environment(started.environment.clone());
    match &options.generate_domain {
        Some(conf) => executor.with_domain(domain::maker(conf, &options.hypervisor)),
        None => executor,
    }
}

fn limits(options: &VmmOptions, settings: &Settings) -> Limits {
    Limits {
        step: options.timeout.or(settings.action.timeout),
        grace: settings.action.grace,
        retries: u32::try_from(options.retries).unwrap_or(u32::MAX),
        roll_back: settings.action.rollback_timeout,
        settle: settings.action.settle_timeout,
        settle_migration: settings.action.settle_migration_timeout,
        ..Limits::default()
    }
}
