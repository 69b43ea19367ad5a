use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use super::*;

/// A front-end's remotes as OpenNebula has them, and ours.
struct Place {
    folder: tempfile::TempDir,
}

fn write(path: PathBuf, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for (path, text, mode) in [
            ("vmm/kvm/deploy", "#!/usr/bin/ruby\ntheirs", 0o755),
            ("vmm/kvm/migrate", "#!/usr/bin/ruby\nnot ours", 0o750),
            ("im/run_probes", "theirs", 0o700),
            ("etc/vmm/kvm/kvmrc", "export SHUTDOWN_TIMEOUT=77\n", 0o640),
            ("scripts_common.sh", "theirs", 0o644),
        ] {
            write(place.remotes().join(path), text, mode);
            fs::File::open(place.remotes().join(path)).unwrap().set_modified(long_ago).unwrap();
        }
        symlink("kvm.d", place.remotes().join("im/qemu.d")).unwrap();
        for (path, text, mode) in [
            ("kvmad_common.sh", "ours", 0o644),
            ("kvmad/serve", "ours", 0o755),
            ("vmm/kvm/deploy", "#!/bin/bash\nours", 0o755),
            ("im/run_probes", "ours", 0o755),
            ("im/kvm.d/control", "ours", 0o755),
            ("etc/vmm/kvm/kvmrc", "SHUTDOWN_TIMEOUT=180\n", 0o644),
        ] {
            write(place.ours().join(path), text, mode);
        }
        symlink("kvm.d", place.ours().join("im/qemu.d")).unwrap();
        symlink("kvm-probes.d", place.ours().join("im/qemu-probes.d")).unwrap();
        place
    }

    fn remotes(&self) -> PathBuf {
        self.folder.path().join("var/remotes")
    }

    fn ours(&self) -> PathBuf {
        self.folder.path().join("share/remotes")
    }

    fn run(&self, words: &[&str]) -> (u8, String) {
        let mut arguments = Arguments {
            remotes: Some(self.remotes()),
            from: (!words.contains(&"--undo")).then(|| self.ours()),
            undo: false,
            dry_run: false,
            force: false,
            config: false,
        };
        for word in words {
            match *word {
                "--undo" => arguments.undo = true,
                "--dry-run" => arguments.dry_run = true,
                "--force" => arguments.force = true,
                "--config" => arguments.config = true,
                other => panic!("{other}"),
            }
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = run(&arguments, &mut out, &mut err);
        out.extend(err);
        (status, String::from_utf8(out).unwrap())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.remotes().join(path)).unwrap_or_else(|_| "nothing".to_owned())
    }

    /// Everything below the remotes: kind, mode, time of change of content, content.
    fn all(&self) -> BTreeMap<PathBuf, String> {
        fn walk(dir: &Path, all: &mut BTreeMap<PathBuf, String>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                let what = if meta.is_dir() {
                    walk(&path, all);
                    format!("folder {:o}", meta.mode())
                } else if meta.is_symlink() {
                    format!("link to {}", fs::read_link(&path).unwrap().display())
                } else {
                    format!("{:o} {} {}", meta.mode(), meta.mtime(), fs::read_to_string(&path).unwrap())
                };
                all.insert(path, what);
            }
        }
        let mut all = BTreeMap::new();
        walk(&self.remotes(), &mut all);
        all
    }
}

#[test]
fn ours_are_laid_and_a_second_run_changes_nothing() {
    let place = Place::new();
    let (status, said) = place.run(&[]);
    assert_eq!(status, super::super::FINE, "{said}");
    assert_eq!(place.read("vmm/kvm/deploy"), "#!/bin/bash\nours");
    assert_eq!(place.read("vmm/kvm/migrate"), "#!/usr/bin/ruby\nnot ours");
    assert_eq!(fs::read_link(place.remotes().join("im/qemu-probes.d")).unwrap(), Path::new("kvm-probes.d"));
    for line in ["replaced    vmm/kvm/deploy", "added       kvmad/serve", "replaced    im/run_probes"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("im/qemu.d"), "the same link was there: {said}");
    assert!(crate::host::push::carried_stamp(&place.remotes()).is_some(), "the remotes are ours");

    let before = place.all();
    let (status, said) = place.run(&[]);
    assert_eq!(status, super::super::FINE, "{said}");
    assert!(said.ends_with("nothing to do\n"), "{said}");
    assert_eq!(place.all(), before);
}

