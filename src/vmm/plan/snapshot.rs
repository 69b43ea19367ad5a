//! Snapshots of a whole VM: SNAPSHOTCREATE, SNAPSHOTREVERT, SNAPSHOTDELETE.

use super::build::{Builder, Planned, text};
use super::network::Reads;
use super::{Info, Refusal, Value};

/// A field of the snapshot that the action is about.
fn active(builder: &Builder<'_>, field: &str) -> Result<Value, Refusal> {
    let path = format!("VM/TEMPLATE/SNAPSHOT[ACTIVE='YES']/{field}");
    let snapshot = builder.action.flagged("SNAPSHOT", "ACTIVE");
    snapshot.and_then(|snapshot| snapshot.filled(field)).map(text).ok_or_else(|| builder.expecting(&path))
}

/// SNAPSHOTCREATE: the script prints the hypervisor's name of the snapshot.
pub(crate) fn create(builder: &Builder<'_>) -> Planned {
    let args = builder.with_tail([builder.deploy_id()?, active(builder, "SNAPSHOT_ID")?]);
    Ok((vec![builder.direct("snapshot_create", args)], Info::FirstWord("snapshot_create")))
}

/// SNAPSHOTREVERT. Network rules are set again behind it, but not those of `elastic`, whose provider keeps them.
pub(crate) fn revert(builder: &Builder<'_>) -> Planned {
    let id = builder.deploy_id()?;
    let revert = builder.vmm("snapshot_revert", [id.clone(), active(builder, "HYPERVISOR_ID")?]);
    let host = builder.action.host();
    let mut drivers = builder.network_drivers(host)?;
    drivers.retain(|driver| driver != "elastic");
    let post = builder.network_step(host, "post", &[id, builder.host()], &drivers, Reads::Reduced);
    Ok((vec![revert, post], Info::Nothing))
}

/// SNAPSHOTDELETE.
pub(crate) fn delete(builder: &Builder<'_>) -> Planned {
    let args = builder.with_tail([builder.deploy_id()?, active(builder, "HYPERVISOR_ID")?]);
    Ok((vec![builder.direct("snapshot_delete", args)], Info::Output("snapshot_delete")))
}
