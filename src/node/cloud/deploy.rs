//! A VM of OpenNebula with a cloud image: volatile disks with `CLOUD_IMAGE` are made from it, and `CLOUD_INIT` becomes a
//! seed that is added to the domain.
//!
//! What users of OpenNebula may name is narrower than what the operator may: images of the library, and URLs that
//! `sources` of `[cloud]` allows. A disk that holds data is never touched, so a VM that is deployed again keeps its own.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::CloudError;
use super::overlay::{self, Form};
use super::reference::Reference;
use super::spec::{ImageWanted, Places};
use super::{Ground, init, prepare, seed};
use crate::node::monitor::setup::remotes_of_program;
use crate::node::tools::Ask;
use crate::node::xml::edit::Edits;
use crate::settings::Settings;
use crate::template::document::VmDocument;
use crate::template::value::Vector;
use crate::template::xml::Document;

/// Name of the seed in the VM's folder.
pub const SEED: &str = "kvmad-seed.iso";

const LIMIT: Duration = Duration::from_secs(60);

/// Prepares the VM of the document `vm`, whose files are in `folder` and whose domain is in the file `domain`.
///
/// # Errors
/// [`CloudError`] says which disk or attribute.
pub async fn deploy(ground: &Ground, vm: &str, folder: &Path, domain: &Path) -> Result<(), CloudError> {
    let document = parse(vm, "the VM's document")?;
    let read = VmDocument::read(&document, None).map_err(|error| CloudError::Refused(error.to_string()))?;
    let settings = settings()?;
    for disk in read.template.vectors("DISK") {
        let Some(reference) = disk.filled("CLOUD_IMAGE") else { continue };
        let number =
            disk.get("DISK_ID").filter(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()));
        let Some(number) = number else {
            return Err(CloudError::Refused("a DISK has no DISK_ID".to_owned()));
        };
        let path = folder.join(format!("disk.{number}"));
        one_disk(ground, disk, reference, &path, &settings).await.map_err(|error| {
            CloudError::Refused(format!("disk {number} with CLOUD_IMAGE {reference:?}: {error}"))
        })?;
    }
    let Some(wanted) = init::seed(&document, &read, &settings)? else { return Ok(()) };
    let file = folder.join(SEED);
    seed::make(ground, &wanted, &file).await?;
    add_seed(domain, &file)
}

fn parse(text: &str, what: &str) -> Result<Document, CloudError> {
    Document::parse(text).map_err(|error| CloudError::Refused(format!("{what}: {error}")))
}

fn settings() -> Result<Settings, CloudError> {
    let file = remotes_of_program().unwrap_or_else(|| PathBuf::from("/var/tmp/one")).join("etc/kvmad.conf");
    let read = Settings::read(&file, std::env::vars_os());
    read.map(|(settings, _)| settings).map_err(|error| CloudError::Refused(error.to_string()))
}

async fn one_disk(
    ground: &Ground,
    disk: Vector<'_>,
    reference: &str,
    path: &Path,
    settings: &Settings,
) -> Result<(), CloudError> {
    let refused = |reason: &str| Err(CloudError::Refused(reason.to_owned()));
    let volatile = disk.get("TYPE").is_some_and(|kind| kind.eq_ignore_ascii_case("fs"));
    if !volatile || disk.filled("IMAGE").is_some() || disk.filled("IMAGE_ID").is_some() {
        return refused("only a volatile disk of TYPE fs can be made from a cloud image");
    }
    allowed(reference, &settings.cloud.sources)?;
    let form = match disk.filled("DRIVER").or_else(|| disk.filled("FORMAT")) {
        Some("qcow2") => Form::Overlay,
        Some("raw") => Form::Raw,
        _ => return refused("its FORMAT must be qcow2 or raw"),
    };
    let path = &fs::canonicalize(path).map_err(|error| CloudError::file(path, error))?;
    if !path.is_file() {
        return refused("it is no file; a cloud image needs a system datastore of files");
    }
    if holds_data(ground, path, form).await? {
        ground.say(&format!("{} holds data already and is kept as it is", path.display()));
        return Ok(());
    }
    let size = disk.get("SIZE").and_then(|size| size.trim().parse::<u64>().ok()).map(|mib| mib << 20);
    let checksum = disk.filled("CLOUD_CHECKSUM").map(str::to_owned);
    let wanted = ImageWanted { reference: reference.to_owned(), checksum, size };
    let (base, image) = prepare::image(ground, &wanted, &Places::of(&settings.cloud)).await?;
    let size = overlay::size(size, &image, &base)?;
    overlay::make(ground, &base, &image, path, size, form).await?;
    ground.say(&format!("{} was made from {}", path.display(), base.display()));
    Ok(())
}

/// Whether a user of OpenNebula may name `reference`.
fn allowed(reference: &str, sources: &str) -> Result<(), CloudError> {
    let refused =
        |reason: &str| CloudError::Reference { text: reference.to_owned(), reason: reason.to_owned() };
    match Reference::parse(reference)? {
        Reference::Name(_) => Ok(()),
        Reference::Path(_) => {
            Err(refused("a VM of OpenNebula can use images of the library and URLs only, no paths"))
        }
        Reference::Url { url, .. } => {
            let plain = url.split(['?', '#']).next().unwrap_or("");
            let climbs = plain
                .to_ascii_lowercase()
                .replace("%2e", ".")
                .split('/')
                .any(|part| part == ".." || part == ".");
            let fits = |source: &str| {
                let rest = plain.strip_prefix(source);
                rest.is_some_and(|rest| source.ends_with('/') || rest.starts_with('/'))
            };
            let sources = sources.split(',').map(str::trim).filter(|source| !source.is_empty());
            if !climbs && sources.into_iter().any(fits) {
                return Ok(());
            }
            Err(refused("its source is not allowed (sources of [cloud] in etc/kvmad.conf of the remotes)"))
        }
    }
}

