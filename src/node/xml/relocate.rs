//! Paths in a domain that follow the VM to another system datastore.
//!
//! The folder of a VM on a host is LOCATION/DATASTORE/VM, DATASTORE and VM numbers. While a VM was saved its
//! folder may have moved to another datastore; the domain in the checkpoint then still names the old one.

use std::path::{Component, Path};

use super::Failure;
use super::edit::Edits;
use crate::template::xml::{Document, Element};

/// `document` with every attribute value and every text that is a path below LOCATION/any number/VM moved below
/// `folder`. Doubled slashes make no difference. What already lies below `folder` keeps its spelling.
///
/// # Errors
/// [`Failure::Input`] when `folder` is not of the form LOCATION/DATASTORE/VM.
pub fn relocate(document: &Document, folder: &str) -> Result<String, Failure> {
    let home = Home::new(folder)
        .ok_or_else(|| Failure::Input(format!("{folder} is not of the form LOCATION/DATASTORE/VM")))?;
    let mut edits = Edits::new(document);
    visit(document.root(), &home, &mut edits);
    Ok(edits.apply())
}

/// As [`relocate`], collecting into `edits`; does nothing when `folder` is not of the form LOCATION/DATASTORE/VM.
pub fn collect(root: &Element, folder: &str, edits: &mut Edits<'_>) {
    if let Some(home) = Home::new(folder) {
        visit(root, &home, edits);
    }
}

fn visit(element: &Element, home: &Home<'_>, edits: &mut Edits<'_>) {
    let mut changed = false;
    let mut attributes = element.attributes().to_vec();
    for (_, value) in &mut attributes {
        if let Some(moved) = home.moved(value) {
            *value = moved;
            changed = true;
        }
    }
    if changed {
        edits.set_attributes(element, &attributes);
    }
    if element.elements().next().is_none()
        && let Some(moved) = home.moved(element.text().trim())
    {
        edits.set_text(element, &moved);
    }
    for child in element.elements() {
        visit(child, home, edits);
    }
}

/// The folder of a VM, taken apart.
struct Home<'a> {
    folder: &'a str,
    location: Vec<&'a str>,
    datastore: &'a str,
    vm: &'a str,
}

impl<'a> Home<'a> {
    fn new(folder: &'a str) -> Option<Self> {
        let mut location = names(folder)?;
        let vm = location.pop().filter(|name| is_number(name))?;
        let datastore = location.pop().filter(|name| is_number(name))?;
        Some(Self { folder: folder.trim_end_matches('/'), location, datastore, vm })
    }

    /// Where `path` lies now, when it lay in another datastore.
    fn moved(&self, path: &str) -> Option<String> {
        let names = names(path)?;
        let rest = names.strip_prefix(self.location.as_slice())?;
        let (datastore, rest) = rest.split_first()?;
        let (vm, rest) = rest.split_first()?;
        if !is_number(datastore) || *datastore == self.datastore || *vm != self.vm {
            return None;
        }
        let mut moved = self.folder.to_owned();
        for name in rest {
            moved.push('/');
            moved.push_str(name);
        }
        Some(moved)
    }
}

/// The names of an absolute path without `.` and `..`.
fn names(path: &str) -> Option<Vec<&str>> {
    let mut parts = Path::new(path).components();
    if parts.next() != Some(Component::RootDir) {
        return None;
    }
    parts
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect()
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(folder: &str, path: &str) -> Option<String> {
        Home::new(folder).expect("a folder of a VM").moved(path)
    }

    #[test]
    fn paths_of_this_vm_in_another_datastore_move() {
        let folder = "/var/lib/one//datastores/101/7";
        let new = |path| moved(folder, path);
        assert_eq!(
            new("/var/lib/one/datastores/100/7/disk.0").as_deref(),
            Some("/var/lib/one//datastores/101/7/disk.0")
        );
        assert_eq!(
            new("/var/lib/one//datastores/0/7//disk.0.snap/2").as_deref(),
            Some("/var/lib/one//datastores/101/7/disk.0.snap/2")
        );
        assert_eq!(new("/var/lib/one/datastores/0/7").as_deref(), Some(folder));
    }

    #[test]
    fn all_other_paths_stay() {
        let folder = "/var/lib/one//datastores/101/7";
        for path in [
            "/var/lib/one/datastores/101/7/disk.0",
            "/var/lib/one/datastores/100/77/disk.0",
            "/var/lib/one/datastores/100/71/disk.0",
            "/var/lib/one/datastores/1x/7/disk.0",
            "/var/lib/one/datastores2/100/7/disk.0",
            "/srv/var/lib/one/datastores/100/7/disk.0",
            "var/lib/one/datastores/100/7/disk.0",
            "/var/lib/one/datastores/100/../100/7/disk.0",
            "one/one-sys-7-0",
            "",
            "/",
        ] {
            assert_eq!(moved(folder, path), None, "{path}");
        }
    }

    #[test]
    fn names_that_are_patterns_elsewhere_are_names_here() {
        assert_eq!(moved("/a.b/(c)/1/2", "/aXb/(c)/9/2/d"), None);
        assert_eq!(moved("/a.b/(c)/1/2", "/a.b/(c)/9/2/d&1").as_deref(), Some("/a.b/(c)/1/2/d&1"));
    }

    #[test]
    fn a_folder_of_another_form_is_refused() {
        let document = Document::parse("<a/>").expect("a document");
        for folder in ["", "/", "/a/b", "a/1/2", "/x/1/", "/x/1/b", "/x/a/2"] {
            assert!(relocate(&document, folder).is_err(), "{folder}");
        }
    }

    #[test]
    fn attributes_and_texts_move_and_the_rest_stays_as_it_was() {
        let document = Document::parse(
            "<domain>\n <metadata><one:sd xmlns:one='u'><![CDATA[/l/1/7]]></one:sd></metadata>\n <os><nvram format='raw'>/l/1/7/n.fd</nvram></os>\
             <disk   type='file'><source file='/l/1/7/disk.0' index=\"1\"/><backingStore><source file='/l/1/8/x'/></backingStore></disk></domain>",
        )
        .expect("a document");
        assert_eq!(
            relocate(&document, "/l/22/7").expect("a folder"),
            "<domain>\n <metadata><one:sd xmlns:one='u'>/l/22/7</one:sd></metadata>\n <os><nvram format='raw'>/l/22/7/n.fd</nvram></os>\
             <disk   type='file'><source file='/l/22/7/disk.0' index='1'/><backingStore><source file='/l/1/8/x'/></backingStore></disk></domain>"
        );
    }
}
