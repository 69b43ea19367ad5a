//! What of a VM's storage must go along when the target sees other files: its whole folder. Disks that the guest writes
//! are made empty at the target and filled while it runs; everything else in the folder nobody writes, so it is copied
//! before. What lies outside of the folder must be there on the target already.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::image::{Image, chain};
use super::receive::Request;
use crate::node::tools::Tools;
use crate::template::xml::{Document, Element};

/// What is to be done at the target, and what virsh must know.
#[derive(Debug, Default)]
pub struct Storage {
    /// Folder of the VM here, links resolved.
    pub from: PathBuf,
    /// The same as OpenNebula names it.
    pub named: PathBuf,
    /// Folder of the VM there.
    pub to: String,
    /// What comes into that folder, in order. For each `File` the path of its data here.
    pub requests: Vec<(Request, Option<PathBuf>)>,
    /// Disks that are filled while the guest runs.
    pub disks: Vec<Disk>,
    /// Read-only disks whose files are copied.
    pub read_only: Vec<Disk>,
    /// What must be there already.
    pub need: Vec<String>,
    /// Bytes that it takes there.
    pub bytes: u64,
    /// Bytes that are copied before.
    pub copied: u64,
}

/// A disk of the domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Its name in the guest, as `vda`.
    pub target: String,
    /// Its file there.
    pub file: String,
    /// Its file here, as the domain names it.
    pub before: String,
    /// It has a backing file, which is not copied into it.
    pub layered: bool,
    /// disk, cdrom, floppy.
    pub device: String,
    /// raw, qcow2 ...
    pub format: String,
}

/// Names in the folder that stay behind: of an action that was given up.
fn stays_behind(name: &str) -> bool {
    name.starts_with("checkpoint") || name.ends_with(".new") || name.ends_with(".kvmad-new")
}

/// What is made anew by every action, so that an old one may be replaced.
fn may_be_replaced(name: &str) -> bool {
    name.ends_with(".xml") || name.starts_with("deployment.") || name == "snap.current"
}

/// Looks at the domain and at its folder `from`; it is to become `to`.
///
/// # Errors
/// What can't be taken along, and why.
pub async fn plan(
    tools: &Arc<dyn Tools>,
    domain: &Document,
    from: &str,
    to: &str,
    limit: Duration,
) -> Result<Storage, String> {
    let folder = fs::canonicalize(from).map_err(|error| format!("the VM's folder {from}: {error}"))?;
    let named = Path::new(from).components().collect::<PathBuf>();
    let mut storage = Storage { from: folder.clone(), named, to: to.to_owned(), ..Storage::default() };
    let mut tops = BTreeMap::new();
    for disk in domain.root().children("devices").flat_map(|devices| devices.children("disk")) {
        let Some((path, target)) = source_of(disk) else { continue };
        let real = fs::canonicalize(path).map_err(|error| format!("disk {target}, {path}: {error}"))?;
        let Some(inside) = real.strip_prefix(&folder).ok().filter(|_| disk.attribute("type") == Some("file"))
        else {
            storage.need.push(storage.must_be_there(path, &real));
            continue;
        };
        let device = disk.attribute("device").unwrap_or("disk").to_owned();
        let written = device == "disk" && disk.child("readonly").is_none();
        if disk.child("encryption").or_else(|| disk.child("source")?.child("encryption")).is_some() {
            return Err(format!("disk {target}, {path}: an encrypted disk can't be copied"));
        }
        let mut images = chain(tools, path, &formats(disk), limit).await?;
        let backing = images.split_off(1);
        storage.need.extend(outside(&folder, &backing));
        let entry = Disk {
            target,
            file: below(to, inside),
            before: path.to_owned(),
            layered: !backing.is_empty(),
            device,
            format: images[0].format.clone(),
        };
        if !written {
            storage.read_only.push(entry);
            continue;
        }
        let image = images.remove(0);
        if image.encrypted || !["raw", "qcow2"].contains(&image.format.as_str()) {
            return Err(format!(
                "disk {}, {path}: a disk of format {} can't be copied",
                entry.target,
                shown(&image)
            ));
        }
        tops.insert(inside.to_path_buf(), (image, backing.into_iter().next()));
        storage.disks.push(entry);
    }
    storage.walk(Path::new(""), &tops)?;
    Ok(storage)
}

fn shown(image: &Image) -> String {
    format!("{}{}", image.format, if image.encrypted { ", encrypted" } else { "" })
}

/// Path and target of a disk that is a file or a block device.
fn source_of(disk: &Element) -> Option<(&str, String)> {
    let source = disk.child("source")?;
    let path = source.attribute("file").or_else(|| source.attribute("dev"))?;
    Some((path, disk.child("target")?.attribute("dev")?.to_owned()))
}

