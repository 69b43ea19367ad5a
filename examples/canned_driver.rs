//! A whole driver around canned actions: how the `mad` layer is used, and what its tests start as a program.
//!
//! `canned_driver 'SLOTS [-p] [KEY=VALUE ...]'`: keys are those of section [mad].

#[path = "../tests/mad/canned.rs"]
mod canned;

use std::process::ExitCode;
use std::sync::Arc;

use kvmad::mad::{Setup, serve, stdio};
use kvmad::settings::Settings;

fn main() -> ExitCode {
    kvmad::host::process::settle();
    match run() {
        Ok(code) => code,
        Err(_) => ExitCode::from(254),
    }
}

fn run() -> std::io::Result<ExitCode> {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let mut words = argument.split_whitespace();
    let slots = words.next().and_then(|word| word.parse().ok()).unwrap_or(15);
    let (flags, keys): (Vec<&str>, Vec<&str>) = words.partition(|word| word.starts_with('-'));
    let variables = keys.iter().filter_map(|word| word.split_once('='));
    let variables =
        variables.map(|(key, value)| (format!("KVMAD_MAD_{}", key.to_uppercase()).into(), value.into()));
    let (settings, _) = Settings::read("/nonexistent".as_ref(), variables).map_err(std::io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut setup = Setup::new(&settings.mad, slots, flags.contains(&"-p"));
    setup.fault = flags.contains(&"--fault").then(|| "this driver can not serve".to_owned());
    let (input, output) = stdio()?;
    let actions = Arc::new(canned::Canned::default());
    let end = serve(actions, setup, runtime.handle(), input, output)?;
    runtime.shutdown_background();
    Ok(end.into())
}
