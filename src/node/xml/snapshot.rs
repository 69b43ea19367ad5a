//! Snapshot metadata that is given to libvirt again after a domain was started anew.
//!
//! libvirt forgets the snapshots of a transient domain whenever it stops, also when it is saved. It takes a
//! snapshot back only when the uuid inside is that of the running domain and when the parent is known already.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::domain::is_uuid;
use super::edit::Edits;
use super::{Failure, parse, relocate, shown};
use crate::template::xml::Document;

/// Writes `files` into the folder `into` as `0001.xml`, `0002.xml` and so on, parents before children, with the
/// uuid of the domain replaced by `uuid`, the parent left out where it is not among the files, and the paths moved
/// to the folder that holds the files. Gives a note for each file that can't be used.
///
/// # Errors
/// [`Failure::Input`] when `uuid` is none or the folder can't be written.
pub fn write_ordered(uuid: &str, into: &Path, files: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let (texts, notes) = ordered(uuid, files.iter().map(|file| Snapshot::read(file)))?;
    for (number, text) in texts.into_iter().enumerate() {
        let target = into.join(format!("{:04}.xml", number + 1));
        let written = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&target)
            .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|error| Failure::Input(format!("can't write {}: {error}", shown(&target))))?;
    }
    Ok(notes)
}

/// The same for texts that `virsh snapshot-dumpxml` printed; paths are moved to `folder`. Gives the texts in the order in
/// which libvirt takes them, and the notes.
///
/// # Errors
/// [`Failure::Input`] when `uuid` is none.
pub fn order_texts(
    uuid: &str,
    folder: &str,
    texts: &[String],
) -> Result<(Vec<String>, Vec<String>), Failure> {
    let read = |text: &String| Snapshot::parse(text.clone().into_bytes(), "a snapshot", folder.to_owned());
    ordered(uuid, texts.iter().map(read))
}

fn ordered(
    uuid: &str,
    all: impl Iterator<Item = Result<Snapshot, Failure>>,
) -> Result<(Vec<String>, Vec<String>), Failure> {
    if !is_uuid(uuid) {
        return Err(Failure::Input(format!("{uuid:?} is no uuid")));
    }
    let mut notes = Vec::new();
    let mut snapshots = Vec::new();
    for snapshot in all {
        match snapshot {
            Ok(snapshot) => snapshots.push(snapshot),
            Err(failure) => notes.push(failure.to_string()),
        }
    }
    let known: HashSet<_> = snapshots.iter().map(|snapshot| snapshot.name.clone()).collect();
    let texts = order(&snapshots).into_iter().map(|index| snapshots[index].ready(uuid, &known)).collect();
    Ok((texts, notes))
}

/// Indices into `snapshots`, each behind its parent, otherwise by time and then as given. A ring of parents is
/// broken at its oldest member.
fn order(snapshots: &[Snapshot]) -> Vec<usize> {
    let by_name: HashMap<_, _> =
        snapshots.iter().enumerate().map(|(index, snapshot)| (snapshot.name.as_str(), index)).collect();
    let mut oldest_first: Vec<_> = (0..snapshots.len()).collect();
    oldest_first.sort_by_key(|&index| (snapshots[index].time, index));
    let mut done = vec![false; snapshots.len()];
    let mut order = Vec::with_capacity(snapshots.len());
    for start in oldest_first {
        let mut chain = Vec::new();
        let mut at = Some(start);
        while let Some(index) = at.filter(|&index| !done[index]) {
            done[index] = true;
            chain.push(index);
            at = snapshots[index].parent.as_deref().and_then(|parent| by_name.get(parent).copied());
        }
        order.extend(chain.into_iter().rev());
    }
    order
}

#[derive(Debug)]
struct Snapshot {
    name: String,
    parent: Option<String>,
    time: u64,
    folder: String,
    document: Document,
}

impl Snapshot {
    fn read(file: &Path) -> Result<Self, Failure> {
        let what = shown(file);
        let bytes = fs::read(file).map_err(|error| Failure::Input(format!("can't read {what}: {error}")))?;
        Self::parse(bytes, &what, file.parent().map(shown).unwrap_or_default())
    }

    fn parse(bytes: Vec<u8>, what: &str, folder: String) -> Result<Self, Failure> {
        let document = parse(bytes, what)?;
        let root = document.root();
        if root.name() != "domainsnapshot" {
            return Err(Failure::Input(format!("{what} holds no snapshot but an element {}", root.name())));
        }
        let name = root.filled("name").ok_or_else(|| Failure::Input(format!("{what} names no snapshot")))?;
        let parent = root.filled("parent/name");
        let time = root.text_at("creationTime").and_then(|time| time.trim().parse().ok()).unwrap_or(0);
        Ok(Self { name, parent, time, folder, document })
    }