/// The formats that libvirt opened the layers of a disk with, from its live XML.
fn formats(disk: &Element) -> Vec<String> {
    let top = disk.child("driver").and_then(|driver| driver.attribute("type")).unwrap_or("raw");
    let mut formats = vec![top.to_owned()];
    let mut layer = disk.child("backingStore");
    while let Some(below) = layer {
        let Some(format) = below.child("format").and_then(|format| format.attribute("type")) else { break };
        formats.push(format.to_owned());
        layer = below.child("backingStore");
    }
    formats
}

/// Backing files that do not lie in the folder.
fn outside(folder: &Path, backing: &[Image]) -> Vec<String> {
    let local = backing.iter().map(|image| &image.filename).filter(|name| name.starts_with('/'));
    let apart = local.filter(|name| fs::canonicalize(name).is_ok_and(|real| !real.starts_with(folder)));
    apart.cloned().collect()
}

fn below(to: &str, inside: &Path) -> String {
    format!("{}/{}", to.trim_end_matches('/'), inside.display())
}

impl Storage {
    /// What must be at the target for a disk at `path` outside of the folder. A link in the folder goes along; what it points
    /// to must be there, by the name that is written in it: behind `/dev/vg/lv` lies another device on each host.
    fn must_be_there(&self, path: &str, real: &Path) -> String {
        let inside = |path: &Path| path.starts_with(&self.from) || path.starts_with(&self.named);
        let by_name = Path::new(path).components().collect::<PathBuf>();
        if !inside(&by_name) {
            return path.to_owned();
        }
        let points_to = fs::read_link(&by_name).ok().filter(|to| to.is_absolute() && !inside(to));
        points_to.as_deref().unwrap_or(real).display().to_string()
    }

    /// Whether a disk keeps its backing files, so that only its top layer is filled.
    #[must_use]
    pub fn layered(&self) -> bool {
        self.disks.iter().any(|disk| disk.layered)
    }

    /// Whether `domain` uses every disk that goes along where it is brought to.
    ///
    /// # Errors
    /// The disk that it does not.
    pub fn used_by(&self, domain: &Document) -> Result<(), String> {
        let clean = |path: &str| Path::new(path).components().collect::<PathBuf>();
        let disks = domain.root().children("devices").flat_map(|devices| devices.children("disk"));
        let used: BTreeMap<String, PathBuf> =
            disks.filter_map(|disk| source_of(disk).map(|(path, target)| (target, clean(path)))).collect();
        match self.disks.iter().chain(&self.read_only).find(|disk| {
            let there = used.get(&disk.target);
            // A link in the folder leads to its file.
            let links = there.is_some_and(|path| {
                self.requests.iter().any(|(request, _)| {
                    matches!(request, Request::Link { path: link, .. } if clean(link) == *path)
                })
            });
            !links && there != Some(&clean(&disk.file))
        }) {
            Some(disk) => Err(format!(
                "disk {}, {}: its file lies in no folder of the VM as OpenNebula names them, so it can't go to {}",
                disk.target, disk.before, self.to
            )),
            None => Ok(()),
        }
    }

    fn walk(
        &mut self,
        inside: &Path,
        tops: &BTreeMap<PathBuf, (Image, Option<Image>)>,
    ) -> Result<(), String> {
        let here = self.from.join(inside);
        let failed = |path: &Path, error: &std::io::Error| format!("{}: {error}", path.display());
        let entries = fs::read_dir(&here).map_err(|error| failed(&here, &error))?;
        let names: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
        let mut names = names.map_err(|error| failed(&here, &error))?;
        names.sort();
        for name in names {
            let Some(name) = name.to_str() else {
                return Err(format!("{} holds a file whose name is no text", here.display()));
            };
            if stays_behind(name) {
                continue;
            }
            let inside = inside.join(name);
            let path = self.from.join(&inside);
            let about = fs::symlink_metadata(&path).map_err(|error| failed(&path, &error))?;
            let there = below(&self.to, &inside);
            if about.is_dir() {
                self.requests.push((Request::Folder { path: there, mode: about.mode() & 0o777 }, None));
                self.walk(&inside, tops)?;
            } else if about.is_symlink() {
                let to = fs::read_link(&path).map_err(|error| failed(&path, &error))?;
                let to = self.moved(&to.to_string_lossy());
                self.requests.push((Request::Link { path: there, to }, None));
            } else if let Some((image, backing)) = tops.get(&inside) {
                self.disk(there, &path, about.mode() & 0o777, image, backing.as_ref());
            } else if about.is_file() {
                self.bytes += about.blocks() * 512;
                self.copied += about.blocks() * 512;
                let replace = may_be_replaced(name);
                let file =
                    Request::File { path: there, size: about.len(), mode: about.mode() & 0o777, replace };
                self.requests.push((file, Some(path)));
            }
        }
        Ok(())
    }

