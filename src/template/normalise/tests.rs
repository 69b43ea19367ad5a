use super::*;
use crate::template::text::{Rules, parse};
use crate::template::xml::Document;

fn template(text: &str) -> Template {
    let parsed = parse(text, Level::Vm, "vm.tmpl", Rules::TEMPLATE);
    assert_eq!(parsed.error, None, "{text}");
    parsed.template
}

fn around() -> Surroundings {
    Surroundings { vm_id: 7, machine: Some("q35".to_owned()), random: [1; 16], ..Surroundings::default() }
}

fn good(text: &str) -> Normalised {
    normalise(&template(&format!("CPU=1\nMEMORY=128\n{text}")), &around()).expect(text)
}

fn refused(text: &str) -> String {
    normalise(&template(text), &around()).expect_err(text).to_string()
}

fn targets(text: &str) -> Vec<String> {
    let vm = good(text).vm.template;
    let of = |name| vm.vectors(name).map(|v| v.get("TARGET").unwrap_or("-").to_owned()).collect::<Vec<_>>();
    [of("DISK"), of("CONTEXT")].concat()
}

#[test]
fn what_oned_does_not_know_stays_with_the_user() {
    let vm = good(
        "NAME=web LOGO=x HYPERVISOR=kvm SCHED_RANK=1 VMID=99 HYPERV_TIMERS=\"<t/>\" MEMORY_MAX=no GRAPHICS=[TYPE=vnc] \
         GRAPHICS=[TYPE=spice]",
    );
    let names: Vec<_> = vm.user.attributes().iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["LOGO", "HYPERVISOR", "SCHED_RANK", "HYPERV_TIMERS", "MEMORY_MAX", "GRAPHICS"]);
    assert_eq!((vm.vm.name.as_str(), vm.vm.id), ("web", 7));
    assert_eq!(vm.vm.template.single("VMID").map(|v| v.value), Some("7"));
    assert_eq!(vm.vm.template.vector("GRAPHICS").and_then(|g| g.get("TYPE")), Some("vnc"));
}

