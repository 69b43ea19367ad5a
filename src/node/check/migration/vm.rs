//! Verdicts about one domain that is to go from one host to another.

use std::collections::BTreeMap;

use super::domain::{Disk, Domain};
use super::hosts::Pair;
use super::needs::Needs;
use super::side::{Side, Told};
use crate::node::check::{Finding, Group, Verdict};

const GROUP: Group = Group::Migration;

/// What OpenNebula says of the VM beyond its domain.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// SHARED of the system datastore; `None` when it is not known.
    pub shared: Option<bool>,
    /// Network driver (VN_MAD) of each bridge, as far as it is known.
    pub drivers: BTreeMap<String, String>,
}

/// File systems that libvirt takes for shared.
const SHARED: [&str; 14] = [
    "nfs", "nfs4", "cifs", "smb3", "afs", "gfs2", "ocfs2", "ceph", "gpfs", "acfs", "beegfs", "fuse.glusterfs",
    "fuse.quobyte", "fuse.ceph",
];
/// Those of them whose caches agree between hosts.
const CLUSTER: [&str; 8] = ["gfs2", "ocfs2", "ceph", "gpfs", "acfs", "fuse.glusterfs", "fuse.quobyte", "fuse.ceph"];

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
            let ids = ["vm-target", "vm-cpu", "vm-machine", "vm-files", "vm-bridges", "vm-storage", "vm-cache"];
            all.extend(ids.map(|id| unknown(id, &why)));
        }
    }
    all
}

fn bad(id: &'static str, verdict: Verdict, evidence: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding::bad(id, GROUP, verdict, evidence, mend)
}

fn unknown(id: &'static str, why: impl Into<String>) -> Finding {
    Finding::unchecked(id, GROUP, why, "mend what kept it from being asked, then check again")
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
        Some(Ok(None)) => {
            let mend = format!("virsh list --all on {host}; onevm show tells where OpenNebula believes it to be");
            bad(id, Verdict::Failure, format!("{} is not on {host}", domain.name), mend)
        }
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
            format!("on {host}: virsh dominfo {}; it must not be destroyed before it is sure that {} has the running one", domain.name, pair.source.0),
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
        Some(Ok(Some(why))) if domain.cpu_checked => bad(id, Verdict::Failure, format!("{host}: {why}"), mend),
        Some(Ok(Some(why))) => {
            let evidence = format!("{host}: {why}; libvirt does not refuse it, because the domain has no CPU check (check='none')");
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
    let mend = format!("{mode} only among hosts of one CPU model and microcode; else CPU_MODEL with a named model");
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
    if known.iter().any(|machine| *machine == domain.machine) {
        return Finding::ok(id, GROUP, format!("{} knows {}", pair.target.0, domain.machine));
    }
    let mend = format!("a QEMU on {} that is not older; or OS/MACHINE with a type that both have", pair.target.0);
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
    let absent: Vec<&str> = target.bridges.iter().filter(|(_, there)| !**there).map(|(name, _)| name.as_str()).collect();
    let made = |name: &&str| about.drivers.get(*name).is_some_and(|driver| !driver.is_empty() && driver != "dummy");
    let (made, missing): (Vec<&str>, Vec<&str>) = absent.into_iter().partition(made);
    if !missing.is_empty() {
        let mend = format!("on {host}: ip link add NAME type bridge (and its port, in the network configuration), as on {}", pair.source.0);
        return bad(id, Verdict::Failure, format!("{host} has no bridge {}", missing.join(", ")), mend);
    }
    let names: Vec<&str> = target.bridges.keys().map(String::as_str).collect();
    match (names.is_empty(), made.is_empty()) {
        (true, _) => Finding::skipped(id, GROUP, "the domain has no bridge"),
        (false, true) => Finding::ok(id, GROUP, format!("{host} has {}", names.join(", "))),
        (false, false) => Finding::ok(id, GROUP, format!("{} will be made on {host} by its network driver", made.join(", "))),
    }
}

/// How a disk is seen from the target.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// It is the very same file.
    Same,
    /// Another place of the same name; the size there, if a file is there already.
    Other(Option<u64>),
    /// It could not be told.
    Unknown(String),
}

