use std::os::unix::fs::symlink;

use super::*;

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("vmm/kvm")).unwrap();
    fs::write(dir.path().join("vmm/kvm/deploy"), "#!/bin/bash\n").unwrap();
    fs::set_permissions(dir.path().join("vmm/kvm/deploy"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("odd\nname\\x"), "").unwrap();
    symlink("deploy", dir.path().join("vmm/kvm/other")).unwrap();
    symlink("/nonexistent", dir.path().join("dangling")).unwrap();
    dir
}

#[test]
fn a_manifest_follows_links_and_comes_back_from_its_text() {
    let dir = folder();
    let manifest = Manifest::of(dir.path()).unwrap();
    let paths: Vec<&str> = manifest.0.keys().map(String::as_str).collect();
    assert_eq!(paths, ["odd\nname\\x", "vmm", "vmm/kvm", "vmm/kvm/deploy", "vmm/kvm/other"]);
    // sha256sum of "#!/bin/bash\n"
    let expected = "b875f928546aee7855cb1db9afc8ab3f1a8a34d43de5bbd62f7076d7ba9f3917";
    let deploy = &manifest.0["vmm/kvm/deploy"];
    assert_eq!((deploy.mode, deploy.hash.as_deref()), (0o755, Some(expected)));
    assert_eq!(manifest.0["vmm/kvm/other"], *deploy);
    assert_eq!(Manifest::parse(&manifest.text()), manifest);
    assert_eq!(Manifest::parse("garbage\n\n0644"), Manifest::default());
}

#[test]
fn the_stamp_changes_with_path_mode_and_content_and_with_nothing_else() {
    let dir = folder();
    let stamp = || Manifest::of(dir.path()).unwrap().stamp();
    let first = stamp();
    let deploy = dir.path().join("vmm/kvm/deploy");
    let old = fs::metadata(&deploy).unwrap().modified().unwrap();
    File::options()
        .write(true)
        .open(&deploy)
        .unwrap()
        .set_modified(old - std::time::Duration::from_secs(99))
        .unwrap();
    fs::create_dir(dir.path().join(OWN)).unwrap();
    assert_eq!(stamp(), first);
    fs::set_permissions(&deploy, fs::Permissions::from_mode(0o700)).unwrap();
    let second = stamp();
    fs::write(&deploy, "#!/bin/bash\n:\n").unwrap();
    let third = stamp();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let all = [first, second, third, stamp()];
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
}

#[test]
fn changes_are_told_by_path() {
    let old = Manifest::parse("0644 aa a\n0644 bb b\n0644 cc c\n");
    let new = Manifest::parse("0644 aa a\n0755 bb b\n0644 dd d\n");
    let expected = Changes { added: vec!["d".into()], changed: vec!["b".into()], removed: vec!["c".into()] };
    assert_eq!(old.changes(&new), expected);
}

#[test]
fn the_archive_holds_what_the_manifest_says() {
    let dir = folder();
    let extra = dir.path().join("elsewhere.conf");
    fs::rename(dir.path().join("odd\nname\\x"), &extra).unwrap();
    let extras =
        [(extra, "etc/vmm/kvm/x.conf".to_owned()), ("/nonexistent/file".into(), "etc/none".to_owned())];
    let packed = Packed::of(dir.path(), &extras).unwrap();
    assert!(packed.manifest.0.contains_key("etc/vmm/kvm/x.conf"));
    assert_eq!(packed.manifest.0["etc/vmm"], Entry { mode: 0o755, hash: None });
    assert!(!packed.manifest.0.contains_key("etc/none"));
    let out = tempfile::tempdir().unwrap();
    let mut archive = packed.archive().unwrap();
    let bytes = archive.take(archive.left()).unwrap();
    tar::Archive::new(&bytes[..]).unpack(out.path()).unwrap();
    assert_eq!(Manifest::of(out.path()).unwrap(), packed.manifest);
    assert_eq!(carried_stamp(out.path()).as_deref(), Some(packed.stamp.as_str()));
    let text = fs::read_to_string(out.path().join(OWN).join("manifest")).unwrap();
    assert_eq!(Manifest::parse(&text), packed.manifest);
}

#[test]
fn a_circle_of_links_is_an_error_that_names_it() {
    let dir = folder();
    symlink("..", dir.path().join("vmm/loop")).unwrap();
    let error = Manifest::of(dir.path()).unwrap_err();
    assert!(error.to_string().contains("loop"), "{error}");
}

#[test]
fn writing_the_stamp_makes_a_folder_ours() {
    let dir = folder();
    assert_eq!(carried_stamp(dir.path()), None);
    let stamp = write_stamp(dir.path()).unwrap();
    assert_eq!(carried_stamp(dir.path()), Some(stamp.clone()));
    assert_eq!(write_stamp(dir.path()).unwrap(), stamp);
}