#[test]
fn a_vm_without_a_number_it_needs_is_refused_with_the_place() {
    assert_eq!(refused("CPU=1"), "MEMORY is missing");
    assert_eq!(refused("MEMORY=1"), "CPU is missing");
    for (text, part) in [
        ("CPU=1\nMEMORY=1G", "VM vm.tmpl:2: MEMORY is \"1G\""),
        ("CPU=0 MEMORY=1", "CPU is \"0\""),
        ("CPU=nan MEMORY=1", "CPU is \"nan\""),
        ("CPU=1 MEMORY=1 VCPU=x", "VCPU is \"x\""),
        ("CPU=1 MEMORY=1 MEMORY_RESIZE_MODE=fast", "BALLOONING"),
        ("CPU=1 MEMORY=1 OS=[ARCH=a] OS=[ARCH=b]", "one OS"),
        ("CPU=1 MEMORY=1 DISK=[TYPE=block,SIZE=1]", "\"block\" is unknown"),
        ("CPU=1 MEMORY=1 DISK=[SIZE=1]", "needs IMAGE"),
        ("CPU=1 MEMORY=1 DISK=[TYPE=fs]", "DISK/SIZE"),
        ("CPU=1 MEMORY=1 DISK=[TYPE=fs,SIZE=-1]", "DISK/SIZE"),
        ("CPU=1 MEMORY=1 OS=[BOOT=hd]", "\"hd\""),
        ("CPU=1 MEMORY=1 OS=[BOOT=disk0]", "\"disk0\""),
        ("CPU=1 MEMORY=1 DISK=[IMAGE=a,TARGET=vda] DISK=[IMAGE=b,TARGET=vda]", "\"vda\" is given twice"),
        ("CPU=1 MEMORY=1 NIC=[NETWORK=a,IP=\"10.0.0.1\",MAC=\"02:00\"]", "one of IP"),
    ] {
        let message = refused(text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn targets_go_to_the_first_image_then_cds_then_the_context_then_the_rest() {
    for (text, expected) in [
        ("DISK=[TYPE=fs,SIZE=1] DISK=[IMAGE=o,DEV_PREFIX=vd] CONTEXT=[A=b]", "sdb vda sda"),
        ("DISK=[IMAGE=o] DISK=[IMAGE=c,TYPE=CDROM] CONTEXT=[A=b]", "sda sdb sdc"),
        ("OS=[MACHINE=pc] DISK=[IMAGE=o] DISK=[IMAGE=c,TYPE=CDROM] CONTEXT=[A=b]", "sda hda hdb"),
        ("DISK=[IMAGE=o,TARGET=sda] DISK=[IMAGE=d] CONTEXT=[TARGET=sdc]", "sda sdb sdc"),
        ("DISK=[IMAGE=f,TYPE=FILESYSTEM,MOUNT_TAG=t] DISK=[IMAGE=o]", "- sda"),
    ] {
        assert_eq!(targets(text).join(" "), expected, "{text}");
    }
    let many = "OS=[MACHINE=pc]".to_owned() + &"DISK=[IMAGE=a,DEV_PREFIX=hd] ".repeat(5);
    assert!(refused(&format!("CPU=1 MEMORY=1 {many}")).contains("no target with the prefix hd"));
    assert_eq!(targets(&"DISK=[IMAGE=a,DEV_PREFIX=vd] ".repeat(28))[27], "vdab");
}

#[test]
fn boot_becomes_order_and_nothing_else_does() {
    let vm =
        good("OS=[BOOT=\"NIC0,disk1\"] DISK=[IMAGE=a,ORDER=5] DISK=[IMAGE=b] NIC=[NETWORK=n,ORDER=9]").vm;
    let orders = |name| vm.template.vectors(name).map(|v| v.get("ORDER")).collect::<Vec<_>>();
    assert_eq!(orders("DISK"), [None, Some("2")]);
    assert_eq!(orders("NIC"), [Some("1")]);
}

#[test]
fn interfaces_are_numbered_and_named_and_their_mac_follows_their_address() {
    let vm = good(
        "NIC=[NETWORK=n,IP=\"10.0.0.9\"] NIC=[A=b] NIC_ALIAS=[NETWORK=n,PARENT=NIC0] NIC_DEFAULT=[MODEL=e1000]",
    );
    let nics: Vec<_> = vm.vm.template.vectors("NIC").collect();
    assert_eq!(nics[0].get("MAC"), Some("02:00:0a:00:00:09"));
    assert_eq!((nics[0].get("TARGET"), nics[0].get("NAME")), (Some("one-7-0"), Some("NIC0")));
    assert_eq!((nics[1].get("TARGET"), nics[1].get("MAC"), nics[1].get("NIC_ID")), (None, None, Some("1")));
    assert_eq!(nics[0].get("MODEL"), Some("e1000"));
    let alias = vm.vm.template.vector("NIC_ALIAS").expect("an alias");
    assert_eq!((alias.get("NIC_ID"), alias.get("NAME")), (Some("2"), Some("NIC0_ALIAS2")));
    assert!(vm.notes.iter().any(|note| note.contains("BRIDGE=onebr0")), "{:?}", vm.notes);
}

#[test]
fn the_document_says_the_same_when_read_back() {
    let vm = good(
        "NAME=\"a b\" USER=\"x ]]\n> y\" E=\"\" OS=[KERNEL=\"\"] CONTEXT=[NETWORK=YES,G=\"a 'b' <c> & \\\"d\\\"\"] \
         DISK=[TYPE=fs,SIZE=1] NIC=[NETWORK=n] RAW=[TYPE=kvm,DATA=\"<a/>\"]",
    );
    for text in [vm.to_xml(), vm.to_action_xml()] {
        let document = Document::parse(text.as_str()).expect(&text);
        let read = VmDocument::read(&document, None).expect(&text);
        let strip = |template: &Template| {
            let attributes = template.attributes().iter();
            attributes.map(|a| (a.name.clone(), format!("{:?}", plain(&a.value)))).collect::<Vec<_>>()
        };
        assert_eq!(strip(&read.template), strip(&vm.vm.template));
        assert_eq!((read.id, read.name, read.ds_id), (7, "a b".to_owned(), Some(0)));
    }
}

fn plain(value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Single(text) => vec![(String::new(), text.clone())],
        Value::Vector(members) => members.iter().map(|m| (m.name.clone(), m.value.clone())).collect(),
    }
}

#[test]
fn the_same_random_bytes_give_the_same_vm() {
    let text = "NIC=[NETWORK=a] NIC=[NETWORK=b]";
    assert_eq!(good(text), good(text));
    let vm = good(text).vm.template;
    let uuid = vm.vector("OS").and_then(|os| os.get("UUID")).expect("a UUID").to_owned();
    assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"));
    let macs: Vec<_> = vm.vectors("NIC").map(|nic| nic.get("MAC").map(str::to_owned)).collect();
    assert_ne!(macs[0], macs[1]);
}
