//! `DEFAULT_ATTACH_*` of `kvmrc` as a level of defaults.

use crate::template::{Attribute, Level, Member, Origin, Template, Value};

/// The level that `kvmrc` is, from variables as bash has them after it read the file. A variable that is empty
/// counts as not set.
#[must_use]
pub fn kvmrc(variables: impl IntoIterator<Item = (String, String)>) -> Template {
    let (mut disk, mut nic, mut features) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix("DEFAULT_ATTACH_").filter(|_| !value.is_empty()) else { continue };
        let member = |name: &str| Member {
            name: name.to_owned(),
            value: value.clone(),
            origin: Origin::of(Level::Kvmrc),
        };
        match rest {
            "CACHE" | "DISCARD" | "IO" | "SIZE_IOPS_SEC" => disk.push(member(rest)),
            "VIRTIO_BLK_QUEUES" => features.push(member(rest)),
            "VIRTIO_BLK_IOTHREAD" => disk.push(member("IOTHREAD")),
            "NIC_MODEL" => nic.push(member("MODEL")),
            "NIC_FILTER" => nic.push(member("FILTER")),
            _ if is_limit(rest) => disk.push(member(rest)),
            _ => {}
        }
    }
    let vector = |name: &str, members| Attribute {
        name: name.to_owned(),
        value: Value::Vector(members),
        origin: Origin::of(Level::Kvmrc),
    };
    [vector("DISK", disk), vector("NIC", nic), vector("FEATURES", features)].into_iter().collect()
}

/// `{TOTAL,READ,WRITE}_{BYTES,IOPS}_SEC{,_MAX,_MAX_LENGTH}`.
fn is_limit(name: &str) -> bool {
    let Some(rest) = ["TOTAL_", "READ_", "WRITE_"].iter().find_map(|who| name.strip_prefix(who)) else {
        return false;
    };
    let Some(rest) = ["BYTES_SEC", "IOPS_SEC"].iter().find_map(|unit| rest.strip_prefix(unit)) else {
        return false;
    };
    matches!(rest, "" | "_MAX" | "_MAX_LENGTH")
}
