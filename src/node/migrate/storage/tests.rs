//! What of a VM's storage goes along.

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
    let domain = Document::parse(format!("<domain><devices>{domain}</devices></domain>")).expect("a domain");
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
    let image =
        r#"[{"virtual-size": 512, "filename": "x", "format": "qcow2", "snapshots": [{"name": "snap-0"}]}]"#;
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
