//! Snapshots of the domain. libvirt does not migrate a domain that has some, and forgets them where it ends: so what it
//! knows of them is read, taken away, and given back on the side where the domain is in the end. Their data are not
//! touched.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::libvirt::Libvirt;
use super::voice::Voice;
use crate::node::xml::snapshot::order_texts;

/// What libvirt knew.
#[derive(Debug, Default)]
pub struct Snapshots {
    texts: Vec<String>,
    current: Option<String>,
    names: Vec<String>,
}

impl Snapshots {
    /// Reads all snapshots of the domain, passwords in them included.
    ///
    /// # Errors
    /// Why libvirt did not tell.
    pub async fn read(libvirt: &Libvirt, uuid: &str) -> Result<Self, String> {
        let list = libvirt.call(["snapshot-list", uuid, "--name"]).await?;
        let names: Vec<String> = list.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let mut texts = Vec::new();
        for name in &names {
            let args = ["snapshot-dumpxml", "--domain", uuid, "--snapshotname", name, "--security-info"];
            texts.push(libvirt.call(args).await?);
        }
        // That there is none is a failure of this call.
        let current = match names.is_empty() {
            true => None,
            false => libvirt.call(["snapshot-current", uuid, "--name"]).await.ok(),
        };
        let current =
            current.map(|name| name.trim_end_matches('\n').to_owned()).filter(|name| !name.is_empty());
        Ok(Self { texts, current, names })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Keeps those that `folder`, that of the VM, does not hold yet as `NAME.xml`, so that no end of this program loses them.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn keep(&self, folder: &Path) -> Result<(), String> {
        for (name, text) in self.names.iter().zip(&self.texts) {
            let number = name.strip_prefix("snap-").unwrap_or_default();
            if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let file = folder.join(format!("{name}.xml"));
            if file.exists() {
                continue;
            }
            write_new(&file, text)
                .map_err(|error| format!("can't keep snapshot {name} in {}: {error}", file.display()))?;
        }
        Ok(())
    }

    /// Makes libvirt forget them; their data stay.
    ///
    /// # Errors
    /// The first refusal.
    pub async fn forget(&self, libvirt: &Libvirt, uuid: &str) -> Result<(), String> {
        for name in &self.names {
            libvirt.call(["snapshot-delete", "--domain", uuid, "--snapshotname", name, "--metadata"]).await?;
        }
        Ok(())
    }

    /// Gives them to the libvirt that has the domain now, whose files lie in `folder`. What fails is told, nothing more.
    pub async fn give_back(&self, libvirt: &Libvirt, uuid: &str, folder: &str, voice: &Voice) {
        if self.is_empty() {
            return;
        }
        let (texts, notes) = match order_texts(uuid, folder, &self.texts) {
            Ok(ordered) => ordered,
            Err(why) => return voice.error(&format!("the snapshots are unknown to libvirt: {why}")),
        };
        let mut failed: Vec<String> = notes;
        for text in texts {
            let args = ["snapshot-create", "--domain", uuid, "--xmlfile", "/dev/stdin", "--redefine"];
            let limit = std::time::Duration::from_secs(60);
            if let Err(why) = libvirt.give(limit, args, Bytes::from(text)).await {
                failed.push(why);
            }
        }
        if let Some(name) = &self.current
            && let Err(why) =
                libvirt.call(["snapshot-current", "--domain", uuid, "--snapshotname", name]).await
        {
            failed.push(format!("which one is the current is lost: {why}"));
        }
        match failed.first() {
            None => {
                voice.info(&format!("{} snapshots are known to libvirt of {}", self.len(), libvirt.host()))
            }
            Some(why) => voice.error(&format!(
                "{} of {} snapshots are unknown to libvirt of {}: {why}",
                failed.len(),
                self.len(),
                libvirt.host()
            )),
        }
    }
}

fn write_new(file: &PathBuf, text: &str) -> std::io::Result<()> {
    let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).inspect_err(|_| {
        // Half of one is worse than none; it is ours.
        let _ = fs::remove_file(file);
    })
}
