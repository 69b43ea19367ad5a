//! To another datastore: of another host, or of the same; and what comes of it when a disk does not change over.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::guest::{ACTION, Guest, Storage};
use crate::harness::bed;
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::stand;

fn names(files: &std::collections::BTreeMap<String, u64>) -> Vec<&str> {
    files.keys().map(String::as_str).filter(|name| name.starts_with("disk.")).collect()
}

/// Host and datastore at once, with a snapshot and a CD-ROM; first a migration that is given up on its way.
fn to_another_host_and_datastore(id: u32, storage: Storage) {
    let _use = bed::shared();
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp")]);
    let mut driver = stand::driver(&front);
    let mut guest = Guest::new(&front, id, "node1", storage, true);
    guest.boot(&mut driver);
    guest.snapshot(&mut driver, 0);
    let before = guest.files("node1");

    guest.features = crate::busy::limited(2, "abort");
    let leaving = guest.leave_as(&mut driver, &guest.migration_elsewhere("node2"));
    let reply = guest.went(&driver, &leaving, ACTION);
    assert_eq!(reply.status, "FAILURE", "{}", reply.raw);
    guest.runs_here_alone().expect("it stays");
    assert_eq!(guest.files_elsewhere("node2"), [].into(), "what was made for it is gone");
    let file = |guest: &Guest, name: &str| guest.folder().join(name).display().to_string();
    let in_use = |guest: &Guest| {
        let pair = |(target, name): (&str, &str)| (target.to_owned(), file(guest, name));
        [("hda", "disk.1"), ("vda", "disk.0")].map(pair).into()
    };
    assert_eq!(guest.disks_in_use(), in_use(&guest));
    assert_eq!(guest.snapshots(), ["snap-0"]);

    guest.features.clear();
    let leaving = guest.leave_as(&mut driver, &guest.migration_elsewhere("node2"));
    let reply = guest.went(&driver, &leaving, ACTION);
    assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    guest.runs_here_alone().expect("it arrived");
    let left: Vec<_> = before.keys().filter(|name| !guest.files("node1").contains_key(*name)).collect();
    assert!(left.is_empty(), "removed, which is the transfer manager's to do: {left:?}");
    guest.changed_datastore();
    assert_eq!(names(&guest.files("node2")), ["disk.0", "disk.1"]);
    assert_eq!(guest.disks_in_use(), in_use(&guest));
    let xml = bed::virsh("node2", &["dumpxml", &guest.domain()]).expect("a domain");
    let folder = guest.folder().display().to_string();
    assert!(xml.contains(&format!("{folder}</one:system_datastore>")), "{xml}");
    assert_eq!(guest.snapshots(), ["snap-0"]);
    guest.kept_running();
    guest.reads_its_disk();
}

#[test]
#[ignore = "needs the test bed: make test"]
fn host_and_datastore_change_at_once_on_shared_storage() {
    to_another_host_and_datastore(7163, Storage::Shared);
}

#[test]
#[ignore = "needs the test bed: make soak"]
fn soak_host_and_datastore_change_at_once_with_local_storage() {
    to_another_host_and_datastore(7164, Storage::Local);
}

/// In the place of a host's virsh: one that spoils some calls, hands on all others.
struct Spoilt(PathBuf);

const REAL: &str = "/var/tmp/kvmad-test-virsh";

impl Spoilt {
    /// `script` comes before every call; `"$@"` are its words.
    fn virsh(script: &str) -> Self {
        bed::sh("node1", &["cp", "--remove-destination", "/usr/bin/virsh", REAL]);
        let file = bed::host_path("node1", "/var/tmp/kvmad-test-spoilt");
        fs::write(&file, format!("#!/bin/bash\n{script}\nexec {REAL} \"$@\"\n")).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a file");
        bed::sh("node1", &["mount", "--bind", "/var/tmp/kvmad-test-spoilt", "/usr/bin/virsh"]);
        Self(file)
    }
}

impl Drop for Spoilt {
    fn drop(&mut self) {
        bed::sh("node1", &["umount", "/usr/bin/virsh"]);
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(bed::host_path("node1", REAL));
    }
}

/// The copy of vdb breaks off at the moment when it is to be used; vda uses its own by then.
const SECOND_FAILS: &str =
    r#"case " $* " in *' vdb --pivot '*) /var/tmp/kvmad-test-virsh "${@/--pivot/--abort}" ;; esac"#;
