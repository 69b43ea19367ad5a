//! `kvmad doctor`: whether hosts are fit for VMs, what to mend, and, when asked to, the mending itself.

#[cfg(test)]
mod docs;
mod explain;
mod fix;
mod front;
mod pairs;
mod places;
mod report;

use std::io::{BufRead, Write};

use clap::{Args, ValueEnum};

use crate::host::HostName;
use crate::node::check::host::{Wanted, user_name};
use crate::node::check::report::Chosen;
use crate::settings::{Paths, Settings};

use places::{Places, Seen};
use report::Summary;

/// Arguments of `kvmad doctor`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The hosts, over the drivers' own connection (root@HOST: with root's rights, for the drivers' user); none: this
    /// machine itself
    #[arg(value_parser = host)]
    hosts: Vec<HostName>,
    #[command(flatten)]
    chosen: Chosen,
    /// Say what a check looks at, why, and what mends it
    #[arg(long, value_name = "ID", conflicts_with_all = ["hosts", "fix"])]
    explain: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show also what is well and what does not apply
    #[arg(long)]
    all: bool,
    /// Mend what can be mended safely: each edit is shown first and asked for, files are kept as they were beside the
    /// new ones. Needs root's rights on the host: on the host itself, or root@HOST
    #[arg(long)]
    fix: bool,
    /// With --fix: do not ask
    #[arg(long, requires = "fix")]
    yes: bool,
    /// The drivers' user on the hosts [default: who logs in; oneadmin when that is root]
    #[arg(long, value_name = "USER", value_parser = user_name)]
    user: Option<String>,
    /// Folder of the datastores on hosts [default: DATASTORE_LOCATION of oned, else /var/lib/one/datastores]
    #[arg(long, value_name = "DIR")]
    datastores: Option<String>,
    /// Folder of the VMs that are made from cloud images [default: images of [cloud] in kvmad.conf]
    #[arg(long, value_name = "DIR")]
    images: Option<String>,
    /// A bridge that must be there; may be given several times
    #[arg(long = "bridge", value_name = "NAME")]
    bridges: Vec<String>,
    /// The libvirt network of VMs behind NAT
    #[arg(long, value_name = "NAME", default_value = "default")]
    network: String,
    /// The hosts are meant for type qemu: they need no /dev/kvm
    #[arg(long)]
    emulated: bool,
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

/// Why nothing was checked.
enum Trouble {
    /// Wrong words or settings.
    Usage(String),
    /// It was not possible.
    Unchecked(String),
}

/// Checks, and mends when asked to. Exit status: fine (warnings included), a finding when a check failed or a mend was
/// not made, unchecked when something could not be checked.
pub fn run(arguments: &Arguments, input: &mut dyn BufRead, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let told = match &arguments.explain {
        Some(id) => explain::text(id).map(|text| (text, super::FINE)).map_err(Trouble::Usage),
        None => checked(arguments, input, out, err),
    };
    let (text, status) = match told {
        Ok(told) => told,
        Err(trouble) => {
            let (why, status) = match trouble {
                Trouble::Usage(why) => (why, super::USAGE),
                Trouble::Unchecked(why) => (why, super::UNCHECKED),
            };
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(err, "{}", super::plain(&why));
            return status;
        }
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => status,
        Err(error) => status.max(super::unwritten(&error, err)),
    }
}

fn checked(
    arguments: &Arguments,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(String, u8), Trouble> {
    for id in &arguments.chosen.only {
        explain::find(id).map_err(Trouble::Usage)?;
    }
    let paths = Paths::from_environment();
    let (settings, _) = Settings::load(&paths).map_err(|error| Trouble::Usage(error.to_string()))?;
    let (core, _) = paths.core_config();
    let wanted = Wanted {
        user: arguments.user.clone(),
        remotes: core.scripts_remote_dir().to_owned(),
        datastores: arguments
            .datastores
            .clone()
            .or_else(|| core.last("DATASTORE_LOCATION").map(str::to_owned))
            .unwrap_or_else(|| "/var/lib/one/datastores".to_owned()),
        images: arguments
            .images
            .clone()
            .unwrap_or_else(|| settings.cloud.images.0.to_string_lossy().into_owned()),
        bridges: arguments.bridges.clone(),
        network: arguments.network.clone(),
        emulated: arguments.emulated,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::Unchecked(error.to_string()))?;
    runtime.block_on(async {
        let places = Places::new(&settings, &paths, wanted).map_err(Trouble::Unchecked)?;
        let told = examined(&places, arguments, input, out, err).await;
        for left in places.close().await {
            let _ = writeln!(err, "{}", super::plain(&left));
        }
        let (mut summary, refused) = told.map_err(Trouble::Unchecked)?;
        summary.skip_named(&arguments.chosen);
        let text = match arguments.format {
            // Who names checks wants to know what they came to.
            Format::Text => summary.text(arguments.all || !arguments.chosen.only.is_empty()),
            Format::Json => summary.json().map_err(Trouble::Unchecked)?,
        };
        let status = if refused { summary.status().max(super::FINDING) } else { summary.status() };
        Ok((text, status))
    })
}

/// The most rounds of mending a host.
const ROUNDS: usize = 8;

/// All hosts at once, mends one after the other, then the hosts that were mended once more.
async fn examined(
    places: &Places,
    arguments: &Arguments,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(Summary, bool), String> {
    let chosen = &arguments.chosen;
    let mut seen: Vec<Seen> = places.look_at_all(&arguments.hosts, chosen).await?;
    let mut refused = false;
    if arguments.fix {
        for one in &mut seen {
            // In JSON the dialogue must not stand before the object.
            let talk: &mut dyn Write = if arguments.format == Format::Json { &mut *err } else { &mut *out };
            let mut talk = fix::Talk { input: &mut *input, out: talk, yes: arguments.yes };
            // One mend may show what is next: a parent that blocks behind the one that blocked.
            for _ in 0..ROUNDS {
                let done = fix::mend(places, one, &mut talk).await?;
                refused |= done.left;
                if done.changed {
                    *one = places.look_again(one, chosen).await?;
                }
                if done.left || !done.changed {
                    break;
                }
            }
        }
    }
    let pairs = pairs::all(places, &seen, chosen).await;
    Ok((Summary { hosts: seen, pairs }, refused))
}
