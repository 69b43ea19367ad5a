//! The drivers' user, QEMU's user, their groups and folders.

use super::*;

#[tokio::test]
async fn nothing_is_well_for_a_user_that_is_not_there_and_mends_name_the_user_that_was_given() {
    let nobody = Stand::healthy().words(&["--user", "nosuch"]);
    nobody.fails("user", Verdict::Failure, "no user nosuch", "useradd").await;
    for id in ["dev-kvm", "libvirt"] {
        nobody.fails(id, Verdict::CouldNotCheck, "no user nosuch", "see the check user").await;
    }
    let deaf = || Stand::healthy().answers("virsh", Err((1, "error: failed to connect")));
    let other = deaf().words(&["--user", "libvirt-qemu"]);
    let found = other.fails("libvirt", Verdict::Failure, "failed", "usermod -aG libvirt libvirt-qemu").await;
    assert!(!found.mend.contains("oneadmin"), "{found:?}");
    deaf().fails("libvirt", Verdict::Failure, "failed", "usermod -aG libvirt oneadmin").await;
    for wrong in ["", "a:b", "a\nb"] {
        assert!(Words::try_parse_from(["check", "--user", wrong]).is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn users_groups_and_qemus_user() {
    let nobody = Stand::healthy().answers("passwd oneadmin", Err((2, "")));
    nobody.fails("user", Verdict::Failure, "there is no user oneadmin", "useradd").await;
    assert_eq!(nobody.of("group-kvm").await.verdict, Verdict::Skipped);
    let broken = Stand::healthy().answers("passwd oneadmin", Err((3, "no directory")));
    broken.fails("user", Verdict::CouldNotCheck, "no directory", "getent").await;
    let alone = Stand::healthy().answers("id -G", Ok("4242"));
    let found = alone
        .fails("group-libvirt", Verdict::Failure, "not in group libvirt", "usermod -aG libvirt oneadmin")
        .await;
    let member = |group: &str| Edit::Member { user: "oneadmin".into(), group: group.into() };
    assert_eq!(found.fix.expect("a fix").edits, [member("libvirt")]);
    let found =
        alone.fails("group-kvm", Verdict::Failure, "not in group kvm", "usermod -aG kvm oneadmin").await;
    assert_eq!(found.fix.expect("a fix").edits, [member("kvm")]);
    alone.put("etc/libvirt/libvirtd.conf", "unix_sock_group = \"vmusers\"\n");
    alone.fails("group-libvirt", Verdict::Failure, "there is no group vmusers", "libvirt").await;
    let stock = Stand::healthy();
    stock.put("etc/libvirt/qemu.conf", "#user = \"root\"\n");
    stock.fails("qemu-user", Verdict::Failure, "no user, no group", "user = \"oneadmin\"").await;
    stock.fails("qemu-ownership", Verdict::Failure, "the default is 1", "dynamic_ownership = 0").await;
    stock.mends("qemu-user").await;
    stock.mends("qemu-ownership").await;
    let text = stock.root().read("/etc/libvirt/qemu.conf").expect("there");
    assert_eq!(text, "#user = \"root\"\nuser = \"oneadmin\"\ngroup = \"oneadmin\"\ndynamic_ownership = 0\n");
}

#[tokio::test]
async fn a_parent_that_blocks_qemus_user_is_named_and_folders_are_made() {
    let stand = Stand::healthy();
    stand.put("etc/libvirt/qemu.conf", "user = \"libvirt-qemu\"\n");
    stand.put("home/ann/vms/x", "").chmod("home/ann", 0o750);
    let stand = stand.words(&["--datastores", "/home/ann/vms", "--images", "/home/ann/images"]);
    for id in ["datastores-path", "images-path"] {
        let found = stand
            .fails(
                id,
                Verdict::Failure,
                "/home/ann does not let libvirt-qemu pass",
                "setfacl -m u:libvirt-qemu:--x /home/ann",
            )
            .await;
        let edit = Edit::Pass { user: "libvirt-qemu".into(), folder: "/home/ann".into() };
        assert_eq!(found.fix.expect("a fix").edits, [edit]);
    }
    stand.chmod("home/ann", 0o751);
    assert_eq!(stand.of("datastores-path").await.verdict, Verdict::Ok);
    stand.remove("home/ann/vms");
    let found = stand.fails("datastores", Verdict::Warning, "is not there", "install -d -o oneadmin").await;
    let edit = Edit::Folder { folder: "/home/ann/vms".into(), owner: "oneadmin".into() };
    assert_eq!(found.fix.expect("a fix").edits, [edit]);
    let found = stand.fails("images", Verdict::Warning, "is not there", "install -d -o oneadmin").await;
    let edit = Edit::Folder { folder: "/home/ann/images".into(), owner: "oneadmin".into() };
    assert_eq!(found.fix.expect("a fix").edits, [edit]);
    stand.chmod("home/ann", 0o777);
    assert_eq!(stand.of("images").await.verdict, Verdict::Ok, "the user may make it");
    stand.put("home/ann/vms", "a file");
    stand.fails("datastores", Verdict::Failure, "is no folder", "move it").await;
}
