//! `kvmad vm delete`: the driver's own CANCEL, then the host deletes the files of the VM.

use clap::Args;

use super::site::{Site, on_site, shown};
use super::{Place, Stop, Which, action};
use crate::host::HostName;
use crate::node::cloud::spec::PREFIX;
use crate::vmm::verb::Verb;

/// Arguments of `kvmad vm delete`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Place,
}

/// Deletes the VM; one that is not there is deleted already.
pub fn run(arguments: &Arguments) -> Result<String, Stop> {
    on_site(async |site| {
        let Which { name, host } = &arguments.which;
        let images = arguments.place.images(&site.started.settings);
        site.act(Verb::Cancel, action::of_domain(host, &format!("{PREFIX}{name}"), ""), None, false).await?;
        files(&site, host, shown(&images)?, name).await?;
        Ok(format!("{name} is gone from {host}\n"))
    })
}

/// Deletes the files of a VM whose domain is gone.
pub async fn files(site: &Site, host: &HostName, images: &str, name: &str) -> Result<(), Stop> {
    site.ask(host, &["remove", images, name], "").await.map(|_| ())
}
