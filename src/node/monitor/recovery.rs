//! Recovery snapshots and disk sizes: work that OpenNebula's transfer drivers do on the host by scripts of theirs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::collect::datastores;
use super::text::{check, quoted};
use crate::node::root::Root;
use crate::node::tools::{Ask, Tools};
use crate::template::xml::Document;

/// What the scripts of transfer drivers are run with.
#[derive(Clone)]
pub struct Transfer {
    /// What starts them.
    pub tools: Arc<dyn Tools>,
    /// The remotes' folder.
    pub remotes: String,
    /// The datastore location.
    pub location: String,
    /// Time limit of one.
    pub limit: Duration,
    /// Most output of one.
    pub cap: usize,
}

impl Transfer {
    /// Disk sizes: the output of `tm/DRIVER/monitor_ds FOLDER` of each watched datastore whose driver has that script.
    pub async fn disk_sizes(&self, root: &Root, mut complain: impl FnMut(String)) -> String {
        let mut text = String::new();
        for datastore in datastores::list(root, &self.location) {
            let Some(script) =
                datastore.driver.as_deref().and_then(|driver| self.script(root, driver, "monitor_ds"))
            else {
                continue;
            };
            let args = [datastore.path.to_string_lossy().into_owned()];
            match self.run(&script, args).await {
                Ok(out) if check(&out).is_ok() => text.push_str(&with_newline(out)),
                Ok(_) => complain(format!("{} printed no template text", script.display())),
                Err(reason) => complain(reason),
            }
        }
        text
    }

    /// Recovery snapshots: of each disk of a VM in an `ssh` datastore that has a replica base and wants them.
    pub async fn recovery(&self, root: &Root) -> String {
        let Some(script) = self.script(root, "ssh", "recovery_snap_create_live") else {
            return String::new();
        };
        let mut text = String::new();
        let watched = datastores::list(root, &self.location);
        for datastore in watched.into_iter().filter(|datastore| datastore.driver.as_deref() == Some("ssh")) {
            for vm in numbered(&datastore.path, "") {
                let folder = datastore.path.join(vm.to_string());
                let told = self.recover(&script, &folder).await;
                if !told.is_empty() {
                    text.push_str(&format!("VM = [ ID=\"{vm}\", MONITOR=\"{}\" ]\n", STANDARD.encode(told)));
                }
            }
        }
        text
    }

    async fn recover(&self, script: &Path, folder: &Path) -> String {
        let document = |name| Document::parse(std::fs::read_to_string(folder.join(name)).ok()?).ok();
        let (Some(vm), Some(datastore)) = (document("vm.xml"), document("ds.xml")) else {
            return String::new();
        };
        let replica = datastore.root().filled("TEMPLATE/REPLICA_HOST").unwrap_or_default();
        if replica.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for disk in numbered(folder, "disk.") {
            let wanted =
                vm.root().child("TEMPLATE").into_iter().flat_map(|template| template.children("DISK"));
            let frequency = wanted
                .filter(|one| one.text_at("DISK_ID").as_deref() == Some(disk.to_string().as_str()))
                .find_map(|one| one.filled("RECOVERY_SNAPSHOT_FREQ"));
            let (Some(frequency), true) =
                (frequency, folder.join(format!("disk.{disk}.snap/base.1")).exists())
            else {
                continue;
            };
            let path = |path: PathBuf| path.to_string_lossy().into_owned();
            let args = [
                path(folder.to_owned()),
                path(folder.join(format!("disk.{disk}"))),
                frequency,
                replica.clone(),
            ];
            match self.run(script, args).await {
                Ok(out) if out.trim().is_empty() => {}
                Ok(out) => {
                    let stamp = quoted(out.trim());
                    text.push_str(&format!("DISK_RECOVERY_SNAPSHOT = [ ID={disk}, TIMESTAMP={stamp} ]\n"));
                }
                Err(reason) => {
                    let message = quoted(&format!("ERROR {reason}"));
                    text.push_str(&format!("DISK_RECOVERY_SNAPSHOT = [ ID={disk}, MSG={message} ]\n"));
                }
            }
        }
        text
    }

