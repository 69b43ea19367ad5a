//! Verdicts about one domain that is to go from one host to another.

use super::about::{About, bad, unknown};
use super::domain::Domain;
use super::hosts::Pair;
use super::needs::Needs;
use super::side::Side;
use super::storage::{cache, places, storage};
use crate::node::check::{Finding, Group, Verdict};

const GROUP: Group = Group::Migration;

/// All checks.
#[must_use]
pub fn findings(pair: Pair<'_>, domain: &Domain, about: &About) -> Vec<Finding> {
    let mut all = vec![devices(domain)];
    let needs = |(host, side): (&str, &Side)| match &side.needs {
        Some(Ok(needs)) => Ok(needs.clone()),
        Some(Err(why)) => Err(format!("{host}: {why}")),
        None => Err(format!("{host} was not asked")),
    };
    match needs(pair.source) {
        Ok(source) => all.push(on_source(pair, domain, &source)),
        Err(why) => all.push(unknown("vm-source", why)),
    }
    match needs(pair.target) {
        Ok(target) => {
            all.push(on_target(pair, domain, &target));
            all.push(cpu(pair, domain, &target));
            all.push(machine(pair, domain));
            all.push(files(pair, &target));
            all.push(bridges(pair, &target, about));
            let places = places(pair, domain, &needs(pair.source).unwrap_or_default(), &target);
            all.push(storage(pair, &places, &target, about));
            all.push(cache(pair, &places));
        }
        Err(why) => {
            let ids =
                ["vm-target", "vm-cpu", "vm-machine", "vm-files", "vm-bridges", "vm-storage", "vm-cache"];
            all.extend(ids.map(|id| unknown(id, &why)));
        }
    }
    all
}

/// The domain is not on the source.
#[must_use]
pub fn absent(domain: &str, host: &str) -> Finding {
    let mend = format!("virsh list --all on {host}; onevm show tells where OpenNebula believes it to be");
    bad("vm-source", Verdict::Failure, format!("{domain} is not on {host}"), mend)
}

fn on_source(pair: Pair<'_>, domain: &Domain, source: &Needs) -> Finding {
    let id = "vm-source";
    let host = pair.source.0;
    match &source.same {
        Some(Ok(Some(state))) if state == "running" || state == "paused" => {
            Finding::ok(id, GROUP, format!("{} is {state} on {host}", domain.name))
        }
        Some(Ok(Some(state))) => {
            let mend = "start it first, or move it while it is powered off (onevm migrate without --live)";
            bad(id, Verdict::Failure, format!("{} on {host}: {state}", domain.name), mend)
        }
        Some(Ok(None)) => absent(&domain.name, host),
        Some(Err(why)) => unknown(id, format!("{host}: {why}")),
        None => unknown(id, format!("{host} was not asked")),
    }
}

fn on_target(pair: Pair<'_>, domain: &Domain, target: &Needs) -> Finding {
    let id = "vm-target";
    let host = pair.target.0;
    match &target.same {
        Some(Ok(None)) => Finding::ok(id, GROUP, format!("no {} on {host}", domain.name)),
        Some(Ok(Some(state))) => bad(
            id,
            Verdict::Failure,
            format!("{host} has a domain of the same name or UUID ({state})"),
            format!(
                "on {host}: virsh dominfo {}; it must not be destroyed before it is sure that {} has the running one",
                domain.name, pair.source.0
            ),
        ),
        Some(Err(why)) => unknown(id, format!("{host}: {why}")),
        None => unknown(id, format!("{host} was not asked")),
    }
}

fn cpu(pair: Pair<'_>, domain: &Domain, target: &Needs) -> Finding {
    let id = "vm-cpu";
    let host = pair.target.0;
    if matches!(domain.cpu_mode.as_str(), "host-passthrough" | "maximum") {
        return passthrough(pair, &domain.cpu_mode);
    }
    let mend = "CPU_MODEL in the VM's template: a model that all hosts of the cluster have (virsh cpu-baseline over their capabilities)";
    match &target.cpu {
        Some(Ok(None)) => Finding::ok(id, GROUP, format!("{host} provides the guest's CPU")),
        Some(Ok(Some(why))) if domain.cpu_checked => {
            bad(id, Verdict::Failure, format!("{host}: {why}"), mend)
        }
        Some(Ok(Some(why))) => {
            let evidence = format!(
                "{host}: {why}; libvirt does not refuse it, because the domain has no CPU check (check='none')"
            );
            bad(id, Verdict::Warning, evidence, mend)
        }
        Some(Err(why)) => unknown(id, format!("{host}: {why}")),
        None => unknown(id, format!("{host} was not asked")),
    }
}

