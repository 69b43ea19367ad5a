//! Every two of the hosts that were named, for migrations between them.

use super::places::{Places, Seen, is_root};
use super::report::Pair;
use crate::cli::migrate_check;
use crate::host::{HostName, Runner};
use crate::node::check::report::Chosen;
use crate::node::check::{Finding, Group};

/// Checks them, one pair after the other. Hosts that could not be asked, and those that were asked as root (the drivers
/// migrate as their own user), are left out.
pub async fn all(places: &Places, seen: &[Seen], chosen: &Chosen) -> Vec<Pair> {
    let wanted = chosen.only.is_empty() || chosen.only.iter().any(|id| id.starts_with("pair-"));
    if !wanted || !(chosen.groups.is_empty() || chosen.groups.contains(&Group::Migration)) {
        return Vec::new();
    }
    let able = |seen: &&Seen| seen.report.is_some();
    let hosts: Vec<&HostName> = seen
        .iter()
        .filter(able)
        .filter_map(|seen| seen.host.as_ref())
        .filter(|host| !is_root(host))
        .collect();
    let runner = places.runner(seen);
    let mut pairs = Vec::new();
    for (at, from) in hosts.iter().enumerate() {
        for to in &hosts[at + 1..] {
            let findings = one(&runner, from, to, chosen).await;
            pairs.push(Pair { from: from.to_string(), to: to.to_string(), findings });
        }
    }
    pairs
}

async fn one(runner: &dyn Runner, from: &HostName, to: &HostName, chosen: &Chosen) -> Vec<Finding> {
    match migrate_check::pair(runner, from, to).await {
        Ok(mut findings) => {
            findings.retain(|finding| chosen.wants(&finding.id, finding.group));
            findings
        }
        // Whatever is wanted: none of it was checked.
        Err(reason) => {
            vec![Finding::unchecked(
                "pair-transport",
                Group::Migration,
                reason,
                "see the findings of the hosts",
            )]
        }
    }
}
