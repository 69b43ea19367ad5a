//! The connection of a job, with the host's remotes brought up to date first.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Inner;
use super::run::{Ran, Wanted};
use crate::host::collect::Collector;
use crate::host::connection::Connection;
use crate::host::entry::Entry;
use crate::host::job::Watch;
use crate::host::push::{self, Pushed};
use crate::wire::{EndedBy, Exit, How};

/// Waits between two tries to connect for a roll-back.
const ROLLBACK_WAIT: Duration = Duration::from_secs(1);

impl Inner {
    /// The shared connection; a new one brings the host's remotes up to date first.
    pub(super) async fn connect(&self, entry: &Entry, watch: &Watch) -> Result<Arc<Connection>, String> {
        let connection = entry.connection(watch).await?;
        if self.options.push && self.source.is_ours() {
            // Those who come meanwhile wait: none runs an old script.
            let update = async {
                if let Err(reason) = self.update(entry, &connection, watch).await {
                    (watch.on_notice)(&format!("{}: the remotes were not updated: {reason}", entry.name));
                }
            };
            connection.updated.get_or_init(|| update).await;
        }
        Ok(connection)
    }

    pub(super) async fn connect_for_rollback(&self, entry: &Entry) -> Result<Arc<Connection>, String> {
        let tries = self.options.action.rollback_tries.max(1);
        let mut reason = String::new();
        for number in 0..tries {
            if number > 0 {
                sleep(ROLLBACK_WAIT).await;
            }
            match entry.open_one(None).await {
                Ok(connection) => return Ok(connection),
                Err(error) => reason = error,
            }
        }
        Err(format!("{reason} (tried {tries} times)"))
    }

    /// Pushes when the host's stamp is not ours.
    async fn update(&self, entry: &Entry, connection: &Arc<Connection>, watch: &Watch) -> Result<(), String> {
        let packed = self.source.packed().await.map_err(|error| error.to_string())?;
        if let Some(helper) = self.helper_of(connection, watch).await
            && helper.hello.stamp.as_ref() == Some(&packed.stamp)
        {
            return Ok(());
        }
        if let Pushed::Done { .. } = self.push(entry, connection, true, watch).await? {
            (watch.on_notice)(&format!("{}: remotes updated", entry.name));
        }
        Ok(())
    }

    pub(super) async fn push(
        &self,
        entry: &Entry,
        connection: &Arc<Connection>,
        lazy: bool,
        watch: &Watch,
    ) -> Result<Pushed, String> {
        let packed = self.source.packed().await.map_err(|error| error.to_string())?;
        let open =
            push::command(&self.options.remote_dir, &packed.stamp, lazy, self.options.host.push_timeout);
        let mut output = Collector::new(8 << 20);
        let quiet = Watch { on_stderr: Arc::new(|_| {}), ..watch.clone() };
        let stdin = packed.archive().map_err(|error| error.to_string())?;
        let wanted = Wanted { open: &open, stdin: &stdin, watch: &quiet };
        let ran = self.over(entry, connection, wanted, &mut output).await;
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        let failed = match ran {
            Ran::Exit(Exit { how: How::Exited(0), .. }) => {
                connection.renew_helper().await;
                return Ok(push::result(&output.stdout, &packed));
            }
            Ran::Exit(Exit { by: EndedBy::Limit, .. }) => {
                format!("it took more than {} s", self.options.host.push_timeout.as_secs())
            }
            Ran::Exit(Exit { by: EndedBy::Request, .. }) => "cancelled".to_owned(),
            Ran::Exit(Exit { how: How::Exited(status), .. }) => format!("exit code {status}"),
            Ran::Exit(Exit { how: How::Signaled(signal), .. }) => format!("killed by signal {signal}"),
            Ran::Refused(refusal) => refusal.text,
            Ran::Lost(reason) | Ran::Silent(reason) => reason,
        };
        Err(if said.is_empty() { failed } else { format!("{said} ({failed})") })
    }
}