#[test]
fn undo_gives_back_everything_as_it_was() {
    let place = Place::new();
    let before = place.all();
    place.run(&[]);
    let (status, said) = place.run(&["--undo"]);
    assert_eq!(status, super::super::FINE, "{said}");
    assert_eq!(place.all(), before);
    let (status, said) = place.run(&["--undo"]);
    assert_eq!((status, said.contains("nothing was laid there")), (super::super::FINE, true), "{said}");
}

#[test]
fn a_dry_run_says_the_same_and_changes_nothing() {
    let place = Place::new();
    let before = place.all();
    let (status, dry) = place.run(&["--dry-run"]);
    assert_eq!(status, super::super::FINE);
    assert_eq!(place.all(), before);
    let (_, real) = place.run(&[]);
    let lines =
        |text: &str| text.lines().filter(|line| line.contains("  ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&dry), lines(&real));
    let laid = place.all();
    place.run(&["--undo", "--dry-run"]);
    assert_eq!(place.all(), laid);
}

#[test]
fn settings_that_are_there_stay_and_ours_lie_beside() {
    let place = Place::new();
    let (_, said) = place.run(&[]);
    assert_eq!(place.read("etc/vmm/kvm/kvmrc"), "export SHUTDOWN_TIMEOUT=77\n");
    assert_eq!(place.read("etc/vmm/kvm/kvmrc.kvmad"), "SHUTDOWN_TIMEOUT=180\n");
    assert!(said.contains("laid beside etc/vmm/kvm/kvmrc.kvmad"), "{said}");
    let (status, _) = place.run(&["--config"]);
    assert_eq!(status, super::super::FINE);
    assert_eq!(place.read("etc/vmm/kvm/kvmrc"), "SHUTDOWN_TIMEOUT=180\n");
    place.run(&["--undo"]);
    assert_eq!(place.read("etc/vmm/kvm/kvmrc"), "export SHUTDOWN_TIMEOUT=77\n");
    assert_eq!(place.read("etc/vmm/kvm/kvmrc.kvmad"), "nothing");
}

#[test]
fn a_file_that_was_changed_since_stays_and_is_named() {
    let place = Place::new();
    place.run(&[]);
    write(place.remotes().join("vmm/kvm/deploy"), "the admin's", 0o755);
    write(place.ours().join("vmm/kvm/deploy"), "ours, newer", 0o755);
    let (status, said) = place.run(&[]);
    assert_eq!(status, super::super::FINDING);
    assert!(said.contains("kept        vmm/kvm/deploy: it was changed since it was laid"), "{said}");
    assert_eq!(place.read("vmm/kvm/deploy"), "the admin's");

    let (status, said) = place.run(&["--undo"]);
    assert_eq!(status, super::super::FINDING);
    assert!(said.contains("kept        vmm/kvm/deploy"), "{said}");
    assert_eq!(place.read("vmm/kvm/deploy"), "the admin's");
    assert_eq!(place.read("im/run_probes"), "theirs");
    assert_eq!(place.read(".kvmad/stamp"), "nothing", "the remotes are OpenNebula's again");

    let (status, said) = place.run(&["--undo", "--force"]);
    assert_eq!(status, super::super::FINE, "{said}");
    assert_eq!(place.read("vmm/kvm/deploy"), "#!/usr/bin/ruby\ntheirs");
    assert_eq!(place.read(".kvmad/installed/earlier/vmm/kvm/deploy.1"), "the admin's", "{said}");
}

#[test]
fn an_undo_names_the_changed_scripts_that_work_no_more_and_does_not_send_them_to_hosts() {
    let place = Place::new();
    place.run(&[]);
    write(place.remotes().join("vmm/kvm/deploy"), "#!/bin/bash\n. ../../kvmad_common.sh\n# mine", 0o755);
    write(place.remotes().join("im/run_probes"), "OpenNebula's next release", 0o755);
    for words in [&["--undo", "--dry-run"][..], &["--undo"]] {
        let (status, said) = place.run(words);
        assert_eq!(status, super::super::FINDING, "{said}");
        let told =
            said.lines().find(|line| line.starts_with("work no more")).unwrap_or_else(|| panic!("{said}"));
        assert!(told.ends_with(": vmm/kvm/deploy"), "{said}");
        assert!(said.contains("--undo --force"), "{said}");
        assert!(!said.contains("onehost sync"), "{said}");
    }
    assert_eq!(place.read("kvmad_common.sh"), "nothing");
    let (status, said) = place.run(&["--undo", "--force"]);
    assert_eq!((status, said.contains("onehost sync --force")), (super::super::FINE, true), "{said}");
    assert_eq!(place.read("vmm/kvm/deploy"), "#!/usr/bin/ruby\ntheirs");
    assert!(place.read(".kvmad/installed/earlier/vmm/kvm/deploy.1").ends_with("# mine"));
}

#[test]
fn a_kept_script_of_opennebula_s_does_not_stand_in_the_way_of_the_sync() {
    let place = Place::new();
    place.run(&[]);
    write(place.remotes().join("vmm/kvm/deploy"), "OpenNebula's next release", 0o755);
    let (status, said) = place.run(&["--undo"]);
    assert_eq!((status, said.contains("onehost sync --force")), (super::super::FINDING, true), "{said}");
    assert!(!said.contains("work no more"), "{said}");
}

#[test]
fn force_replaces_a_changed_file_and_keeps_both_that_stood_there() {
    let place = Place::new();
    place.run(&[]);
    write(place.remotes().join("vmm/kvm/deploy"), "OpenNebula's next release", 0o755);
    fs::remove_file(place.remotes().join("im/run_probes")).unwrap();
    let (status, said) = place.run(&[]);
    assert_eq!(status, super::super::FINDING);
    assert!(said.contains("im/run_probes: it was removed since it was laid"), "{said}");
    let (status, said) = place.run(&["--force"]);
    assert_eq!(status, super::super::FINE, "{said}");
    assert_eq!(
        (place.read("vmm/kvm/deploy"), place.read("im/run_probes")),
        ("#!/bin/bash\nours".into(), "ours".into())
    );
    place.run(&["--undo"]);
    assert_eq!(place.read("vmm/kvm/deploy"), "OpenNebula's next release");
    assert_eq!(place.read("im/run_probes"), "theirs");
    assert_eq!(place.read(".kvmad/installed/earlier/vmm/kvm/deploy.1"), "#!/usr/bin/ruby\ntheirs");
}

#[test]
fn a_newer_version_updates_and_takes_back_what_it_has_no_more() {
    let place = Place::new();
    let before = place.all();
    place.run(&[]);
    write(place.ours().join("kvmad_common.sh"), "ours, newer", 0o644);
    write(place.ours().join("vmm/kvm/deploy"), "#!/bin/bash\nours", 0o700);
    fs::remove_file(place.ours().join("im/run_probes")).unwrap();
    fs::remove_file(place.ours().join("im/kvm.d/control")).unwrap();
    let (status, said) = place.run(&[]);
    assert_eq!(status, super::super::FINE, "{said}");
    assert_eq!(
        (place.read("kvmad_common.sh"), place.read("im/run_probes")),
        ("ours, newer".into(), "theirs".into())
    );
    assert_eq!(place.read("im/kvm.d/control"), "nothing");
    assert!(said.contains("updated     vmm/kvm/deploy"), "its mode is another one: {said}");
    assert!(place.run(&[]).1.ends_with("nothing to do\n"));
    place.run(&["--undo"]);
    assert_eq!(place.all(), before);
}

#[test]
fn a_run_that_was_cut_off_is_finished_by_the_next_or_taken_back() {
    for finish in [true, false] {
        let place = Place::new();
        let before = place.all();
        place.run(&[]);
        // As if it had ended behind the record and before these two were laid.
        let store = Store::of(&place.remotes());
        let mut record = store.read().unwrap().unwrap();
        record.pending = true;
        store.write(&record).unwrap();
        let deploy = place.remotes().join("vmm/kvm/deploy");
        fs::remove_file(&deploy).unwrap();
        fs::hard_link(store.backup("vmm/kvm/deploy"), &deploy).unwrap();
        fs::remove_file(place.remotes().join("kvmad/serve")).unwrap();
        if finish {
            let (status, said) = place.run(&[]);
            assert_eq!(status, super::super::FINE, "{said}");
            assert_eq!(
                (place.read("vmm/kvm/deploy"), place.read("kvmad/serve")),
                ("#!/bin/bash\nours".into(), "ours".into())
            );
        }
        let (status, said) = place.run(&["--undo"]);
        assert_eq!(status, super::super::FINE, "{said}");
        assert_eq!(place.all(), before);
    }
}

#[test]
fn what_is_no_file_or_lies_elsewhere_is_left_alone_and_named() {
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir(place.remotes().join("kvmad_common.sh")).unwrap();
    symlink(&outside, place.remotes().join("kvmad")).unwrap();
    fs::create_dir(place.remotes().join("im/qemu-probes.d")).unwrap();
    let (status, said) = place.run(&[]);
    assert_eq!(status, super::super::FINDING);
    assert!(said.contains("kvmad_common.sh: a folder is there"), "{said}");
    assert!(said.contains("kvmad/serve: its folder is a file, or a link that leads out"), "{said}");
    assert!(said.contains("im/qemu-probes.d: a folder is there, ours is a link to one"), "{said}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_link_that_stood_in_place_of_a_file_comes_back_as_a_link() {
    let place = Place::new();
    let deploy = place.remotes().join("vmm/kvm/deploy");
    fs::remove_file(&deploy).unwrap();
    symlink("migrate", &deploy).unwrap();
    let before = place.all();
    place.run(&[]);
    assert_eq!(
        place.read("vmm/kvm/migrate"),
        "#!/usr/bin/ruby\nnot ours",
        "nothing is written through a link"
    );
    place.run(&["--undo"]);
    assert_eq!(place.all(), before);
}

#[test]
fn a_record_that_can_t_be_read_stops_everything() {
    let place = Place::new();
    place.run(&[]);
    write(place.remotes().join(".kvmad/installed/record.json"), "{", 0o644);
    write(place.ours().join("kvmad_common.sh"), "ours, newer", 0o644);
    for words in [&[][..], &["--undo"]] {
        let (status, said) = place.run(words);
        assert_eq!(status, super::super::UNCHECKED);
        assert!(said.contains("record.json"), "{said}");
    }
    assert_eq!(place.read("kvmad_common.sh"), "ours");
}

#[test]
fn a_backup_that_is_gone_keeps_the_file_instead_of_losing_it() {
    let place = Place::new();
    place.run(&[]);
    fs::remove_file(place.remotes().join(".kvmad/installed/before/vmm/kvm/deploy")).unwrap();
    let (status, said) = place.run(&["--undo"]);
    assert_eq!(status, super::super::FINDING);
    assert!(said.contains("vmm/kvm/deploy: the backup of what stood there is gone"), "{said}");
    assert_eq!(place.read("vmm/kvm/deploy"), "#!/bin/bash\nours");
}

#[test]
fn a_folder_that_is_no_remotes_and_a_second_run_beside_the_first_are_refused() {
    let place = Place::new();
    let held = fs::File::open(place.remotes()).unwrap();
    held.lock().unwrap();
    assert_eq!(place.run(&[]).0, super::super::USAGE);
    drop(held);
    fs::remove_dir_all(place.remotes()).unwrap();
    let (status, said) = place.run(&[]);
    assert_eq!(status, super::super::USAGE);
    assert!(said.contains("no remotes folder of OpenNebula"), "{said}");
}
