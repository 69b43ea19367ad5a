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
mod tests;