#[derive(Debug)]
struct Place<'a> {
    disk: &'a Disk,
    seen: Seen,
    size: u64,
    filesystem: String,
}

fn places<'a>(pair: Pair<'_>, domain: &'a Domain, source: &Needs, target: &Needs) -> Vec<Place<'a>> {
    let with_path = domain.disks.iter().filter(|disk| disk.path.starts_with('/'));
    with_path
        .map(|disk| {
            let here = source.disks.get(&disk.path);
            let file = |side: &Needs| match side.disks.get(&disk.path).and_then(|lies| lies.file.clone()) {
                None => Ok(None),
                Some(Ok(about)) => Ok(Some(about)),
                Some(Err(why)) => Err(why),
            };
            let seen = match (file(target), disk.folder().and_then(|folder| target.markers.get(folder))) {
                (Err(why), _) => Seen::Unknown(format!("{}: {}: {why}", pair.target.0, disk.path)),
                (Ok(there), marker) => seen(disk, there, marker, file(source)),
            };
            let size = file(source).ok().flatten().map_or(0, |(_, size)| size);
            Place { disk, seen, size, filesystem: here.map(|lies| lies.filesystem.clone()).unwrap_or_default() }
        })
        .collect()
}

type File = (u64, u64);

fn seen(disk: &Disk, there: Option<File>, marker: Option<&Told<bool>>, here: Told<Option<File>>) -> Seen {
    match marker {
        Some(Ok(true)) if there.is_some() => Seen::Same,
        Some(Ok(true)) => Seen::Unknown(format!("the folder of {} is shared, but the file is not there", disk.path)),
        Some(Ok(false)) => Seen::Other(there.map(|(_, size)| size)),
        // No file could be made beside it. Network file systems give a file one inode on all hosts.
        Some(Err(_)) | None => match (here, there) {
            (_, None) => Seen::Other(None),
            (Ok(Some(here)), Some(there)) if here == there => Seen::Same,
            (_, Some(_)) if disk.path.starts_with("/dev/") => Seen::Same,
            (_, Some((_, size))) => Seen::Other(Some(size)),
        },
    }
}

fn storage(pair: Pair<'_>, places: &[Place<'_>], target: &Needs, about: &About) -> Finding {
    let id = "vm-storage";
    let host = pair.target.0;
    let unclear: Vec<&str> = places
        .iter()
        .filter_map(|place| match &place.seen {
            Seen::Unknown(why) => Some(why.as_str()),
            _ => None,
        })
        .collect();
    if !unclear.is_empty() {
        return unknown(id, unclear.join("; "));
    }
    let paths = |wanted: &dyn Fn(&Seen) -> bool| {
        let found = places.iter().filter(|place| wanted(&place.seen)).map(|place| place.disk.path.as_str());
        found.collect::<Vec<_>>().join(", ")
    };
    let same = paths(&|seen| *seen == Seen::Same);
    let other = paths(&|seen| matches!(seen, Seen::Other(_)));
    match (same.is_empty(), other.is_empty(), about.shared) {
        (true, true, _) => Finding::skipped(id, GROUP, "no disk has a path"),
        (false, _, Some(false)) => bad(
            id,
            Verdict::Failure,
            format!("the system datastore says SHARED = NO, but {same} is one file on both hosts: copying would begin by removing it"),
            "SHARED = YES in the system datastore's template",
        ),
        (false, true, _) => Finding::ok(id, GROUP, format!("{host} sees {same}")),
        (_, false, Some(true)) => bad(
            id,
            Verdict::Failure,
            format!("the system datastore says SHARED = YES, but {host} does not see {other}"),
            format!("mount the datastore on {host} at the same path; or SHARED = NO when it is each host's own"),
        ),
        (_, false, _) => copied(pair, places, target, about, &other),
    }
}

