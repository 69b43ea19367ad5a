//! The network drivers `dummy` and `bridge`, with stand-ins for sudo, libvirt and /sys/class/net.

use crate::place::{Ended, Place};

/// A VM with interfaces `nics` (their XML) and more of its template in `more`, as the drivers get it.
fn vm(nics: &str, more: &str) -> String {
    use base64::Engine;
    let document = format!(
        "<VM><ID>7</ID><DEPLOY_ID>one-7</DEPLOY_ID><HISTORY_RECORDS><HISTORY><HOSTNAME>h1</HOSTNAME></HISTORY></HISTORY_RECORDS>\
         <HISTORY_RECORDS><HISTORY><VM_MAD>kvm</VM_MAD></HISTORY></HISTORY_RECORDS>{more}<TEMPLATE>{nics}</TEMPLATE></VM>"
    );
    base64::engine::general_purpose::STANDARD.encode(document) + "\n"
}

fn nic(bridge: &str, more: &str) -> String {
    format!(
        "<NIC><VN_MAD>bridge</VN_MAD><BRIDGE>{bridge}</BRIDGE><NIC_ID>0</NIC_ID><MAC>02:00:00:00:00:01</MAC>{more}</NIC>"
    )
}

/// A place whose sudo notes the commands it gets and makes or removes what `ip` would in its /sys.
fn place() -> Place {
    let mut place = Place::new();
    place.program(
        "bin/sudo",
        r#"[[ $1 == -n ]] || exit 9
shift
printf '%s\n' "$*" >>"$FAKE/root"
if [[ -e $FAKE/refuse && $* == $(<"$FAKE/refuse")* ]]; then echo "RTNETLINK answers: no" >&2; exit "${REFUSED:-2}"; fi
case "$1 $2 $3" in
    'ip link add') mkdir -p "$SYSFS/class/net/$5/bridge" "$SYSFS/class/net/$5/brif" ;;
    'ip link delete') rm -r "${SYSFS:?}/class/net/$4" ;;
    'ip link set') if [[ ${5:-} == master ]]; then touch "$SYSFS/class/net/$6/brif/$4"; fi ;;
esac"#,
    );
    let sysfs = place.text("sys");
    place.env("SYSFS", &sysfs);
    let lock = place.text("lock");
    place.env("VNM_LOCK", &lock);
    place.write("sys/class/net/lo/address", "");
    place.write("one/etc/vnm/OpenNebulaNetwork.conf", ":keep_empty_bridge: false\n:ip_bridge_conf:\n");
    place
}

fn bridge(place: &Place, name: &str, ports: &[&str]) {
    place.write(&format!("sys/class/net/{name}/bridge/stp_state"), "0");
    std::fs::create_dir_all(place.path(&format!("sys/class/net/{name}/brif"))).expect("a folder");
    for port in ports {
        place.write(&format!("sys/class/net/{name}/brif/{port}"), "");
    }
}

fn root(place: &Place) -> Vec<String> {
    let commands = place.read("root").lines().map(str::to_owned).collect();
    let _ = std::fs::remove_file(place.path("root"));
    commands
}

fn run(place: &Place, script: &str, args: &[&str], stdin: &str) -> Ended {
    place.run(&format!("vnm/{script}"), args, stdin)
}

#[test]
fn pre_makes_each_missing_bridge_once_and_adds_its_device() {
    let place = place();
    bridge(&place, "old", &["eth1"]);
    let nics = [
        nic("new", "<PHYDEV>eth0.5</PHYDEV>"),
        nic("new", "<PHYDEV>eth0.5</PHYDEV>"),
        nic("old", "<PHYDEV>eth1</PHYDEV>"),
        "<NIC><VN_MAD>fw</VN_MAD><BRIDGE>other</BRIDGE></NIC><NIC><VN_MAD>Bridge</VN_MAD><BRIDGE>other</BRIDGE></NIC>".to_owned(),
    ];
    let ended = run(&place, "bridge/pre", &[], &vm(&nics.concat(), ""));
    let log = ended.stderr.clone();
    assert_eq!(ended.good(), "");
    assert_eq!(
        root(&place),
        ["ip link add name new type bridge", "ip link set new up", "ip link set eth0.5 master new"]
    );
    assert!(log.contains("INFO: pre: Executed \"sudo -n ip link set new up\"."), "{log}");
}