/// The guest sees the source's own CPU: nobody checks, so the hosts' CPUs are compared.
fn passthrough(pair: Pair<'_>, mode: &str) -> Finding {
    let id = "vm-cpu";
    let (Some((from, has)), Some((to, gets))) = (&pair.source.1.cpu, &pair.target.1.cpu) else {
        return unknown(id, "libvirt told no CPU of one of the hosts");
    };
    let mend =
        format!("{mode} only among hosts of one CPU model and microcode; else CPU_MODEL with a named model");
    let lost: Vec<&str> = has.iter().filter(|feature| !gets.contains(feature)).map(String::as_str).collect();
    if !lost.is_empty() {
        let evidence = format!("{mode}: {} lacks {} of {}", pair.target.0, lost.join(", "), pair.source.0);
        return bad(id, Verdict::Failure, evidence, mend);
    }
    if from != to {
        let evidence = format!("{mode}: {} has {from}, {} has {to}", pair.source.0, pair.target.0);
        return bad(id, Verdict::Warning, evidence, mend);
    }
    Finding::ok(id, GROUP, format!("{mode}: both hosts have {from} with the same features"))
}

fn machine(pair: Pair<'_>, domain: &Domain) -> Finding {
    let id = "vm-machine";
    let known = &pair.target.1.machines;
    if known.is_empty() {
        return unknown(id, format!("{}: libvirt told no machine types", pair.target.0));
    }
    if known.contains(&domain.machine) {
        return Finding::ok(id, GROUP, format!("{} knows {}", pair.target.0, domain.machine));
    }
    let mend =
        format!("a QEMU on {} that is not older; or OS/MACHINE with a type that both have", pair.target.0);
    bad(id, Verdict::Failure, format!("{} does not know {}", pair.target.0, domain.machine), mend)
}

fn files(pair: Pair<'_>, target: &Needs) -> Finding {
    if target.missing.is_empty() {
        return Finding::ok("vm-files", GROUP, format!("emulator and firmware are on {}", pair.target.0));
    }
    let mend = format!("install it on {}, or a link at that path", pair.target.0);
    bad("vm-files", Verdict::Failure, format!("{}: {}", pair.target.0, target.missing.join("; ")), mend)
}

fn bridges(pair: Pair<'_>, target: &Needs, about: &About) -> Finding {
    let id = "vm-bridges";
    let host = pair.target.0;
    let absent: Vec<&str> =
        target.bridges.iter().filter(|(_, there)| !**there).map(|(name, _)| name.as_str()).collect();
    let made =
        |name: &&str| about.drivers.get(*name).is_some_and(|driver| !driver.is_empty() && driver != "dummy");
    let (made, missing): (Vec<&str>, Vec<&str>) = absent.into_iter().partition(made);
    if !missing.is_empty() {
        let mend = format!(
            "on {host}: ip link add NAME type bridge (and its port, in the network configuration), as on {}",
            pair.source.0
        );
        return bad(id, Verdict::Failure, format!("{host} has no bridge {}", missing.join(", ")), mend);
    }
    let names: Vec<&str> = target.bridges.keys().map(String::as_str).collect();
    match (names.is_empty(), made.is_empty()) {
        (true, _) => Finding::skipped(id, GROUP, "the domain has no bridge"),
        (false, true) => Finding::ok(id, GROUP, format!("{host} has {}", names.join(", "))),
        (false, false) => Finding::ok(
            id,
            GROUP,
            format!("{} will be made on {host} by its network driver", made.join(", ")),
        ),
    }
}

fn devices(domain: &Domain) -> Finding {
    if domain.bound.is_empty() {
        return Finding::ok("vm-devices", GROUP, "no device is bound to the host");
    }
    let mend =
        "detach it before (onevm nic-detach, pci-detach), or power the VM off and migrate it without --live";
    bad("vm-devices", Verdict::Failure, format!("the domain has {}", domain.bound.join(", ")), mend)
}

#[cfg(test)]
#[path = "vm_tests.rs"]
mod tests;
