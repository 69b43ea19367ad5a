//! Host devices that come to a running VM and leave it: PCI, virtual functions of SR-IOV, mediated ones. With a
//! stand-in for libvirt that shows them as libvirt 9.0 does.

use std::os::unix::fs::symlink;

use crate::place::{Ended, Place, UUID};

const MAC: &str = "02:00:0a:00:00:07";
const MDEV: &str = "7cef18eb-3941-4115-8b92-629a723b5abe";
/// `DOMAIN:BUS:SLOT.FUNCTION` 0000:3b:10.2, as oned writes it.
const ADDRESS: &str = "<DOMAIN>0000</DOMAIN><BUS>3b</BUS><SLOT>10</SLOT><FUNCTION>2</FUNCTION><SHORT_ADDRESS>3b:10.2</SHORT_ADDRESS>";
const GUEST: &str =
    "<VM_DOMAIN>0x0000</VM_DOMAIN><VM_BUS>0x01</VM_BUS><VM_SLOT>0x05</VM_SLOT><VM_FUNCTION>0</VM_FUNCTION>";
const SOURCE: &str =
    "<source><address type='pci' domain='0x0000' bus='0x3b' slot='0x10' function='0x2'/></source>";

/// A place whose domain has `device`, as libvirt shows it, while the file `plugged` is there. The physical function
/// behind 3b:10.2 is known to the kernel when `virtual_function`.
fn place(device: &str, virtual_function: bool) -> Place {
    let place = Place::new();
    place.domain("one-7", 1);
    let domain = |devices: &str| {
        format!(
            "<domain><name>one-7</name><uuid>{UUID}</uuid><devices><controller type='pci' index='1'><alias name='pci.1'/></controller>\
             <interface type='bridge'><mac address='02:00:0a:00:00:01'/></interface>{devices}</devices></domain>"
        )
    };
    place.write("with.xml", &domain(device)).write("without.xml", &domain(""));
    place.rule("dumpxml", "cat \"$FAKE/with$([[ -e $FAKE/plugged ]] || echo out).xml\"");
    place.rule(
        "attach-device",
        "cat >\"$FAKE/attached\"; [[ ! -s $FAKE/attached ]] || touch \"$FAKE/plugged\"",
    );
    place.rule("detach-device", "cat >\"$FAKE/detached\"; rm -f \"$FAKE/plugged\"");
    let devices = place.path("sys/bus/pci/devices");
    for name in ["0000:3b:10.2", "0000:3b:00.0"] {
        std::fs::create_dir_all(devices.join(name)).expect("a folder");
    }
    if virtual_function {
        symlink("../0000:3b:00.0", devices.join("0000:3b:10.2/physfn")).expect("a link");
    }
    with_sysfs(&place);
    place
}

/// The helper looks at this place's devices in place of the machine's own.
fn with_sysfs(place: &Place) {
    let program = format!("one/kvmad/{}/kvmad-node", std::env::consts::ARCH);
    let real = std::fs::read_link(place.path(&program)).expect("a link");
    std::fs::remove_file(place.path(&program)).expect("removed");
    let (real, sys) = (real.display(), place.text("sys"));
    place.program(
        &program,
        &format!("if [[ $2 == *tach-nic ]]; then exec '{real}' \"${{@:1:2}}\" --sysfs '{sys}' \"${{@:3}}\"; fi\nexec '{real}' \"$@\""),
    );
}

fn action(pci: &str) -> String {
    format!(
        "<VMM_DRIVER_ACTION_DATA><VM><ID>7</ID><TEMPLATE><PCI><ATTACH>YES</ATTACH><MAC>{MAC}</MAC>{pci}</PCI></TEMPLATE></VM></VMM_DRIVER_ACTION_DATA>"
    )
}

fn attach(place: &Place, pci: &str) -> Ended {
    place.run("vmm/kvm/attach_nic", &["one-7", MAC, "", "-", "", "", "7", "h1"], &action(pci))
}

fn detach(place: &Place, pci: &str) -> Ended {
    place.run("vmm/kvm/detach_nic", &["one-7", MAC, "7", "h1"], &action(pci))
}