#[test]
fn pre_gives_a_new_bridge_the_options_of_the_configuration() {
    let place = place();
    place.write(
        "one/etc/vnm/OpenNebulaNetwork.conf",
        ":bridge_conf:\n  :sethello: 6\n  :stp: off\n:ip_bridge_conf:\n  :stp_state: on\n",
    );
    run(&place, "bridge/pre", &[], &vm(&nic("br0", ""), "")).good();
    assert_eq!(root(&place)[0], "ip link add name br0 type bridge hello_time 6 stp_state 1");
}

#[test]
fn a_bridge_that_somebody_else_made_meanwhile_is_fine_and_other_refusals_end_with_their_status() {
    let place = place();
    place.write("refuse", "ip link add");
    run(&place, "bridge/pre", &[], &vm(&nic("br0", ""), "")).good();
    place.write("refuse", "ip link set");
    let ended = run(&place, "bridge/pre", &[], &vm(&nic("br0", ""), ""));
    assert_eq!(ended.status, Some(2));
    let reason = ended.bad();
    assert!(reason.contains("ip link set br0 up") && reason.contains("RTNETLINK answers: no"), "{reason}");
}

#[test]
fn names_that_are_no_devices_are_refused_before_root_is_asked() {
    for name in ["a b", "-x", "../x", "a/b", "..", "x;reboot", "sixteencharacter", ""] {
        let place = place();
        let reason = run(&place, "bridge/pre", &[], &vm(&nic(name, ""), "")).bad();
        assert!(reason.contains("is no name of a network device"), "{reason}");
        run(&place, "bridge/pre", &[], &vm(&nic("br0", &format!("<PHYDEV>{name}</PHYDEV>")), ""))
            .status
            .filter(|s| (*s == 0) == name.is_empty())
            .expect("refused unless empty");
        assert!(root(&place).iter().all(|command| !command.contains(" -x") && !command.contains("reboot")));
    }
}

#[test]
fn clean_removes_what_no_guest_uses() {
    let place = place();
    let nics = [
        nic("empty", ""),
        nic("used", ""),
        nic("phys", "<PHYDEV>eth0</PHYDEV>"),
        nic("gone", ""),
        nic("kept", "<CONF>keep_empty_bridge=true</CONF>"),
    ];
    bridge(&place, "empty", &[]);
    bridge(&place, "used", &["one-8-0"]);
    bridge(&place, "phys", &["eth0", "physb"]);
    bridge(&place, "kept", &[]);
    assert_eq!(run(&place, "bridge/clean", &["h1"], &vm(&nics.concat(), "")).good(), "");
    assert_eq!(root(&place), ["ip link delete empty", "ip link delete phys"]);
}

#[test]
fn clean_keeps_all_bridges_when_the_configuration_says_so() {
    let place = place();
    bridge(&place, "empty", &[]);
    place.write("one/etc/vnm/OpenNebulaNetwork.conf", ":keep_empty_bridge: true\n");
    run(&place, "bridge/clean", &["h1"], &vm(&nic("empty", ""), "")).good();
    assert!(root(&place).is_empty());
}

#[test]
fn clean_after_a_detach_looks_at_that_interface_only() {
    let place = place();
    bridge(&place, "a", &[]);
    bridge(&place, "b", &[]);
    let nics = [nic("a", ""), nic("b", "<ATTACH>YES</ATTACH>")].concat();
    run(&place, "bridge/clean", &["h1"], &vm(&nics, "")).good();
    assert_eq!(root(&place), ["ip link delete b"]);
    for other in ["<NIC_ALIAS><ATTACH>YES</ATTACH></NIC_ALIAS>", "<PCI><ATTACH>YES</ATTACH></PCI>"] {
        run(&place, "bridge/clean", &["h1"], &vm(&nics, &format!("<TEMPLATE>{other}</TEMPLATE>"))).good();
        assert!(root(&place).is_empty());
    }
}

#[test]
fn post_lets_trunks_through_the_tap_that_libvirt_made() {
    let place = place();
    place.domain("one-7", 1);
    let domain = "<domain><devices><interface type='bridge'><mac address='02:00:00:00:00:01'/><target dev='vnet3'/></interface></devices></domain>";
    place.write("domains/one-7.xml", domain);
    place.rule("dumpxml", "[[ $2 == -- && $3 == one-7 ]] && cat \"$FAKE/domains/one-7.xml\"");
    let nics = nic("br0", "<PHYDEV>eth0</PHYDEV><VLAN_TAGGED_ID>10,20-22</VLAN_TAGGED_ID>");
    assert_eq!(run(&place, "bridge/post", &["one-7", "h1"], &vm(&nics, "")).good(), "");
    assert_eq!(
        root(&place),
        [
            "bridge vlan add dev vnet3 vid 10",
            "bridge vlan add dev vnet3 vid 20-22",
            "ip link set dev br0 type bridge vlan_filtering 1",
            "bridge vlan add dev eth0 vid 10",
            "bridge vlan add dev eth0 vid 20-22",
        ]
    );
}

