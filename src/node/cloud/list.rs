//! The VMs of this host: their folders, and the domains of libvirt that bear their names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Ground;
use super::error::CloudError;
use super::spec::{PREFIX, Record};

/// One VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// `running`, `paused`, `shut down` (has files and no running domain), `crashed`, or another word for what libvirt told.
    pub state: String,
    /// Its folder, if it has one here.
    pub folder: Option<PathBuf>,
    /// How it was made, when its folder tells.
    pub record: Option<Record>,
}

/// All VMs below `images`, and all domains of that kind, by name.
///
/// # Errors
/// When libvirt does not answer. A folder that is not there has no VMs.
pub async fn list(ground: &Ground, images: &Path) -> Result<Vec<Listed>, CloudError> {
    let mut all: BTreeMap<String, Listed> = BTreeMap::new();
    let entries = std::fs::read_dir(images).map(|entries| entries.flatten().collect::<Vec<_>>());
    for entry in entries.unwrap_or_default() {
        let folder = entry.path();
        let Some(name) =
            entry.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)).map(str::to_owned)
        else {
            continue;
        };
        if !folder.is_dir() {
            continue;
        }
        let record = Record::read(&folder).ok();
        let state = "shut down".to_owned();
        all.insert(name.clone(), Listed { name, state, folder: Some(folder), record });
    }
    for domain in ground.virsh().look().await.map_err(CloudError::Program)? {
        let Some(name) = domain.name.strip_prefix(PREFIX).map(str::to_owned) else { continue };
        let state = word(domain.state.map(|(state, _)| state)).to_owned();
        all.entry(name.clone()).and_modify(|vm| vm.state.clone_from(&state)).or_insert_with(|| Listed {
            name,
            state,
            folder: None,
            record: None,
        });
    }
    Ok(all.into_values().collect())
}

/// libvirt's numbers for states.
fn word(state: Option<i32>) -> &'static str {
    match state {
        Some(1 | 2) => "running",
        Some(3) => "paused",
        Some(4) => "shutting down",
        Some(5) => "shut down",
        Some(6) => "crashed",
        Some(7) => "suspended by the guest",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::root::Root;
    use crate::node::tools::Ask;
    use crate::node::tools::fake::Fake;

    #[tokio::test]
    async fn folders_and_domains_are_brought_together() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["kvmad-a", "kvmad-b", "base", "cloud-images"] {
            std::fs::create_dir(dir.path().join(name)).expect("a folder");
        }
        let answer = "Domain: 'kvmad-a'\n  state.state=1\n  state.reason=1\n\nDomain: 'one-3'\n  state.state=1\n  state.reason=1\n\n\
                      =kvmad=\n3c4b5bb5-1b2d-4f2e-9f6e-7a2f6a1d0001 kvmad-a\n3c4b5bb5-1b2d-4f2e-9f6e-7a2f6a1d0002 one-3\n\
                      3c4b5bb5-1b2d-4f2e-9f6e-7a2f6a1d0003 kvmad-c\n";
        let tools = Fake(move |_: &Ask| Ok(answer.to_owned()));
        let ground = Ground::new(Arc::new(tools), Root::system(), "x86_64", "test:///default", |_| {});
        let all = list(&ground, dir.path()).await.expect("a list");
        let shown: Vec<_> =
            all.iter().map(|vm| (vm.name.as_str(), vm.state.as_str(), vm.folder.is_some())).collect();
        assert_eq!(shown, [("a", "running", true), ("b", "shut down", true), ("c", "unknown", false)]);
    }
}