    /// The text for `virsh snapshot-create --redefine`.
    fn ready(&self, uuid: &str, known: &HashSet<String>) -> String {
        let root = self.document.root();
        let mut edits = Edits::new(&self.document);
        for domain in root.children("domain").chain(root.children("inactiveDomain")) {
            match domain.child("uuid") {
                Some(own) if own.text() != uuid => edits.set_text(own, uuid),
                Some(_) => {}
                None => edits.add_first(domain, "uuid", uuid),
            }
            relocate::collect(domain, &self.folder, &mut edits);
        }
        if let Some(parent) = root.child("parent") {
            let there = self.parent.as_ref().is_some_and(|name| *name != self.name && known.contains(name));
            if !there {
                edits.remove(parent);
            }
        }
        edits.apply()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn snapshot(name: &str, parent: &str, time: u64) -> String {
        let parent =
            if parent.is_empty() { String::new() } else { format!("<parent><name>{parent}</name></parent>") };
        format!(
            "<domainsnapshot><name>{name}</name><state>running</state>{parent}<creationTime>{time}</creationTime><domain><uuid>old</uuid></domain></domainsnapshot>"
        )
    }

    /// Names and parents of what comes out for `(name, parent, time)`, files given in that order.
    fn redefined(all: &[(&str, &str, u64)]) -> Vec<(String, Option<String>)> {
        let folder = tempfile::tempdir().expect("a folder");
        let files: Vec<_> = all
            .iter()
            .map(|(name, parent, time)| {
                let file = folder.path().join(format!("snap-{name}.xml"));
                fs::write(&file, snapshot(name, parent, *time)).expect("a file");
                file
            })
            .collect();
        let into = tempfile::tempdir().expect("a folder");
        assert!(write_ordered(UUID, into.path(), &files).expect("an order").is_empty());
        let mut written: Vec<_> =
            fs::read_dir(into.path()).expect("a folder").map(|e| e.expect("e").path()).collect();
        written.sort();
        written
            .iter()
            .map(|file| {
                let document =
                    Document::parse(fs::read_to_string(file).expect("a file")).expect("a document");
                let root = document.root();
                assert_eq!(root.text_at("domain/uuid").as_deref(), Some(UUID));
                (root.text_at("name").expect("a name"), root.text_at("parent/name"))
            })
            .collect()
    }

    fn names(all: &[(&str, &str, u64)]) -> Vec<String> {
        redefined(all).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn parents_come_first_whatever_their_names_and_times() {
        let all =
            [("snap-2", "snap-10", 5), ("snap-10", "snap-1", 9), ("snap-1", "", 7), ("snap-3", "snap-1", 1)];
        assert_eq!(names(&all), ["snap-1", "snap-3", "snap-10", "snap-2"]);
    }

    #[test]
    fn more_than_nine_in_a_row_keep_their_order() {
        let texts: Vec<_> = (0..14)
            .map(|n| (format!("{n}"), if n == 0 { String::new() } else { format!("{}", n - 1) }))
            .collect();
        let mut all: Vec<_> = texts.iter().map(|(n, p)| (n.as_str(), p.as_str(), 3)).collect();
        all.reverse();
        assert_eq!(names(&all), (0..14).map(|n| n.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn a_parent_that_is_gone_is_left_out_and_one_that_is_there_kept() {
        let all = [("b", "gone", 2), ("c", "b", 3), ("d", "d", 4)];
        let expected = [("b", None), ("c", Some("b")), ("d", None)];
        let expected: Vec<_> =
            expected.iter().map(|(n, p)| ((*n).to_owned(), p.map(str::to_owned))).collect();
        assert_eq!(redefined(&all), expected);
    }

    #[test]
    fn a_ring_of_parents_ends() {
        assert_eq!(names(&[("a", "b", 1), ("b", "a", 2)]).len(), 2);
    }

    #[test]
    fn files_that_are_no_snapshot_are_noted_and_the_others_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let into = tempfile::tempdir().expect("a folder");
        let good = folder.path().join("snap-1.xml");
        fs::write(&good, snapshot("1", "", 1)).expect("a file");
        let mut files = vec![good, folder.path().join("gone.xml")];
        for (name, text) in [
            ("empty", ""),
            ("half", "<domainsnapshot><name>x"),
            ("other", "<domain/>"),
            ("anon", "<domainsnapshot/>"),
        ] {
            let file = folder.path().join(name);
            fs::write(&file, text).expect("a file");
            files.push(file);
        }
        assert_eq!(write_ordered(UUID, into.path(), &files).expect("an order").len(), 5);
        assert_eq!(fs::read_dir(into.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn paths_move_to_the_folder_that_holds_the_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("101/7");
        fs::create_dir_all(&home).expect("a folder");
        let location = shown(folder.path());
        let file = home.join("snap-0.xml");
        let text = format!(
            "<domainsnapshot><name>s</name><domain><uuid>u</uuid><disk><source file='{location}/100/7/disk.0'/></disk></domain></domainsnapshot>"
        );
        fs::write(&file, text).expect("a file");
        let into = tempfile::tempdir().expect("a folder");
        write_ordered(UUID, into.path(), &[file]).expect("an order");
        let out = fs::read_to_string(into.path().join("0001.xml")).expect("a file");
        assert!(out.contains(&format!("file='{location}/101/7/disk.0'")), "{out}");
    }
}