#[test]
fn post_without_a_trunk_does_nothing() {
    let place = place();
    for more in [
        "",
        "<PHYDEV>eth0</PHYDEV>",
        "<PHYDEV>eth0</PHYDEV><VLAN_TAGGED_ID>10;reboot</VLAN_TAGGED_ID>",
        "<VLAN_TAGGED_ID>10</VLAN_TAGGED_ID>",
    ] {
        run(&place, "bridge/post", &["one-7", "h1"], &vm(&nic("br0", more), "")).good();
        assert!(root(&place).is_empty() && place.calls().is_empty());
    }
}

#[test]
fn post_fails_when_the_interface_has_no_tap_or_libvirt_does_not_answer() {
    let place = place();
    let nics = nic("br0", "<PHYDEV>eth0</PHYDEV><VLAN_TAGGED_ID>10</VLAN_TAGGED_ID>");
    place.rule("dumpxml", "echo '<domain/>'");
    assert!(run(&place, "bridge/post", &["one-7", "h1"], &vm(&nics, "")).bad().contains("has no device"));
    place.rule("dumpxml", "exit 1");
    assert!(
        run(&place, "bridge/post", &["one-7", "h1"], &vm(&nics, "")).bad().contains("Could not ask libvirt")
    );
    assert!(root(&place).is_empty());
}

#[test]
fn post_sets_virtual_functions() {
    let place = place();
    let function = place.path("sys/bus/pci/devices/0000:01:00.0");
    place.write("sys/bus/pci/devices/0000:01:00.0/net/ens1/address", "");
    std::os::unix::fs::symlink("../0000:01:10.2", function.join("virtfn3")).expect("a link");
    std::os::unix::fs::symlink("../0000:01:10.22", function.join("virtfn4")).expect("a link");
    let pci = |address: &str, more: &str| {
        format!(
            "<TEMPLATE><PCI><VN_MAD>bridge</VN_MAD><SHORT_ADDRESS>{address}</SHORT_ADDRESS><MAC>02:00:00:00:00:09</MAC>{more}</PCI></TEMPLATE>"
        )
    };
    run(&place, "bridge/post", &["one-7", "h1"], &vm("", &pci("01:10.2", ""))).good();
    assert_eq!(root(&place), ["ip link set ens1 vf 3 mac 02:00:00:00:00:09 vlan 0"]);
    let more = "<VLAN_ID>5</VLAN_ID><SPOOFCHK>yes</SPOOFCHK><TRUST>no</TRUST>";
    run(&place, "bridge/post", &["one-7", "h1"], &vm("", &pci("01:10.2", more))).good();
    assert_eq!(root(&place), ["ip link set ens1 vf 3 mac 02:00:00:00:00:09 vlan 5 spoofchk on trust off"]);
    run(&place, "bridge/post", &["one-7", "h1"], &vm("", &pci("01:00.0", ""))).good();
    assert!(root(&place).is_empty());
    // With representors of the functions only the address is set, and their links come up.
    place.write("sys/class/net/ens1/phys_switch_id", "aa").write("sys/class/net/ens1/phys_port_name", "p0");
    place
        .write("sys/class/net/rep3/phys_switch_id", "aa")
        .write("sys/class/net/rep3/phys_port_name", "pf0vf3");
    run(&place, "bridge/post", &["one-7", "h1"], &vm("", &pci("01:10.2", more))).good();
    assert_eq!(
        root(&place),
        [
            "ip link set ens1 up",
            "ip link set rep3 up",
            "ethtool -K rep3 hw-tc-offload on",
            "ip link set ens1 vf 3 mac 02:00:00:00:00:09"
        ]
    );
}

