//! Everything that a VM needs before its domain starts: checks first, then the image, then its folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::error::CloudError;
use super::inspect::{self, Image};
use super::overlay::{self, Form};
use super::reference::{Reference, in_library};
use super::spec::{self, ImageWanted, Places, Prepared, Record, Wanted};
use super::{Ground, fetch, network, seed, write_private};

/// Name of the domain's file in the folder of a VM.
pub const DEPLOYMENT: &str = "deployment.0";

/// Prepares `wanted`. When it fails, nothing of the VM is left; a downloaded image stays in the cache.
///
/// # Errors
/// [`CloudError`].
pub async fn prepare(ground: &Ground, wanted: &Wanted) -> Result<Prepared, CloudError> {
    let folder = spec::folder_of(&wanted.images, &wanted.name)?;
    refuse_existing(ground, &folder, &wanted.name).await?;
    network::check(ground, &wanted.network).await?;
    let emulator = emulator(ground)?;
    let (path, image) = image(ground, &wanted.image, &wanted.places).await?;
    let size = overlay::size(wanted.image.size, &image, &path)?;
    fetch::make_folder(&wanted.images)?;
    // It gets its name when it is complete; what is not goes away with `new`.
    let new = tempfile::Builder::new().prefix(".new-").tempdir_in(&wanted.images);
    let new = new.map_err(|error| CloudError::file(&folder, format!("the folder can't be made: {error}")))?;
    let prepared = Prepared { folder, image: path, size, emulator, arch: ground.arch().to_owned() };
    fill(ground, wanted, &image, &prepared, new.path()).await?;
    fs::rename(new.path(), &prepared.folder).map_err(|_| exists(&wanted.name, &prepared.folder))?;
    Ok(prepared)
}

async fn fill(
    ground: &Ground,
    wanted: &Wanted,
    image: &Image,
    prepared: &Prepared,
    folder: &Path,
) -> Result<(), CloudError> {
    // QEMU's user passes, nobody lists.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711))
        .map_err(|error| CloudError::file(folder, error))?;
    let record = Record {
        name: wanted.name.clone(),
        image: wanted.image.reference.clone(),
        size: prepared.size,
        network: wanted.network.clone(),
        addresses: wanted.seed.interfaces.iter().flat_map(|one| one.addresses.clone()).collect(),
        made: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    };
    write_private(&folder.join(spec::RECORD), super::json(&record)?.as_bytes())?;
    seed::make(ground, &wanted.seed, &folder.join("disk.1")).await?;
    let disk = folder.join("disk.0");
    overlay::make(ground, &prepared.image, image, &disk, prepared.size, Form::Overlay).await
}

async fn refuse_existing(ground: &Ground, folder: &Path, name: &str) -> Result<(), CloudError> {
    if fs::symlink_metadata(folder).is_ok() {
        return Err(exists(name, folder));
    }
    let domain = format!("{}{name}", spec::PREFIX);
    let virsh = ground.virsh();
    let all = virsh.run(&["list", "--all", "--name"], bytes::Bytes::new(), super::LIBVIRT).await;
    if all.map_err(CloudError::Program)?.lines().any(|line| line.trim() == domain) {
        return Err(CloudError::Refused(format!("a domain {domain} is there already on this host")));
    }
    Ok(())
}

fn exists(name: &str, folder: &Path) -> CloudError {
    CloudError::Refused(format!(
        "there is a VM {name} on this host already ({}): take another name, or delete it (kvmad vm delete {name})",
        folder.display()
    ))
}

/// The image as a file of this host, and what it is.
///
/// # Errors
/// [`CloudError`] of the reference, the download, the checksum, the image.
pub async fn image(
    ground: &Ground,
    wanted: &ImageWanted,
    places: &Places,
) -> Result<(PathBuf, Image), CloudError> {
    let checksum = wanted.checksum.as_deref();
    let path = match Reference::parse(&wanted.reference)? {
        Reference::Url { url, file } => fetch::get(ground, &url, &file, places, checksum).await?,
        local => {
            let path = match local {
                Reference::Name(name) => in_library(&name, &places.library)?,
                Reference::Path(path) => path,
                Reference::Url { .. } => return Err(CloudError::Refused("a URL is no file".to_owned())),
            };
            if let Some(checksum) = checksum {
                fetch::Checksum::parse(checksum)?.check(&path, &path, "").await?;
            }
            path
        }
    };
    // The layer over it names it by a path that must mean the same later.
    let path = fs::canonicalize(&path).map_err(|error| CloudError::file(&path, error))?;
    let image = inspect::inspect(ground.tools(), &path, &wanted.reference, ground.arch()).await?;
    Ok((path, image))
}

/// What runs VMs of this CPU: as OpenNebula's packages name it, as QEMU itself does, as RHEL does.
fn emulator(ground: &Ground) -> Result<PathBuf, CloudError> {
    let system = format!("/usr/bin/qemu-system-{}", ground.arch());
    let names = ["/usr/bin/qemu-kvm-one", &system, "/usr/libexec/qemu-kvm", "/usr/bin/qemu-kvm"];
    let found = names.into_iter().find(|path| ground.root.exists(path)).map(PathBuf::from);
    found.ok_or_else(|| {
        CloudError::Program(format!(
            "there is no {system} on this host; install QEMU (qemu-system-x86, qemu-kvm)"
        ))
    })
}
