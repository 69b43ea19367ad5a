//! `kvmad vm address`: the addresses of a VM, or why there are none yet.

use std::time::{Duration, Instant};

use clap::Args;

use super::site::on_site;
use super::{Format, Stop, Which};
use crate::node::cloud::address::Addresses;

/// Arguments of `kvmad vm address`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Wait so many seconds for one
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How often it is asked while it waits.
const EVERY: Duration = Duration::from_secs(2);

/// Asks; without an address it ends as a finding with the explanation.
pub fn run(arguments: &Arguments) -> Result<String, Stop> {
    let Which { name, host } = &arguments.which;
    let until = Instant::now() + Duration::from_secs(arguments.wait);
    let answer = on_site(async |site| {
        loop {
            let answer: Addresses = site.ask_json(host, &["address", name], "").await?;
            if !answer.found.is_empty() || Instant::now() >= until {
                return Ok(answer);
            }
            tokio::time::sleep(EVERY).await;
        }
    })?;
    if answer.found.is_empty() && arguments.format == Format::Text {
        return Err(Stop::finding(format!("{name} on {host}: {}", answer.explanation)));
    }
    if arguments.format == Format::Json {
        let text = serde_json::to_string(&answer).map_err(|error| Stop::unchecked(error.to_string()))?;
        return Ok(text + "\n");
    }
    Ok(answer.found.iter().map(|one| format!("{}\n", one.address)).collect())
}
