//! Deletes the files of a VM of `kvmad vm`: only those that it consists of, only when no domain uses them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::Ground;
use super::error::CloudError;
use super::prepare::DEPLOYMENT;
use super::spec::{self, Record};

/// What a VM of ours consists of; the record is the last to go, so that a delete that was interrupted can be done again.
const FILES: [&str; 8] =
    ["disk.0", "disk.1", "disk.0.new", "disk.1.new", DEPLOYMENT, "deployment.0.new", "vm.xml", "ds.xml"];

/// Deletes the files of VM `name`. A VM that is not there is deleted already.
///
/// # Errors
/// When its domain is still there, the folder is none of ours, or holds other files too (these stay).
pub async fn remove(ground: &Ground, images: &Path, name: &str) -> Result<(), CloudError> {
    let folder = spec::folder_of(images, name)?;
    let domain = format!("{}{name}", spec::PREFIX);
    let virsh = ground.virsh();
    let all = virsh.run(&["list", "--all", "--name"], bytes::Bytes::new(), super::LIBVIRT).await;
    if all.map_err(CloudError::Program)?.lines().any(|line| line.trim() == domain) {
        return Err(CloudError::Refused(format!("domain {domain} is still there; its files are kept")));
    }
    match fs::symlink_metadata(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            ground.say(&format!("{} is not there", folder.display()));
            return Ok(());
        }
        Err(error) => return Err(CloudError::file(folder, error)),
        Ok(meta) if !meta.is_dir() => return Err(CloudError::file(folder, "it is no folder; it is kept")),
        Ok(_) => {}
    }
    let record = Record::read(&folder);
    if !record.is_ok_and(|record| record.name == name) {
        return Err(CloudError::file(
            &folder,
            "nothing in it says that kvmad made it for this VM; it is kept, delete it by hand if it is not needed",
        ));
    }
    for file in FILES.iter().chain([&spec::RECORD]) {
        let path = folder.join(file);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(CloudError::file(path, error)),
            _ => {}
        }
    }
    fs::remove_dir(&folder).map_err(|error| {
        CloudError::file(
            &folder,
            format!("the VM is deleted, but the folder holds other files, which are kept ({error})"),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::cloud::spec::Network;
    use crate::node::root::Root;
    use crate::node::tools::Ask;
    use crate::node::tools::fake::Fake;

    fn ground(domains: Result<&'static str, i32>) -> Ground {
        let tools = Fake(move |_: &Ask| {
            domains.map(str::to_owned).map_err(|status| (status, "no libvirt".to_owned()))
        });
        Ground::new(Arc::new(tools), Root::system(), "x86_64", "test:///default", |_| {})
    }

    fn vm(images: &Path, recorded: &str) -> std::path::PathBuf {
        let folder = images.join("kvmad-a");
        fs::create_dir_all(&folder).expect("a folder");
        let record = Record {
            name: recorded.to_owned(),
            image: "x".to_owned(),
            size: 1,
            network: Network::Nat("default".to_owned()),
            addresses: Vec::new(),
            made: 0,
        };
        fs::write(folder.join("disk.0"), "data").expect("a file");
        fs::write(folder.join(spec::RECORD), serde_json::to_string(&record).expect("JSON")).expect("a file");
        folder
    }

    #[tokio::test]
    async fn a_vm_without_domain_goes_and_going_again_is_fine() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = vm(dir.path(), "a");
        remove(&ground(Ok("kvmad-aa\none-1\n")), dir.path(), "a").await.expect("gone");
        assert!(!folder.exists());
        remove(&ground(Ok("")), dir.path(), "a").await.expect("still gone");
    }

    #[tokio::test]
    async fn data_that_may_be_needed_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        for (recorded, domains, part) in [
            ("a", Ok("kvmad-a\n"), "still there"),
            ("a", Err(1), "no libvirt"),
            ("b", Ok(""), "nothing in it says"),
        ] {
            let folder = vm(dir.path(), recorded);
            let error = remove(&ground(domains), dir.path(), "a").await.expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
            assert!(folder.join("disk.0").exists(), "{part}");
        }
        let folder = vm(dir.path(), "a");
        fs::write(folder.join("mine"), "").expect("a file");
        assert!(remove(&ground(Ok("")), dir.path(), "a").await.is_err());
        assert!(folder.join("mine").exists());
        for name in ["..", "../x", "a/b", "", "-a"] {
            assert!(remove(&ground(Ok("")), dir.path(), name).await.is_err(), "{name}");
        }
    }
}
