//! Verdicts about the disks of a domain.

use std::collections::BTreeMap;

use super::about::{About, bad, unknown};
use super::domain::{Disk, Domain};
use super::hosts::Pair;
use super::needs::Needs;
use super::told::Told;
use crate::node::check::{Finding, Group, Verdict};

const GROUP: Group = Group::Migration;

/// File systems that libvirt takes for shared.
const SHARED: [&str; 14] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "afs",
    "gfs2",
    "ocfs2",
    "ceph",
    "gpfs",
    "acfs",
    "beegfs",
    "fuse.glusterfs",
    "fuse.quobyte",
    "fuse.ceph",
];
/// Those of them whose caches agree between hosts.
const CLUSTER: [&str; 8] =
    ["gfs2", "ocfs2", "ceph", "gpfs", "acfs", "fuse.glusterfs", "fuse.quobyte", "fuse.ceph"];

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

/// A disk with a path.
#[derive(Debug)]
pub(super) struct Place<'a> {
    disk: &'a Disk,
    seen: Seen,
    size: u64,
    filesystem: String,
}

/// How each disk with a path is seen.
pub(super) fn places<'a>(
    pair: Pair<'_>,
    domain: &'a Domain,
    source: &Needs,
    target: &Needs,
) -> Vec<Place<'a>> {
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
            Place {
                disk,
                seen,
                size,
                filesystem: here.map(|lies| lies.filesystem.clone()).unwrap_or_default(),
            }
        })
        .collect()
}

type File = (u64, u64);

fn seen(disk: &Disk, there: Option<File>, marker: Option<&Told<bool>>, here: Told<Option<File>>) -> Seen {
    match marker {
        Some(Ok(true)) if there.is_some() => Seen::Same,
        Some(Ok(true)) => {
            Seen::Unknown(format!("the folder of {} is shared, but the file is not there", disk.path))
        }
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

/// The disks are one file on both hosts, or there is room for copies.
pub(super) fn storage(pair: Pair<'_>, places: &[Place<'_>], target: &Needs, about: &About) -> Finding {
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
            format!(
                "the system datastore says SHARED = NO, but {same} is one file on both hosts: copying would begin by removing it"
            ),
            "SHARED = YES in the system datastore's template",
        ),
        (false, true, _) => Finding::ok(id, GROUP, format!("{host} sees {same}")),
        (_, false, Some(true)) => bad(
            id,
            Verdict::Failure,
            format!("the system datastore says SHARED = YES, but {host} does not see {other}"),
            format!(
                "mount the datastore on {host} at the same path; or SHARED = NO when it is each host's own"
            ),
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
    let short =
        wanted.iter().find(|(folder, need)| target.free.get(**folder).is_some_and(|free| free < *need));
    if let Some((folder, need)) = short {
        let free = target.free.get(*folder).copied().unwrap_or_default();
        let evidence =
            format!("{host}: {folder} has {} MiB free, {} MiB are to be copied", free >> 20, need >> 20);
        return bad(id, Verdict::Failure, evidence, format!("make room on {host}"));
    }
    let mib = wanted.values().sum::<u64>() >> 20;
    let there: Vec<&str> = places
        .iter()
        .filter(|place| matches!(place.seen, Seen::Other(Some(_))))
        .map(|place| place.disk.path.as_str())
        .collect();
    if !there.is_empty() {
        let evidence =
            format!("{host} has another file at {} already; it would be replaced", there.join(", "));
        return bad(
            id,
            Verdict::Warning,
            evidence,
            format!("look at it on {host}; remove it when it is what an earlier attempt left"),
        );
    }
    let evidence = format!("{paths} will be copied to {host} ({mib} MiB; there is room)");
    match about.shared {
        Some(false) => Finding::ok(id, GROUP, evidence),
        _ => bad(
            id,
            Verdict::Warning,
            format!("{host} does not see {evidence}"),
            "SHARED = NO in the system datastore's template, if it is not so yet; or mount the datastore there",
        ),
    }
}

/// libvirt would take the disks for safe.
pub(super) fn cache(pair: Pair<'_>, places: &[Place<'_>]) -> Finding {
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
        let mend =
            "right when the storage is coherent between hosts whatever the cache mode, else CACHE = none";
        return bad(id, Verdict::Warning, format!("{evidence}; MIGRATE_OPTIONS has --unsafe"), mend);
    }
    let mend = "DISK/CACHE = none; or --unsafe in MIGRATE_OPTIONS of kvmrc when the storage is known to be coherent between hosts";
    bad(id, Verdict::Failure, evidence, mend)
}
