//! `kvmad migrate-check`: whether a VM can be migrated live, before it is tried.

mod pair;
mod report;
mod vm;

use std::io::Write;
use std::sync::Arc;

use clap::{Args, ValueEnum};

use crate::host::job::{HostName, Runner};
use crate::host::{Pool, PoolOptions};
use crate::node::check::Finding;
use crate::node::check::migration::domain::Domain;
use crate::node::check::migration::vm::absent;
use crate::settings::{Paths, Settings};

use report::Report;

/// Arguments of `kvmad migrate-check`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The VM: its id, the name of its domain, or a file that onevm show --xml wrote
    vm: String,
    /// The host that it is to go to, as OpenNebula knows it
    #[arg(value_parser = host)]
    target: HostName,
    /// The host where it is [default: as the file or OpenNebula says]
    #[arg(long, value_name = "HOST", value_parser = host)]
    from: Option<HostName>,
    /// What the system datastore says of itself, when no action document tells it
    #[arg(long, value_enum, value_name = "WHAT")]
    storage: Option<Storage>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Storage {
    /// SHARED = YES
    Shared,
    /// SHARED = NO
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}

fn host(text: &str) -> Result<HostName, String> {
    HostName::new(text).map_err(|error| error.to_string())
}

/// The pairwise checks of two hosts, without a VM: for the doctor.
///
/// # Errors
/// Why one of the hosts could not be looked at, with its name.
pub async fn pair(runner: &dyn Runner, from: &HostName, to: &HostName) -> Result<Vec<Finding>, String> {
    pair::check(runner, from, to, None).await
}

/// Why there is no report.
enum Trouble {
    /// The words or the file are wrong.
    Usage(String),
    /// There is nothing to migrate.
    Refused(String),
    /// Something could not be asked.
    Unchecked(String),
}

/// Checks and prints. Exit status: 0 it can be migrated (perhaps with warnings), 1 it can't, 2 usage or unreadable input,
/// 3 something could not be checked.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let (text, status) = match checked(arguments) {
        Ok(checked) => checked,
        Err(trouble) => {
            let (why, status) = match trouble {
                Trouble::Usage(why) => (why, super::USAGE),
                Trouble::Refused(why) => (why, super::FINDING),
                Trouble::Unchecked(why) => (why, super::UNCHECKED),
            };
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(err, "{}", super::plain(&why));
            return status;
        }
    };
    match out.write_all(text.as_bytes()) {
        Ok(()) => status,
        Err(error) => status.max(super::unwritten(&error, err)),
    }
}

fn checked(arguments: &Arguments) -> Result<(String, u8), Trouble> {
    let paths = Paths::from_environment();
    let (settings, _) = Settings::load(&paths).map_err(|error| Trouble::Usage(error.to_string()))?;
    let (core, _) = paths.core_config();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::Unchecked(error.to_string()))?;
    runtime.block_on(async {
        let found = vm::find(&arguments.vm, arguments.from.as_ref()).await.map_err(Trouble::Usage)?;
        if found.source == arguments.target {
            return Err(Trouble::Refused(format!("{} is on {} already", found.domain, arguments.target)));
        }
        let options = PoolOptions::new(&settings, &paths, core.scripts_remote_dir());
        let pool = Arc::new(Pool::new(options).map_err(|error| Trouble::Unchecked(error.to_string()))?);
        let findings = look(&*pool, &found, arguments).await;
        pool.close().await;
        let findings = findings.map_err(Trouble::Unchecked)?;
        let report = Report::new(&found.domain, found.source.as_str(), arguments.target.as_str(), &findings);
        let text = match arguments.format {
            Format::Text => report.text(),
            Format::Json => {
                let json =
                    serde_json::to_string(&report).map_err(|error| Trouble::Unchecked(error.to_string()))?;
                format!("{json}\n")
            }
        };
        Ok((text, report.status()))
    })
}

async fn look(runner: &dyn Runner, found: &vm::Vm, arguments: &Arguments) -> Result<Vec<Finding>, String> {
    let Some(xml) = pair::domain_xml(runner, &found.source, &found.domain).await? else {
        let mut findings = pair::check(runner, &found.source, &arguments.target, None).await?;
        findings.push(absent(&found.domain, found.source.as_str()));
        return Ok(findings);
    };
    let domain = Domain::read(&xml).map_err(|why| format!("{}: {why}", found.source))?;
    let mut about = found.about.clone();
    if let Some(storage) = arguments.storage {
        about.shared = Some(storage == Storage::Shared);
    }
    let going = pair::Going { xml, domain, about };
    pair::check(runner, &found.source, &arguments.target, Some(&going)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_vm_that_is_on_the_target_already_is_a_finding() {
        let words = ["migrate-check", "7", "node1", "--from", "node1"];
        let arguments = <Words as clap::Parser>::try_parse_from(words).expect("words").arguments;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_eq!(run(&arguments, &mut out, &mut err), 1);
        assert_eq!((out.len(), String::from_utf8_lossy(&err).as_ref()), (0, "one-7 is on node1 already\n"));
    }
}
