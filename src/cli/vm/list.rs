//! `kvmad vm list`: the VMs of hosts.

use std::io::IsTerminal as _;

use clap::Args;
use comfy_table::{Table, presets};

use super::site::{on_site, shown};
use super::{Format, Place, Stop, host};
use crate::host::HostName;
use crate::node::cloud::list::Listed;
use crate::node::cloud::spec::Network;

/// Arguments of `kvmad vm list`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A host (several times)
    #[arg(long = "host", value_name = "HOST", required = true, value_parser = host)]
    hosts: Vec<HostName>,
    #[command(flatten)]
    place: Place,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Lists the VMs of all hosts; the first host that can't be asked ends it.
pub fn run(arguments: &Arguments) -> Result<String, Stop> {
    let all = on_site(async |site| {
        let images = arguments.place.images(&site.started.settings);
        let mut all = Vec::new();
        for host in &arguments.hosts {
            let vms: Vec<Listed> = site.ask_json(host, &["list", shown(&images)?], "").await?;
            all.extend(vms.into_iter().map(|vm| (host.clone(), vm)));
        }
        Ok(all)
    })?;
    Ok(match arguments.format {
        Format::Json => json(&all),
        Format::Text if all.is_empty() => String::new(),
        Format::Text => table(&all),
    })
}

/// One object a VM and line.
fn json(all: &[(HostName, Listed)]) -> String {
    let line = |(host, vm): &(HostName, Listed)| {
        let value = serde_json::json!({
            "host": host.as_str(), "name": vm.name, "state": vm.state, "folder": vm.folder, "record": vm.record,
        });
        format!("{value}\n")
    };
    all.iter().map(line).collect()
}

fn table(all: &[(HostName, Listed)]) -> String {
    let mut table = Table::new();
    let preset =
        if std::io::stdout().is_terminal() { presets::UTF8_FULL_CONDENSED } else { presets::NOTHING };
    table.load_style(preset);
    table.set_header(["VM", "host", "state", "disk", "network", "image"]);
    for (host, vm) in all {
        let record = vm.record.as_ref();
        let size = record.map_or("-".to_owned(), |record| format!("{} MiB", record.size >> 20));
        let network = record.map_or("-", |record| match &record.network {
            Network::Bridge(name) | Network::Nat(name) => name,
        });
        let image = record.map_or("-", |record| record.image.as_str());
        let cells = [vm.name.as_str(), host.as_str(), &vm.state, &size, network, image];
        table.add_row(cells.map(crate::cli::plain));
    }
    format!("{table}\n")
}