/// Whether anything was ever written to the disk. A file that can't be understood counts as data.
async fn holds_data(ground: &Ground, path: &Path, form: Form) -> Result<bool, CloudError> {
    if form == Form::Raw {
        let path = path.to_owned();
        let found =
            tokio::task::spawn_blocking(move || any_byte(&path).map_err(|e| CloudError::file(path, e)));
        return found.await.map_err(|error| CloudError::Program(error.to_string()))?;
    }
    let shown = path.to_string_lossy();
    let ask = Ask::new("qemu-img", ["map", "-f", "qcow2", "--output=json", "--", &shown], LIMIT);
    let answer = ground.tools().ask(ask).await.map_err(|reason| super::inspect::missing(&reason))?;
    let text = answer.good("qemu-img map", LIMIT).map_err(|reason| CloudError::image(path, reason))?;
    let parts: Vec<serde_json::Value> =
        serde_json::from_str(&text).map_err(|error| CloudError::image(path, error.to_string()))?;
    Ok(parts.iter().any(|part| part["data"] != false || part["depth"] != 0))
}

/// Whether a sparse file holds any byte but 0.
fn any_byte(path: &Path) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < end {
        at = match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            Ok(next) => next,
            Err(rustix::io::Errno::NXIO) => return Ok(false), // only a hole is left
            Err(_) => at,
        };
        file.seek(SeekFrom::Start(at))?;
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(false);
        }
        if buffer[..count].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
        at += count as u64;
    }
    Ok(false)
}

/// Adds the seed to the domain in `file`, as the last disk that a virtio bus can name, out of the way of those that are
/// attached later.
fn add_seed(file: &Path, seed: &Path) -> Result<(), CloudError> {
    let text = fs::read_to_string(file).map_err(|error| CloudError::file(file, error))?;
    let document = parse(&text, "the domain")?;
    let root = document.root();
    let Some(devices) = root.child("devices") else {
        return Err(CloudError::file(file, "the domain has no devices"));
    };
    let disks: Vec<_> = root.children("devices").flat_map(|all| all.children("disk")).collect();
    let has = |path: &str, attribute: &str, value: &str| {
        disks
            .iter()
            .filter_map(|disk| disk.child(path))
            .any(|found| found.attribute(attribute) == Some(value))
    };
    let shown = seed.to_string_lossy();
    if has("source", "file", &shown) {
        return Ok(());
    }
    let target =
        ('a'..='z').rev().map(|letter| format!("vd{letter}")).find(|name| !has("target", "dev", name));
    let Some(target) = target else {
        return Err(CloudError::Refused(
            "the VM has so many disks that none is left for the seed".to_owned(),
        ));
    };
    let mut edits = Edits::new(&document);
    let source = crate::node::xml::edit::attribute_text(&shown);
    edits.add_last(
        devices,
        &format!(
            "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{source}'/>\
             <target dev='{target}' bus='virtio'/><readonly/></disk>"
        ),
    );
    super::write_private(file, edits.apply().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_may_name_the_library_and_allowed_sources_only() {
        let sources = "https://cloud.debian.org/images, https://mirror/";
        for good in ["debian-12", "https://cloud.debian.org/images/x.qcow2", "https://mirror/a/b.img?x=/../y"]
        {
            assert!(allowed(good, sources).is_ok(), "{good}");
        }
        for bad in [
            "/var/lib/one/datastores/1/abc",
            "https://cloud.debian.org/imagesx/x.qcow2",
            "https://cloud.debian.org.example.org/images/x.qcow2",
            "https://mirror.example.org/x",
            "https://cloud.debian.org/images/../x.qcow2",
            "https://cloud.debian.org/images/%2E%2e/x.qcow2",
            "http://mirror/x",
        ] {
            assert!(allowed(bad, sources).is_err(), "{bad}");
        }
        assert!(allowed("https://mirror/x", "").is_err());
    }

    #[test]
    fn a_sparse_file_of_zeros_holds_no_data() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("disk.0");
        let file = File::create(&path).expect("a file");
        file.set_len(64 << 20).expect("a size");
        assert!(!any_byte(&path).expect("read"));
        fs::write(&path, vec![0; 3 << 20]).expect("zeros");
        assert!(!any_byte(&path).expect("read"));
        let file = fs::OpenOptions::new().write(true).open(&path).expect("a file");
        file.set_len(64 << 20).expect("a size");
        std::os::unix::fs::FileExt::write_at(&file, b"x", (60 << 20) + 17).expect("a byte");
        assert!(any_byte(&path).expect("read"));
    }

    #[test]
    fn the_seed_comes_into_the_domain_once_with_its_path_as_data() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("deployment.0");
        let domain = "<domain><devices><disk><target dev='vdz'/></disk></devices><devices/></domain>";
        fs::write(&file, domain).expect("a file");
        let seed = Path::new("/srv/a'b<c/kvmad-seed.iso");
        add_seed(&file, seed).expect("added");
        add_seed(&file, seed).expect("there already");
        let text = fs::read_to_string(&file).expect("the domain");
        let document = Document::parse(text.as_str()).expect("XML");
        let disks: Vec<_> =
            document.root().children("devices").flat_map(|all| all.children("disk")).collect();
        assert_eq!(disks.len(), 2, "{text}");
        assert_eq!(disks[1].at("source").and_then(|source| source.attribute("file")), seed.to_str());
        assert_eq!(disks[1].at("target").and_then(|target| target.attribute("dev")), Some("vdy"));
    }
}
