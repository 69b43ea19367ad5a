//! What OpenNebula knows of a VM that is to move, and findings on such a VM.

use std::collections::BTreeMap;

use crate::node::check::{Finding, Group, Verdict};

/// What OpenNebula says of the VM beyond its domain.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// SHARED of the system datastore; `None` when it is not known.
    pub shared: Option<bool>,
    /// Network driver (VN_MAD) of each bridge, as far as it is known.
    pub drivers: BTreeMap<String, String>,
}

pub(super) fn bad(
    id: &'static str,
    verdict: Verdict,
    evidence: impl Into<String>,
    mend: impl Into<String>,
) -> Finding {
    Finding::bad(id, Group::Migration, verdict, evidence, mend)
}

pub(super) fn unknown(id: &'static str, why: impl Into<String>) -> Finding {
    Finding::unchecked(id, Group::Migration, why, "mend what kept it from being asked, then check again")
}