    /// A script of a transfer driver; the driver's name comes from a file, so it must be a plain word.
    fn script(&self, root: &Root, driver: &str, name: &str) -> Option<PathBuf> {
        let plain =
            !driver.is_empty() && driver.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        let path = root.path(format!("{}/tm/{driver}/{name}", self.remotes));
        (plain && path.is_file()).then_some(path)
    }

    async fn run<const N: usize>(&self, script: &Path, args: [String; N]) -> Result<String, String> {
        let name = script.to_string_lossy();
        let ask = Ask { cap: self.cap, ..Ask::new(name.clone(), args, self.limit) };
        self.tools.ask(ask).await?.good(&name, self.limit)
    }
}

/// Numbers N of the entries `<prefix>N` in a folder, ascending.
fn numbered(folder: &Path, prefix: &str) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| {
        let digits = name.strip_prefix(prefix)?;
        (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
    };
    let mut all: Vec<u64> = entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    all.sort_unstable();
    all
}

fn with_newline(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::fake::Fake;

    fn write(dir: &Path, path: &str, text: &str) {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    fn transfer(answer: impl Fn(&Ask) -> Result<String, (i32, String)> + Send + Sync + 'static) -> Transfer {
        Transfer {
            tools: Arc::new(Fake(answer)),
            remotes: "/rem".into(),
            location: "/ds".into(),
            limit: Duration::from_secs(1),
            cap: 1000,
        }
    }

    #[tokio::test]
    async fn disk_sizes_come_from_the_script_of_the_driver() {
        let dir = tempfile::tempdir().expect("a folder");
        for (path, text) in [
            ("ds/0/.monitor", "ssh\n"),
            ("ds/1/.monitor", "../x\n"),
            ("ds/2/.monitor", "none"),
            ("rem/tm/ssh/monitor_ds", ""),
            ("rem/x/monitor_ds", ""),
        ] {
            write(dir.path(), path, text);
        }
        let own = dir.path().join("ds/0").to_string_lossy().into_owned();
        let transfer = transfer(move |ask| {
            assert_eq!(ask.args, std::slice::from_ref(&own));
            Ok("VM = [ ID = 12, MONITOR = \"eA==\"]".into())
        });
        let text = transfer.disk_sizes(&Root::at(dir.path()), |reason| panic!("{reason}")).await;
        assert_eq!(text, "VM = [ ID = 12, MONITOR = \"eA==\"]\n");
    }

    #[tokio::test]
    async fn disks_with_a_base_and_a_wish_are_snapshotted() {
        let dir = tempfile::tempdir().expect("a folder");
        for (path, text) in [
            ("ds/0/.monitor", "ssh"),
            ("ds/0/12/disk.0", ""),
            ("ds/0/12/disk.0.snap/base.1", ""),
            ("ds/0/12/disk.1", ""),
            (
                "ds/0/12/vm.xml",
                "<VM><TEMPLATE><DISK><DISK_ID>0</DISK_ID><RECOVERY_SNAPSHOT_FREQ>3600</RECOVERY_SNAPSHOT_FREQ></DISK></TEMPLATE></VM>",
            ),
            (
                "ds/0/12/ds.xml",
                "<DATASTORE><TEMPLATE><REPLICA_HOST>node9</REPLICA_HOST></TEMPLATE></DATASTORE>",
            ),
            ("ds/0/13/disk.0", ""),
            ("rem/tm/ssh/recovery_snap_create_live", ""),
        ] {
            write(dir.path(), path, text);
        }
        let transfer = transfer(|ask| {
            assert!(ask.args[0].ends_with("/ds/0/12") && ask.args[1].ends_with("/disk.0"));
            assert_eq!(ask.args[2..], ["3600", "node9"]);
            Ok("1700000000\n".into())
        });
        let text = transfer.recovery(&Root::at(dir.path())).await;
        let packed = STANDARD.encode("DISK_RECOVERY_SNAPSHOT = [ ID=0, TIMESTAMP=\"1700000000\" ]\n");
        assert_eq!(text, format!("VM = [ ID=\"12\", MONITOR=\"{packed}\" ]\n"));
    }
}
