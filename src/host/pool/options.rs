//! What a pool needs to know.

use std::path::PathBuf;

use crate::host::ssh::SshOptions;
use crate::settings::{Action, Host, Paths, Settings};

/// What a pool needs to know. [`PoolOptions::new`] fills it from the settings.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Settings of connections.
    pub host: Host,
    /// Settings of actions.
    pub action: Action,
    /// How ssh is started.
    pub ssh: SshOptions,
    /// The remotes on the front-end.
    pub remotes: PathBuf,
    /// The remotes on hosts (SCRIPTS_REMOTE_DIR).
    pub remote_dir: String,
    /// The helper for commands on the front-end; `None`: they are children of the driver itself.
    pub local_helper: Option<PathBuf>,
    /// Where that helper writes down what runs; `None`: its own default.
    pub local_state: Option<PathBuf>,
    /// Files from elsewhere that go to hosts with the remotes: where they are, and where below the remotes they
    /// will be. One that is not there is left out.
    pub extras: Vec<(PathBuf, String)>,
    /// Push the remotes to hosts that have others, or lack a script.
    pub push: bool,
}

impl PoolOptions {
    /// Everything as the settings and paths say; the helper of the front-end's own CPU if it is there.
    #[must_use]
    pub fn new(settings: &Settings, paths: &Paths, remote_dir: &str) -> Self {
        let remotes = paths.remotes();
        let helper = remotes.join("kvmad").join(std::env::consts::ARCH).join("kvmad-node");
        Self {
            ssh: SshOptions::new(&settings.host),
            host: settings.host.clone(),
            action: settings.action.clone(),
            remote_dir: remote_dir.to_owned(),
            local_helper: helper.is_file().then_some(helper),
            local_state: None,
            extras: vec![(paths.domain_defaults(), "etc/vmm/kvm/vmm_exec_kvm.conf".to_owned())],
            remotes,
            push: true,
        }
    }
}