/// And then vda can't go back.
const BACK_FAILS: &str = r#"case " $* " in *' vda --pivot '*) [ ! -e "$MARK" ] || { echo 'error: no way back' >&2; exit 1; }; : >"$MARK" ;; esac"#;

fn within_the_host(front: &FrontEnd, driver: &mut Driver, id: u32) -> Guest {
    let mut guest = Guest::new(front, id, "node1", Storage::Shared, true).with_second_disk();
    guest.boot(driver);
    guest.snapshot(driver, 0);
    guest
}

/// Asks for the other datastore of the host and gives the reply's reason.
fn refused(guest: &mut Guest, driver: &mut Driver) -> String {
    let leaving = guest.leave_as(driver, &guest.migration_elsewhere("node1"));
    let reply = guest.went(driver, &leaving, ACTION);
    assert_eq!(reply.status, "FAILURE", "{}", reply.raw);
    reply.info
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_a_disk_that_does_not_change_over_leaves_all_where_they_were_or_the_reply_says_which() {
    let _use = bed::alone();
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp")]);
    let mut driver = stand::driver(&front);
    let mut guest = within_the_host(&front, &mut driver, 7165);
    let (disks, before) = (guest.disks_in_use(), guest.files("node1"));
    let sizes = |guest: &Guest| names(&guest.files("node1")).join(" ");
    {
        let _spoilt = Spoilt::virsh(SECOND_FAILS);
        let why = refused(&mut guest, &mut driver);
        assert!(why.contains("vdb") || why.contains("block job"), "{why}");
        assert!(why.contains("the VM uses its disks where they were"), "{why}");
    }
    assert_eq!(guest.disks_in_use(), disks);
    assert_eq!(guest.files_elsewhere("node1"), [].into(), "the copies are gone");
    assert_eq!(sizes(&guest), names(&before).join(" "));
    assert_eq!(guest.snapshots(), ["snap-0"]);
    guest.kept_running();

    let mark = "/var/tmp/kvmad-test-mark";
    {
        let _spoilt = Spoilt::virsh(&format!("MARK={mark}\n{SECOND_FAILS}\n{BACK_FAILS}"));
        let why = refused(&mut guest, &mut driver);
        bed::sh("node1", &["rm", "-f", mark]);
        let uses = format!("vda uses {}", guest.folder_elsewhere().join("disk.0").display());
        assert!(why.contains(&uses) && !why.contains("vdb uses"), "{why}");
        assert!(why.contains("nothing was removed") && why.contains("nothing was undone"), "{why}");
    }
    let mut apart = disks.clone();
    apart.insert("vda".into(), guest.folder_elsewhere().join("disk.0").display().to_string());
    assert_eq!(guest.disks_in_use(), apart);
    for files in [guest.files("node1"), guest.files_elsewhere("node1")] {
        assert_eq!(names(&files), ["disk.0", "disk.1", "disk.2"], "no file is lost");
    }
    let xml = bed::virsh("node1", &["dumpxml", &guest.domain()]).expect("a domain");
    assert!(!xml.contains("<mirror"), "no copy goes on: {xml}");
    guest.runs_here_alone().expect("it runs");
    guest.kept_running();
    guest.reads_its_disk();
}

#[test]
#[ignore = "needs the test bed: make soak"]
fn soak_all_disks_change_over_to_another_datastore_of_the_host() {
    let _use = bed::shared();
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp")]);
    let mut driver = stand::driver(&front);
    let mut guest = within_the_host(&front, &mut driver, 7166);
    let leaving = guest.leave_as(&mut driver, &guest.migration_elsewhere("node1"));
    let reply = driver.conversation.reply("MIGRATE", guest.id, leaving.replies(), ACTION);
    assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    guest.changed_datastore();
    assert_eq!(names(&guest.files("node1")), ["disk.0", "disk.1", "disk.2"]);
    for (target, file) in guest.disks_in_use() {
        assert!(file.starts_with(&guest.folder().display().to_string()), "{target}: {file}");
    }
    assert_eq!(guest.snapshots(), ["snap-0"]);
    guest.kept_running();
    guest.reads_its_disk();
}
