//! `kvmad vm start`: DEPLOY with the domain that the VM was last started with.

use clap::Args;

use super::explain::explained;
use super::site::{on_site, shown};
use super::{Place, Stop, Which, action, domain};
use crate::node::cloud::prepare::DEPLOYMENT;
use crate::node::cloud::spec::PREFIX;
use crate::vmm::verb::Verb;

/// Arguments of `kvmad vm start`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Place,
}

/// Starts the VM; one that runs is left alone.
pub fn run(arguments: &Arguments) -> Result<String, Stop> {
    on_site(async |site| {
        let Which { name, host } = &arguments.which;
        let images = arguments.place.images(&site.started.settings);
        let text = site.ask(host, &["domain", shown(&images)?, name], "").await?;
        let file = images.join(format!("{PREFIX}{name}")).join(DEPLOYMENT);
        let document = action::of_domain(host, "", shown(&file)?);
        let made = site.act(Verb::Deploy, document, Some(domain::maker(text.into_bytes())), false).await;
        match made {
            Ok(_) => Ok(format!("{name} runs on {host}\n")),
            Err(stop) => Err(explained(&site, host, stop).await),
        }
    })
}