#[test]
fn a_pci_device_comes_with_its_address_and_goes_when_the_guest_has_let_go() {
    let hostdev = format!("<hostdev mode='subsystem' type='pci' managed='yes'>{SOURCE}</hostdev>");
    let place = place(&hostdev, false);
    attach(&place, &[ADDRESS, GUEST].concat()).good();
    let device = place.read("attached");
    assert!(device.starts_with("<hostdev mode='subsystem' type='pci' managed='yes'>"), "{device}");
    for part in [
        "<address domain='0x0000' bus='0x3b' slot='0x10' function='0x2'/>",
        "<address type='pci' domain='0x0000' bus='0x01' slot='0x05' function='0'/>",
    ] {
        assert!(device.contains(part), "{part}: {device}");
    }
    place.write("attached", "");
    attach(&place, ADDRESS).good();
    assert_eq!(place.read("attached"), "", "it is there already");

    detach(&place, ADDRESS).good();
    let device = place.read("detached");
    assert!(device.starts_with("<hostdev") && device.contains("bus='0x3b' slot='0x10'"), "{device}");
    detach(&place, ADDRESS).good();
    assert_eq!(place.count("detach-device"), 1, "it is gone already");
}

#[test]
fn a_virtual_function_comes_as_an_interface_with_its_mac_and_is_really_detached() {
    let shown = format!(
        "<interface type='hostdev' managed='yes'><mac address='{MAC}'/>{SOURCE}<alias name='hostdev0'/></interface>"
    );
    let place = place(&shown, true);
    attach(&place, ADDRESS).good();
    let device = place.read("attached");
    assert!(device.starts_with("<interface type='hostdev' managed='yes'>"), "{device}");
    assert!(
        device.contains(&format!("<mac address='{MAC}'/>")) && device.contains("<address type='pci'"),
        "{device}"
    );
    attach(&place, ADDRESS).good();

    // In the domain it is an interface; asked for is a host device.
    detach(&place, ADDRESS).good();
    assert_eq!(place.count("detach-device"), 1);
    assert!(place.read("detached").starts_with("<hostdev"), "{}", place.read("detached"));
}

#[test]
fn a_virtual_function_that_the_guest_keeps_is_a_failure() {
    let shown = format!("<interface type='hostdev'><mac address='{MAC}'/>{SOURCE}</interface>");
    let place = place(&shown, true);
    place.write("plugged", "").rule("detach-device", "cat >/dev/null").kvmrc("DETACH_TIMEOUT=2");
    let reason = detach(&place, ADDRESS).bad();
    assert!(reason.contains("the guest has not let go"), "{reason}");
    assert_eq!(place.count("detach-device"), 2);
}

#[test]
fn a_mediated_device_goes_by_its_uuid() {
    let shown = format!(
        "<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{MDEV}'/></source></hostdev>"
    );
    let place = place(&shown, true);
    let pci = format!("{ADDRESS}<UUID>{MDEV}</UUID>");
    attach(&place, &pci).good();
    detach(&place, &pci).good();
    for file in ["attached", "detached"] {
        let device = place.read(file);
        assert!(device.contains("type='mdev'") && device.contains(&format!("uuid='{MDEV}'")), "{device}");
    }
}

#[test]
fn a_mac_that_another_device_has_is_a_failure() {
    let place = place(&format!("<interface type='bridge'><mac address='{MAC}'/></interface>"), true);
    place.write("plugged", "");
    let reason = attach(&place, ADDRESS).bad();
    assert!(reason.contains("another device has its place"), "{reason}");
    assert_eq!(place.read("attached"), "");
}

#[test]
fn an_attach_that_libvirt_refuses_or_that_has_no_address_says_so() {
    let place = place("", false);
    place.rule("attach-device", "echo 'Gerät wird benutzt' >&2; exit 1");
    let reason = attach(&place, ADDRESS).bad();
    assert!(
        reason
            .contains(&format!("Could not attach NIC {MAC} to domain one-7 on host h1: Gerät wird benutzt")),
        "{reason}"
    );
    let reason = attach(&place, "<BUS>3b</BUS>").bad();
    assert!(reason.contains("PCI"), "{reason}");
}