#[test]
fn update_nic_follows_a_new_device_and_new_trunks() {
    let place = place();
    bridge(&place, "br0", &["eth0", "one-7-0"]);
    let nics =
        nic("br0", "<NETWORK_ID>3</NETWORK_ID><PHYDEV>eth1</PHYDEV><VLAN_TAGGED_ID>7</VLAN_TAGGED_ID>");
    let changes = |text: &str| vm(&nics, &format!("<TEMPLATE><VNET_UPDATE>{text}</VNET_UPDATE></TEMPLATE>"));
    run(&place, "bridge/update_nic", &["one-7", "3"], &changes("<PHYDEV>eth0</PHYDEV>")).good();
    assert_eq!(root(&place), ["ip link set nomaster eth0", "ip link set eth1 master br0"]);
    std::fs::remove_file(place.path("sys/class/net/br0/brif/eth1")).expect("removed");
    run(&place, "bridge/update_nic", &["one-7", "3"], &changes("<VLAN_TAGGED_ID>5</VLAN_TAGGED_ID>")).good();
    assert_eq!(
        root(&place),
        [
            "bridge vlan del dev eth0 vid 2-4094",
            "bridge vlan add dev eth0 vid 7",
            "bridge vlan del dev one-7-0 vid 2-4094",
            "bridge vlan add dev one-7-0 vid 7"
        ]
    );
    run(&place, "bridge/update_nic", &["one-7", "4"], &changes("<PHYDEV>eth0</PHYDEV>")).good();
    run(&place, "bridge/update_nic", &["one-7", "3"], &changes("<MTU>5</MTU>")).good();
    assert!(root(&place).is_empty());
    run(&place, "bridge/update_nic", &["one-7"], &changes("<MTU>5</MTU>")).bad();
    run(&place, "bridge/update_nic", &["one-7", "3"], &vm(&nics, "")).bad();
}

#[test]
fn stdin_that_is_no_vm_is_refused() {
    for (stdin, part) in [("", "no XML"), ("###", "no XML"), ("PGE+", "no XML"), ("PGEvPgo=", "VM_MAD")] {
        for script in ["pre", "post", "clean", "update_nic"] {
            let place = place();
            let reason = run(&place, &format!("bridge/{script}"), &["one-7", "3"], stdin).bad();
            assert!(reason.contains(part), "{script}: {reason}");
        }
    }
}

#[test]
fn base64_may_come_in_lines() {
    let place = place();
    let text = vm(&nic("br0", ""), "");
    let wrapped: Vec<_> =
        text.trim().as_bytes().chunks(60).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    run(&place, "bridge/pre", &[], &(wrapped.join("\n") + "\n")).good();
    assert_eq!(root(&place).len(), 2);
}

#[test]
fn the_lock_is_waited_for_within_its_limit() {
    let mut place = place();
    place.env("VNM_LOCK_TIMEOUT", "1");
    let mut holder = std::process::Command::new("flock")
        .arg("-F")
        .arg(place.path("lock"))
        .args(["sleep", "30"])
        .spawn()
        .expect("flock");
    crate::place::await_that("the lock", || place.path("lock").exists());
    std::thread::sleep(std::time::Duration::from_millis(200));
    let reason = run(&place, "bridge/pre", &[], &vm(&nic("br0", ""), "")).bad();
    holder.kill().expect("killed");
    holder.wait().expect("an end");
    assert!(reason.contains("Another network action holds"), "{reason}");
}

#[test]
fn hooks_run_in_order_with_arguments_and_stdin_and_stray_files_do_not_hide_them() {
    for (driver, script) in [
        ("bridge", "pre"),
        ("bridge", "post"),
        ("bridge", "clean"),
        ("dummy", "pre"),
        ("dummy", "post"),
        ("dummy", "clean"),
    ] {
        let place = place();
        let folder = format!("one/vnm/{driver}/{script}.d");
        place.write(&format!("{folder}/00-notes"), "not executable");
        for name in ["20-b", "10-a"] {
            place.program(
                &format!("{folder}/{name}"),
                &format!("{{ echo {name} \"$@\"; cat; }} >>\"$FAKE/hooks\""),
            );
        }
        let stdin = vm("", "");
        run(&place, &format!("{driver}/{script}"), &["one 7", "h1"], &stdin).good();
        assert_eq!(
            place.read("hooks"),
            format!("10-a one 7 h1\n{stdin}20-b one 7 h1\n{stdin}"),
            "{driver} {script}"
        );
        place.program(&format!("{folder}/15-bad"), "exit 42");
        let reason = run(&place, &format!("{driver}/{script}"), &[], &stdin).bad();
        assert!(reason.contains("15-bad"), "{reason}");
    }
}

#[test]
fn what_has_nothing_to_do_reads_its_stdin_and_is_fine() {
    let place = place();
    let much = "QUFB\n".repeat(100_000);
    for script in ["dummy/update_nic", "dummy/update_sg", "bridge/update_sg", "dummy/pre"] {
        assert_eq!(run(&place, script, &["one-7"], &much).good(), "");
    }
}
