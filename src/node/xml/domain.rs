//! What a domain needs of the host before libvirt may be asked to start it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Failure;
use super::edit::Edits;
use crate::template::xml::{Document, Element};

/// Longest chain of links that is followed, as the kernel's own limit.
const LINKS: usize = 40;

/// `document`, a domain, ready for `virsh create`:
///
/// * A file-backed disk whose source is a link `.../disk.<number>` gets what the link points to, if that exists.
///   Disks with snapshots depend on it: relative backing files are looked for beside the file that is opened.
/// * A domain without a uuid gets `uuid`.
///
/// # Errors
/// [`Failure::Input`] when the document is no domain with a name, or `uuid` is none.
pub fn prepare(document: &Document, uuid: &str) -> Result<String, Failure> {
    let root = document.root();
    if root.name() != "domain" {
        return Err(Failure::Input(format!("the document is no domain but an element {}", root.name())));
    }
    if root.filled("name").is_none() {
        return Err(Failure::Input("the domain has no name".to_owned()));
    }
    if !is_uuid(uuid) {
        return Err(Failure::Input(format!("{uuid:?} is no uuid")));
    }
    let mut edits = Edits::new(document);
    match root.child("uuid") {
        None => edits.add_first(root, "uuid", uuid),
        Some(own) if own.text().trim().is_empty() => edits.set_text(own, uuid),
        Some(_) => {}
    }
    for disk in root.children("devices").flat_map(|devices| devices.children("disk")) {
        resolve(disk, &mut edits);
    }
    Ok(edits.apply())
}

fn resolve(disk: &Element, edits: &mut Edits<'_>) {
    let is = |name, value, default| disk.attribute(name).unwrap_or(default) == value;
    if !is("device", "disk", "disk") || !is("type", "file", "file") {
        return;
    }
    let Some(source) = disk.child("source") else { return };
    let Some(target) = source.attribute("file").and_then(target_of) else { return };
    let attributes: Vec<_> = source
        .attributes()
        .iter()
        .map(|(name, value)| (name.clone(), if name == "file" { target.clone() } else { value.clone() }))
        .collect();
    edits.set_attributes(source, &attributes);
}

/// What the link `path` points to in the end, when it is called `disk.<number>`, is a link, and that exists.
#[must_use]
pub fn target_of(path: &str) -> Option<String> {
    let name = Path::new(path).file_name()?.to_str()?;
    let number = name.strip_prefix("disk.")?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut at = PathBuf::from(path);
    for _ in 0..LINKS {
        match fs::read_link(&at) {
            Ok(next) => at = at.parent()?.join(next),
            Err(_) => break,
        }
    }
    if at == Path::new(path) || !at.exists() {
        return None;
    }
    at.to_str().map(str::to_owned)
}

/// One sentence for each program or file that the domain `root` names and this host does not have.
#[must_use]
pub fn missing(root: &Element) -> Vec<String> {
    let mut all = Vec::new();
    let mut need = |what: &str, path: Option<String>, program: bool| {
        let Some(path) = path.map(|path| path.trim().to_owned()).filter(|path| path.starts_with('/')) else {
            return;
        };
        match fs::metadata(&path) {
            Err(error) => all.push(format!("the {what} {path} can't be used on this host: {error}")),
            Ok(about) if program && (!about.is_file() || about.permissions().mode() & 0o111 == 0) => {
                all.push(format!("the {what} {path} on this host is no program"));
            }
            Ok(_) => {}
        }
    };
    for devices in root.children("devices") {
        need("emulator", devices.text_at("emulator"), true);
    }
    need("firmware", root.text_at("os/loader"), false);
    need("kernel", root.text_at("os/kernel"), false);
    need("initial ramdisk", root.text_at("os/initrd"), false);
    let template = root.at("os/nvram").and_then(|nvram| nvram.attribute("template"));
    need("template of the firmware's variables", template.map(str::to_owned), false);
    all
}

/// Whether `text` has the form of a uuid as libvirt prints it.
#[must_use]
pub fn is_uuid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn prepared(text: &str) -> Result<String, Failure> {
        prepare(&Document::parse(text).expect("a document"), UUID)
    }

    #[test]
    fn a_uuid_of_its_own_is_kept() {
        let own = "<domain><name>a</name><uuid>11111111-2222-3333-4444-555555555555</uuid></domain>";
        assert_eq!(prepared(own).expect("a domain"), own);
        for without in ["<domain><name>a</name></domain>", "<domain><uuid></uuid><name>a</name></domain>"] {
            let out = prepared(without).expect("a domain");
            assert_eq!(out, format!("<domain><uuid>{UUID}</uuid><name>a</name></domain>"));
        }
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for text in ["<a/>", "<domain/>", "<domain><name></name></domain>"] {
            assert!(matches!(prepared(text), Err(Failure::Input(_))), "{text}");
        }
        let document = Document::parse("<domain><name>a</name></domain>").expect("a document");
        assert!(prepare(&document, "x").is_err());
    }

    #[test]
    fn links_of_disks_are_resolved_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        fs::create_dir(at("disk.0.snap")).expect("a folder");
        for name in ["disk.0.snap/1", "disk.1", "other"] {
            fs::write(at(name), "").expect("a file");
        }
        for (target, name) in [
            ("disk.0.snap/1", "disk.0"),
            ("gone", "disk.2"),
            ("other", "disk.x"),
            ("other", "disk.3"),
            ("disk.4", "disk.4"),
        ] {
            symlink(target, at(name)).expect("a link");
        }
        for (disk, name, expected) in [
            ("type='file' device='disk'", "disk.0", "disk.0.snap/1"),
            ("", "disk.0", "disk.0.snap/1"),
            ("type='file' device='disk'", "disk.1", "disk.1"),
            ("type='file' device='disk'", "disk.2", "disk.2"),
            ("type='file' device='disk'", "disk.x", "disk.x"),
            ("type='file' device='disk'", "disk.4", "disk.4"),
            ("type='file' device='cdrom'", "disk.3", "disk.3"),
            ("type='block' device='disk'", "disk.3", "disk.3"),
        ] {
            let domain = |file: &str| {
                format!(
                    "<domain><name>a</name><uuid>u</uuid><devices/><devices><disk {disk}><source file='{}' x='1'/></disk></devices></domain>",
                    at(file)
                )
            };
            assert_eq!(prepared(&domain(name)).expect("a domain"), domain(expected), "{disk} {name}");
        }
    }

    #[test]
    fn missing_programs_and_files_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file").to_str().expect("text").to_owned();
        fs::write(&file, "").expect("a file");
        let check = |text: String| missing(Document::parse(text).expect("a document").root());
        let domain = |emulator: &str, loader: &str| {
            check(format!(
                "<domain><os><loader>{loader}</loader></os><devices><emulator>{emulator}</emulator></devices></domain>"
            ))
        };
        assert!(domain("/bin/sh", &file).is_empty());
        assert!(domain("/bin/sh", "").is_empty());
        assert!(domain(&file, &file).concat().contains("is no program"));
        assert!(domain("/bin", &file).concat().contains("is no program"));
        let both = domain("/nowhere/qemu", "/nowhere/code.fd");
        assert_eq!(both.len(), 2);
        assert!(
            both.concat().contains("emulator /nowhere/qemu")
                && both.concat().contains("firmware /nowhere/code.fd")
        );
    }
}
