//! Bridges, libvirt's networks and daemon, names.

use super::*;

#[tokio::test]
async fn bridges_are_told_by_their_ports() {
    let stand = Stand::healthy();
    for (port, kind) in [
        ("br0/brif/eth0", "eth0/device/x"),
        ("br1/brif/one-7-0", "one-7-0/tun_flags"),
        ("br2/brif/wlan0", "wlan0/phy80211/x"),
        ("br3/brif/bond0", "bond0/lower_eth3/x"),
    ] {
        let bridge = port.split('/').next().expect("one");
        stand.put(&format!("sys/class/net/{bridge}/bridge/x"), "");
        stand.put(&format!("sys/class/net/{port}"), "").put(&format!("sys/class/net/{kind}"), "");
    }
    stand.put("sys/class/net/virbr0/bridge/x", "");
    stand
        .fails(
            "bridge-port",
            Verdict::Warning,
            "without a port that leads out: br1",
            "ip link set NIC master br1",
        )
        .await;
    stand.fails("bridge-wireless", Verdict::Failure, "wlan0 is wireless and a port of br2", "NAT").await;
    stand.put("run/NetworkManager/x", "");
    let stand = stand.answers("nmcli", Ok("yes:eth0:lan\nno:bond0:bond: a\nno:tun7:vpn\n"));
    stand
        .fails(
            "bridge-autoconnect",
            Verdict::Warning,
            "bond0",
            "nmcli con mod 'bond: a' connection.autoconnect yes",
        )
        .await;
    let stand = stand.words(&["--bridge", "br0", "--bridge", "br9"]);
    assert_eq!(stand.of("bridge-port").await.verdict, Verdict::Ok, "only those that were asked for");
    let found = stand.fails("bridge", Verdict::Failure, "not there: br9", "netplan try").await;
    assert!(
        found.mend.contains("interfaces: [eth0]") && found.mend.contains("nmcli con add type bridge"),
        "{}",
        found.mend
    );
}

#[tokio::test]
async fn the_daemons_transport_is_that_of_kvmrc() {
    let stand = Stand::healthy().answers("bash -c", Ok("\0qemu+tcp\0"));
    stand.put("var/tmp/one/etc/vmm/kvm/kvmrc", "");
    stand.fails("libvirt-tcp", Verdict::Failure, "nothing listens", "libvirtd-tcp.socket").await;
    let edit = Edit::Number { file: "/etc/libvirt/libvirtd.conf".into(), key: "listen_tcp".into(), value: 1 };
    let fix = stand.of("libvirt-tcp").await.fix.expect("a fix");
    assert_eq!(fix.edits, [edit]);
    stand.put("etc/libvirt/libvirtd.conf", "listen_tcp = 1\nauth_tcp = \"none\"\n");
    assert!(stand.of("libvirt-tcp").await.fix.is_none(), "the key is not what is missing");
    if cfg!(target_endian = "little") {
        stand.put("proc/net/tcp", "head\n0: 00000000:407D 0:0 0A 0\n");
        assert_eq!(stand.of("libvirt-tcp").await.verdict, Verdict::Ok);
        stand.fails("libvirt-tcp-auth", Verdict::Warning, "listens on 0.0.0.0", "firewall").await;
        stand.put("proc/net/tcp", "head\n0: 0B004D0A:407D 0:0 0A 0\n");
        assert_eq!(stand.of("libvirt-tcp-auth").await.verdict, Verdict::Ok, "one private address");
    }
    let tls = Stand::healthy().answers("bash -c", Ok("\0qemu+tls\0"));
    tls.put("var/tmp/one/etc/vmm/kvm/kvmrc", "");
    tls.fails("libvirt-tls", Verdict::Failure, "/etc/pki/CA/cacert.pem", "tlscerts").await;
    let ssh = Stand::healthy();
    ssh.remove("usr/bin/nc");
    // What this machine has in its own PATH is below the stand-in's root, too: nothing is there.
    ssh.fails("libvirt-ssh", Verdict::Failure, "neither virt-ssh-helper nor nc", "netcat-openbsd").await;
}

#[tokio::test]
async fn names_uuids_and_networks_that_do_not_serve() {
    let loopback = Stand::healthy().answers("ahosts node1", Ok("127.0.1.1 STREAM node1\n"));
    loopback.fails("host-name", Verdict::Warning, "resolves to 127.0.1.1", "/etc/hosts").await;
    let unknown = Stand::healthy().answers("ahosts node1", Err((2, "")));
    unknown.fails("host-name", Verdict::Warning, "does not resolve", "migration_host").await;
    unknown.put("etc/libvirt/qemu.conf", "migration_host = \"192.0.2.9\"\n");
    assert_eq!(unknown.of("host-name").await.verdict, Verdict::Ok);
    let dummy =
        CAPABILITIES.replace("6b071181-4406-4d06-8fd7-5629e3f1e044", "03000200-0400-0500-0006-000700080009");
    Stand::healthy()
        .answers("capabilities", Ok(&dummy))
        .fails("host-uuid", Verdict::Failure, "other hosts have", "host_uuid")
        .await;
    let no_kvm = CAPABILITIES.replace("<domain type='kvm'/>", "");
    let stand = Stand::healthy().answers("capabilities", Ok(&no_kvm));
    stand.fails("libvirt-kvm", Verdict::Failure, "for x86_64: qemu", "dev-kvm").await;
    assert_eq!(stand.words(&["--emulated"]).of("libvirt-kvm").await.verdict, Verdict::Ok);
    let none = Stand::healthy().answers("net-list", Ok("other\n"));
    none.fails("nat-network", Verdict::Warning, "there is no libvirt network default", "net-define").await;
    let idle =
        Stand::healthy().answers("net-list --name --all", Ok("default\n")).answers("net-list", Ok("\n"));
    idle.fails("nat-network", Verdict::Warning, "is not active", "virsh net-start default").await;
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_leaves_what_it_would_tell_unchecked() {
    let stand = Stand::healthy().answers("virsh", Err((1, "error: failed to connect")));
    stand.fails("libvirt", Verdict::Failure, "failed to connect", "systemctl start libvirtd").await;
    for id in ["libvirt-kvm", "host-uuid", "nat-network"] {
        assert_eq!(stand.of(id).await.verdict, Verdict::CouldNotCheck, "{id}");
    }
}
