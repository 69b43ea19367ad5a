//! What a migration works with, and the two ends of it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::End;
use super::action::Action;
use super::libvirt::Libvirt;
use super::settings::Settings;
use super::transport::libvirt_uri;
use super::voice::Voice;
use crate::node::tools::Tools;

/// Everything a migration works with.
pub struct Migration<'a> {
    /// What is asked for.
    pub action: &'a Action,
    /// How.
    pub settings: &'a Settings,
    /// Variables of kvmrc, for those that have the name of a host in theirs.
    pub kvmrc: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// Where it is told.
    pub voice: &'a Voice,
    /// Cancelled when the driver wants an end.
    pub term: &'a CancellationToken,
    /// What starts programs.
    pub tools: Arc<dyn Tools>,
    /// This runs on the front-end: the source is another host, too.
    pub from_afar: bool,
    /// The folder of remotes on every host.
    pub remote: &'a str,
}

impl Migration<'_> {
    /// It failed, for the reason `why`.
    #[must_use]
    pub fn failed(&self, why: &str) -> End {
        let (source, target) = (&self.action.source, &self.action.target);
        End::Failed(format!(
            "Could not migrate domain {} from host {source} to host {target}: {why}",
            self.action.id
        ))
    }

    /// libvirt of the source and of the target.
    ///
    /// # Errors
    /// When QEMU_PROTOCOL makes no URI.
    pub fn sides(&self) -> Result<(Libvirt, Libvirt), String> {
        let settings = self.settings;
        let afar = |host| libvirt_uri(&settings.protocol, host).map_err(|error| error.to_string());
        let near = if self.from_afar { afar(&self.action.source)? } else { settings.libvirt_uri.clone() };
        let side = |host: &str, uri: &str| Libvirt::new(Arc::clone(&self.tools), host, uri, settings.ask);
        let source = side(self.action.source.as_str(), &near);
        let target = side(self.action.target.as_str(), &afar(&self.action.target)?);
        Ok((source, target))
    }
}