    /// A disk that the guest writes. Its internal snapshots can't come through the guest's eyes, so the image is copied
    /// for their sake and what is not theirs is emptied.
    fn disk(&mut self, there: String, path: &Path, mode: u32, image: &Image, backing: Option<&Image>) {
        self.bytes += image.actual_size;
        let backing = image.backing_filename.as_ref().zip(backing).map(|(name, below)| {
            let format = image.backing_filename_format.clone().unwrap_or_else(|| below.format.clone());
            (self.moved(name), format)
        });
        if !image.snapshots.is_empty() {
            let size = fs::metadata(path).map_or(0, |about| about.len());
            self.copied += image.actual_size;
            let file = Request::File { path: there.clone(), size, mode, replace: false };
            self.requests.push((file, Some(path.to_path_buf())));
            self.requests.push((Request::OnlySnapshots { path: there, backing }, None));
            return;
        }
        let cluster = image.cluster_size.filter(|_| image.format == "qcow2");
        let (format, size) = (image.format.clone(), image.virtual_size);
        self.requests.push((Request::Disk { path: there, format, size, mode, cluster, backing }, None));
    }

    /// A path that is written down somewhere, as it is at the target.
    fn moved(&self, path: &str) -> String {
        let clean: PathBuf = Path::new(path).components().collect();
        match clean.strip_prefix(&self.from).or_else(|_| clean.strip_prefix(&self.named)) {
            Ok(inside) if path.starts_with('/') => below(&self.to, inside),
            _ => path.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::Ask;
    use crate::node::tools::fake::Fake;
    use std::os::unix::fs::symlink;

    async fn planned(disks: &str, fill: impl Fn(&Path), images: &'static str) -> Result<Storage, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let at = fs::canonicalize(folder.path()).expect("a folder").join("7");
        fs::create_dir(&at).expect("a folder");
        fill(&at);
        let home = at.display().to_string();
        let domain = disks.replace("HOME", &home);
        let domain =
            Document::parse(format!("<domain><devices>{domain}</devices></domain>")).expect("a domain");
        let images: Vec<serde_json::Value> =
            serde_json::from_str(&images.replace("HOME", &home)).expect("images");
        let tools: Arc<dyn Tools> = Arc::new(Fake(move |ask: &Ask| {
            let [.., format, path] = ask.args.as_slice() else { panic!("{ask:?}") };
            let image = images.iter().find(|image| image["filename"] == **path).unwrap_or(&images[0]);
            assert_eq!(image["format"], **format, "{path}");
            Ok(image.to_string())
        }));
        let mut storage = plan(&tools, &domain, &home, "/ds/101/7", Duration::from_secs(1)).await?;
        for disk in &mut storage.disks {
            disk.before = disk.before.replace(&home, "HOME");
        }
        Ok(storage)
    }

    const DISK: &str = "<disk type='file' device='disk'><driver type='qcow2'/><source file='HOME/disk.0.snap/1'/><target dev='vda'/></disk>";
    const CHAIN: &str = r#"[{"virtual-size": 4194304, "filename": "HOME/disk.0.snap/1", "cluster-size": 65536, "format": "qcow2", "actual-size": 4096, "backing-filename": "HOME/disk.0.snap/0", "backing-filename-format": "raw"},
        {"virtual-size": 4194304, "filename": "HOME/disk.0.snap/0", "format": "raw"}]"#;

    fn layers(at: &Path) {
        fs::create_dir(at.join("disk.0.snap")).expect("a folder");
        for name in ["disk.0.snap/0", "disk.0.snap/1", "vm.xml", "checkpoint", "disk.1"] {
            fs::write(at.join(name), name).expect("a file");
        }
        symlink(at.join("disk.0.snap/1"), at.join("disk.0")).expect("a link");
        symlink(".", at.join("disk.0.snap/disk.0.snap")).expect("a link");
    }

    #[tokio::test]
    async fn the_folder_goes_along_and_the_top_layer_is_made_empty() {
        let storage = planned(DISK, layers, CHAIN).await.expect("a plan");
        assert_eq!(storage.disks[0].before, "HOME/disk.0.snap/1");
        assert_eq!(storage.disks[0].file, "/ds/101/7/disk.0.snap/1");
        assert!(storage.layered() && storage.need.is_empty());
        let lines: Vec<String> = storage
            .requests
            .iter()
            .map(|(request, data)| match request {
                Request::Folder { path, .. } => format!("folder {path}"),
                Request::Link { path, to } => format!("link {path} {to}"),
                Request::File { path, replace, .. } => format!("file {path} {replace} {}", data.is_some()),
                Request::Disk { path, format, size, backing, .. } => {
                    format!("disk {path} {format} {size} {backing:?}")
                }
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(
            lines,
            [
                "link /ds/101/7/disk.0 /ds/101/7/disk.0.snap/1",
                "folder /ds/101/7/disk.0.snap",
                "file /ds/101/7/disk.0.snap/0 false true",
                "disk /ds/101/7/disk.0.snap/1 qcow2 4194304 Some((\"/ds/101/7/disk.0.snap/0\", \"raw\"))",
                "link /ds/101/7/disk.0.snap/disk.0.snap .",
                "file /ds/101/7/disk.1 false true",
                "file /ds/101/7/vm.xml true true",
            ]
        );
    }

    #[tokio::test]
    async fn what_lies_elsewhere_must_be_there_and_what_is_only_read_is_copied() {
        let outside = tempfile::NamedTempFile::new().expect("a file");
        let path = outside.path().display().to_string();
        let disks = format!(
            "<disk type='file' device='disk'><source file='{path}'/><target dev='vda'/></disk>\
             <disk type='file' device='cdrom'><source file='HOME/disk.1'/><target dev='hda'/><readonly/></disk>\
             <disk type='network' device='disk'><source protocol='rbd' name='one/x'/><target dev='vdb'/></disk>\
             <disk type='file' device='cdrom'><target dev='hdb'/></disk>"
        );
        let image = r#"[{"virtual-size": 512, "filename": "x", "format": "raw"}]"#;
        let storage = planned(&disks, layers, image).await.expect("a plan");
        assert_eq!(storage.need, [path]);
        assert!(storage.disks.is_empty());
        assert_eq!((storage.read_only.len(), storage.read_only[0].target.as_str()), (1, "hda"));
    }

    #[tokio::test]
    async fn what_a_link_in_the_folder_points_to_must_be_there_not_the_link() {
        let outside = tempfile::NamedTempFile::new().expect("a file");
        let path = outside.path().to_path_buf();
        let disk = "<disk type='file'><source file='HOME/disk.3'/><target dev='vda'/></disk>";
        let image = r#"[{"virtual-size": 512, "filename": "x", "format": "raw"}]"#;
        let link = |at: &Path| symlink(&path, at.join("disk.3")).expect("a link");
        let storage = planned(disk, link, image).await.expect("a plan");
        assert_eq!(storage.need, [path.display().to_string()]);
        assert_eq!(storage.requests.len(), 1, "the link goes along");
    }

    #[tokio::test]
    async fn a_domain_that_would_use_the_old_files_is_found() {
        let storage = planned(DISK, layers, CHAIN).await.expect("a plan");
        let domain = |file: &str| {
            let disk = DISK.replace("HOME/disk.0.snap/1", file);
            Document::parse(format!("<domain><devices>{disk}</devices></domain>")).expect("a domain")
        };
        assert_eq!(storage.used_by(&domain("/ds//101/7/disk.0.snap/1")), Ok(()));
        assert_eq!(storage.used_by(&domain("/ds/101/7/disk.0")), Ok(()), "a link to it");
        for wrong in ["/ds/100/7/disk.0.snap/1", "/ds/101/7/disk.0.snap/0"] {
            assert!(storage.used_by(&domain(wrong)).expect_err("refused").contains("vda"), "{wrong}");
        }
    }

    #[tokio::test]
    async fn snapshots_inside_an_image_come_with_a_copy_of_it() {
        let disk =
            "<disk type='file'><driver type='qcow2'/><source file='HOME/disk.1'/><target dev='vda'/></disk>";
        let image = r#"[{"virtual-size": 512, "filename": "x", "format": "qcow2", "snapshots": [{"name": "snap-0"}]}]"#;
        let storage = planned(disk, layers, image).await.expect("a plan");
        let only = Request::OnlySnapshots { path: "/ds/101/7/disk.1".into(), backing: None };
        assert!(storage.requests.iter().any(|(request, _)| *request == only));
    }

    #[tokio::test]
    async fn what_can_t_be_copied_is_refused_by_name() {
        let disk =
            "<disk type='file'><driver type='qcow2'/><source file='HOME/disk.1'/><target dev='vda'/></disk>";
        let image = r#"[{"virtual-size": 512, "filename": "x", "format": "qcow2", "encrypted": true}]"#;
        let why = planned(disk, layers, image).await.expect_err("refused");
        assert!(why.contains("vda") && why.contains("encrypted"), "{why}");
        let gone = "<disk type='file'><source file='HOME/disk.9'/><target dev='vdc'/></disk>";
        assert!(planned(gone, layers, image).await.expect_err("refused").contains("disk vdc"));
    }

    #[tokio::test]
    async fn a_link_to_a_volume_needs_its_name_and_not_the_device_behind_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (device, volume) = (folder.path().join("dm-7"), folder.path().join("lv-one-7-0"));
        fs::write(&device, "").expect("a file");
        symlink(&device, &volume).expect("a link");
        let disk = "<disk type='block'><source dev='HOME/disk.0'/><target dev='vda'/></disk>";
        let link = |at: &Path| symlink(&volume, at.join("disk.0")).expect("a link");
        let storage = planned(disk, link, "[{}]").await.expect("a plan");
        assert_eq!(storage.need, [volume.display().to_string()]);
    }

    #[test]
    fn formats_are_those_that_libvirt_says() {
        // The elements of libvirt's documentation of the domain format (driver, backingStore).
        let disk = "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/a/2'/><backingStore type='file'>\
            <format type='qcow2'/><source file='/a/1'/><backingStore type='file'><format type='raw'/><source file='/a/0'/><backingStore/>\
            </backingStore></backingStore><target dev='vda'/></disk>";
        let disk = Document::parse(disk).expect("a disk");
        assert_eq!(formats(disk.root()), ["qcow2", "qcow2", "raw"]);
        let bare = Document::parse("<disk><source file='/a'/></disk>").expect("a disk");
        assert_eq!(formats(bare.root()), ["raw"], "libvirt's own default");
    }

    /// The real qemu-img, and a raw disk whose guest made it look like a chain to a file of the host.
    #[tokio::test]
    async fn what_a_guest_writes_into_a_raw_disk_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = fs::canonicalize(folder.path()).expect("a folder");
        let (secret, disk) = (at.join("secret"), at.join("disk.0"));
        fs::write(&secret, vec![1; 1 << 20]).expect("a file");
        let tools: Arc<dyn Tools> = Arc::new(crate::node::tools::Real::default());
        let (secret, disk) = (secret.display().to_string(), disk.display().to_string());
        let limit = Duration::from_secs(20);
        let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &secret, &disk];
        if tools.ask(Ask::new("qemu-img", create, limit)).await.is_err() {
            return; // no qemu-img here
        }
        let planned = async |kind: &str| {
            let domain = format!(
                "<domain><devices><disk type='file' device='disk'><driver name='qemu' type='{kind}'/><source file='{}'/>\
                 <target dev='vda'/></disk></devices></domain>",
                disk
            );
            let domain = Document::parse(domain).expect("a domain");
            plan(&tools, &domain, &at.display().to_string(), "/ds/0/7", Duration::from_secs(20))
                .await
                .expect("a plan")
        };
        let raw = planned("raw").await;
        assert_eq!((raw.disks[0].format.as_str(), raw.disks[0].layered), ("raw", false));
        let qcow2 = planned("qcow2").await;
        assert_eq!((qcow2.disks[0].format.as_str(), qcow2.disks[0].layered), ("qcow2", true));
    }

    /// /datastores -> /srv: OpenNebula names the one, the kernel resolves to the other, and layers may name either.
    #[tokio::test]
    async fn a_location_that_is_a_link_is_moved_by_both_of_its_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = fs::canonicalize(folder.path()).expect("a folder").join("srv");
        let linked = real.with_file_name("datastores");
        fs::create_dir_all(real.join("0/7")).expect("a folder");
        symlink(&real, &linked).expect("a link");
        for (name, target) in [("a", &linked), ("b", &real)] {
            symlink(target.join("0/7/disk.0.snap/1"), real.join("0/7").join(name)).expect("a link");
        }
        let tools: Arc<dyn Tools> = Arc::new(Fake(|_: &Ask| Err((1, "not asked".to_owned()))));
        let domain = Document::parse("<domain/>").expect("a domain");
        let from = format!("{}/", linked.join("0//7").display());
        let storage = plan(&tools, &domain, &from, "/ds/1/7", Duration::from_secs(1)).await.expect("a plan");
        for (request, _) in &storage.requests {
            let Request::Link { to, .. } = request else { panic!("{request:?}") };
            assert_eq!(to, "/ds/1/7/disk.0.snap/1");
        }
        assert_eq!(storage.requests.len(), 2);
    }
}