/// Disks that are each host's own are copied: is there room?
fn copied(pair: Pair<'_>, places: &[Place<'_>], target: &Needs, about: &About, paths: &str) -> Finding {
    let id = "vm-storage";
    let host = pair.target.0;
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    for place in places.iter().filter(|place| matches!(place.seen, Seen::Other(_))) {
        *wanted.entry(place.disk.folder().unwrap_or("/")).or_default() += place.size;
    }
    let short = wanted.iter().find(|(folder, need)| target.free.get(**folder).is_some_and(|free| free < *need));
    if let Some((folder, need)) = short {
        let free = target.free.get(*folder).copied().unwrap_or_default();
        let evidence = format!("{host}: {folder} has {} MiB free, {} MiB are to be copied", free >> 20, need >> 20);
        return bad(id, Verdict::Failure, evidence, format!("make room on {host}"));
    }
    let mib = wanted.values().sum::<u64>() >> 20;
    let there: Vec<&str> = places
        .iter()
        .filter(|place| matches!(place.seen, Seen::Other(Some(_))))
        .map(|place| place.disk.path.as_str())
        .collect();
    if !there.is_empty() {
        let evidence = format!("{host} has another file at {} already; it would be replaced", there.join(", "));
        return bad(id, Verdict::Warning, evidence, format!("look at it on {host}; remove it when it is what an earlier attempt left"));
    }
    let evidence = format!("{paths} will be copied to {host} ({mib} MiB; there is room)");
    match about.shared {
        Some(false) => Finding::ok(id, GROUP, evidence),
        _ => bad(id, Verdict::Warning, format!("{host} does not see {evidence}"), "SHARED = NO in the system datastore's template, if it is not so yet; or mount the datastore there"),
    }
}

fn cache(pair: Pair<'_>, places: &[Place<'_>]) -> Finding {
    let id = "vm-cache";
    let risky = |place: &&Place<'_>| {
        let safe_mode = matches!(place.disk.cache.as_str(), "none" | "directsync");
        let file_system = place.filesystem.as_str();
        let on_file = !place.disk.path.starts_with("/dev/");
        place.seen == Seen::Same
            && !place.disk.readonly
            && on_file
            && !(CLUSTER.contains(&file_system) || safe_mode && SHARED.contains(&file_system))
    };
    let all: Vec<String> = places
        .iter()
        .filter(risky)
        .map(|place| format!("{} (cache {}, {})", place.disk.target, place.disk.cache, place.filesystem))
        .collect();
    if all.is_empty() {
        return Finding::ok(id, GROUP, "libvirt takes every disk for safe");
    }
    let evidence = format!("libvirt takes the migration for unsafe: {}", all.join(", "));
    if pair.source.1.options.split_whitespace().any(|word| word == "--unsafe") {
        let mend = "right when the storage is coherent between hosts whatever the cache mode, else CACHE = none";
        return bad(id, Verdict::Warning, format!("{evidence}; MIGRATE_OPTIONS has --unsafe"), mend);
    }
    let mend = "DISK/CACHE = none; or --unsafe in MIGRATE_OPTIONS of kvmrc when the storage is known to be coherent between hosts";
    bad(id, Verdict::Failure, evidence, mend)
}

fn devices(domain: &Domain) -> Finding {
    if domain.bound.is_empty() {
        return Finding::ok("vm-devices", GROUP, "no device is bound to the host");
    }
    let mend = "detach it before (onevm nic-detach, pci-detach), or power the VM off and migrate it without --live";
    bad("vm-devices", Verdict::Failure, format!("the domain has {}", domain.bound.join(", ")), mend)
}

#[cfg(test)]
#[path = "vm_tests.rs"]
mod tests;
