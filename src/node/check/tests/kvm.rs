//! What VMs need of the host.

use super::*;

#[tokio::test]
async fn vhost_is_needed_where_the_defaults_of_domains_ask_for_queues() {
    let stand = Stand::healthy();
    assert_eq!(stand.of("vhost-net").await.verdict, Verdict::Skipped, "nobody asks for it");
    let defaults = "var/tmp/one/etc/vmm/kvm/vmm_exec_kvm.conf";
    stand.put(defaults, "NIC = [ MODEL = \"virtio\" ]\n");
    assert_eq!(stand.of("vhost-net").await.verdict, Verdict::Skipped);
    stand.put(defaults, "NIC = [ VIRTIO_QUEUES = \"auto\" ]\n");
    stand.fails("vhost-net", Verdict::Warning, "NIC/VIRTIO_QUEUES = \"auto\"", "modprobe vhost_net").await;
    stand.put("dev/vhost-net", "");
    assert_eq!(stand.of("vhost-net").await.verdict, Verdict::Ok);
}

#[tokio::test]
async fn what_is_missing_is_named_with_its_package() {
    let stand = Stand::healthy();
    for program in ["virsh", "qemu-system-x86_64", "qemu-img", "xorriso", "virt-install"] {
        stand.remove(&format!("usr/bin/{program}"));
    }
    for (id, verdict, mend) in [
        ("virsh", Verdict::Failure, "libvirt-clients"),
        ("emulator", Verdict::Failure, "qemu-system-x86"),
        ("qemu-img", Verdict::Failure, "qemu-utils"),
        ("iso-maker", Verdict::Warning, "genisoimage"),
        ("virt-install", Verdict::Warning, "virtinst"),
    ] {
        stand.fails(id, verdict, "not", mend).await;
    }
    stand.remove("dev/kvm").remove("sys/module/kvm").put("proc/cpuinfo", "flags: fpu\n");
    stand.fails("cpu-virtualization", Verdict::Warning, "neither vmx nor svm", "firmware").await;
    stand.fails("dev-kvm", Verdict::Failure, "is not there", "modprobe").await;
    stand.fails("kvm-modules", Verdict::Warning, "no module kvm", "modprobe kvm_intel").await;
}

#[tokio::test]
async fn libvirt_that_refuses_a_user_who_is_not_in_its_group_is_mended_by_the_group_and_a_dead_one_is_not() {
    let refused = Stand::healthy().answers("virsh", Err((1, "authentication"))).answers("id -G", Ok("4242"));
    let found = refused.fails("libvirt", Verdict::Failure, "authentication", "usermod -aG libvirt").await;
    let edit = Edit::Member { user: "oneadmin".into(), group: "libvirt".into() };
    assert_eq!(found.fix.expect("a fix").edits, [edit]);
    let dead = Stand::healthy().answers("virsh", Err((1, "failed to connect")));
    assert_eq!(dead.of("libvirt").await.fix, None);
}
