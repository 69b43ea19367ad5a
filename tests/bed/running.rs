//! A VM whose domain the driver makes itself (`--generate-domain`), and what happens to VMs while they run, all through
//! the driver: the guest says what it sees. VM ids 6100 to 6199.

use std::fs;
use std::process::Command;

use crate::harness::bed;
use crate::harness::conversation::Line;
use crate::harness::document::{Document, cdata};
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::vm::{Vm, as_oned_writes};
use crate::life::{ACTION, BOOT, deploy};

/// It also travels to the hosts with the remotes, for devices that are attached.
const CONF: &str = "etc/vmm_exec/vmm_exec_kvm.conf";

/// Defaults of a site whose guests write their console to the bed's log.
fn defaults(id: u32) -> String {
    format!(
        "# the site's defaults\nEMULATOR = \"/usr/bin/qemu-system-x86_64\"\nOS = [ ARCH = \"x86_64\", MACHINE = \"pc\", SD_DISK_BUS = \"scsi\" ]\n\
         FEATURES = [ ACPI = \"yes\" ]\nDISK = [ DRIVER = \"qcow2\", CACHE = \"none\" ]\nNIC = [ MODEL = \"virtio\" ]\n\
         RAW = \"<devices><serial type='pty'><log file='/var/log/libvirt/qemu/one-{id}-serial.log' append='on'/><target port='0'/></serial>\
         <console type='pty'><target type='serial' port='0'/></console></devices>\"\n"
    )
}

/// Without what each deployment makes anew: the uuid and its time.
fn comparable(xml: &str) -> String {
    let without = |text: &str, name: &str| {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        match (text.find(&open), text.find(&close)) {
            (Some(from), Some(to)) => format!("{}{}", &text[..from], &text[to + close.len()..]),
            _ => text.to_owned(),
        }
    };
    without(&without(xml, "uuid"), "one:deployment_time").trim_end().to_owned()
}

pub struct Stand {
    pub vm: Vm,
    pub driver: Driver,
    pub front: FrontEnd,
    _use: bed::Use,
}

impl Stand {
    /// A guest that is up, in a domain that the driver made.
    fn up(id: u32) -> Self {
        Self::prepared(id, |_, _| ()).booted()
    }

    /// The same, not deployed yet; `prepare` puts into the front-end and the VM what they need besides.
    pub fn prepared(id: u32, prepare: impl FnOnce(&FrontEnd, &mut Vm)) -> Self {
        let using = bed::shared();
        let front = FrontEnd::staged();
        front.put("var/remotes/tm/shared/mkimage", 0o755, "#!/bin/sh\nexec truncate -s 1M \"${3#*:}\"\n");
        front.put("var/remotes/tm/shared/delete", 0o755, "#!/bin/sh\nexec rm -f \"${1#*:}\"\n");
        front.put("var/remotes/tm/shared/resize", 0o755, "#!/bin/sh\nexit 0\n");
        front.put(CONF, 0o644, &defaults(id));
        let mut vm = Vm::new(&front, id, "node1");
        // With the option nobody asks for oned's file.
        fs::remove_file(vm.deploy().local_file).expect("the deployment file of oned");
        prepare(&front, &mut vm);
        let conf = front.folder().join(CONF);
        let driver =
            Driver::ready(&front, &format!("-t 15 -r 0 kvm -p --generate-domain {}", conf.display()));
        Self { vm, driver, front, _use: using }
    }

    fn booted(mut self) -> Self {
        deploy(&mut self.driver, &mut self.vm);
        self.vm.wait_said("READY at", 1, BOOT);
        self
    }

    /// The VM's document with `more` in its template.
    pub fn with(&self, more: &str) -> Document {
        let mut document = self.vm.document();
        document.template.push_str(more);
        document
    }

    pub fn ask(&mut self, verb: &str, document: &Document) -> Line {
        self.driver.ask(verb, self.vm.id, &document.payload(), ACTION)
    }

    #[track_caller]
    pub fn good(&mut self, verb: &str, document: &Document) -> String {
        let reply = self.ask(verb, document);
        assert!(reply.succeeded(), "{}\n{}", reply.raw, self.driver.conversation.text());
        reply.info
    }

    #[track_caller]
    pub fn bad(&mut self, verb: &str, document: &Document) -> String {
        let reply = self.ask(verb, document);
        assert!(!reply.succeeded(), "{}", reply.raw);
        assert_eq!(self.vm.state().as_deref(), Some("running"), "{}", reply.raw);
        reply.info
    }

    /// ATTACHDISK's or DETACHDISK's document for disk.1 on `target`.
    fn disk(&self, target: &str, command: &str) -> Document {
        let path = as_oned_writes(&self.vm.folder().join("disk.1"));
        let fields = [
            ("ATTACH", "YES"),
            ("DISK_ID", "1"),
            ("TARGET", target),
            ("TYPE", "FILE"),
            ("DRIVER", "raw"),
            ("TM_MAD", "shared"),
        ];
        let fields: String = fields.iter().map(|(name, value)| cdata(name, value)).collect();
        Document {
            tm_command: command.replace("PATH", &format!("node1:{path}")),
            tm_rollback: format!("DELETE shared node1:{path} {} 0\n", self.vm.id),
            disk_path: path,
            ..self.with(&format!("<DISK>{fields}</DISK>"))
        }
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn deploy_makes_the_domain_that_domain_xml_prints_and_its_guest_boots() {
    let mut stand = Stand::up(6100);
    let action = stand.front.folder().join("action.xml");
    fs::write(&action, stand.vm.deploy().xml()).expect("the action");
    let printed = Command::new(env!("CARGO_BIN_EXE_kvmad"))
        .args(["domain-xml", "--validate", "--defaults"])
        .arg(stand.front.folder().join(CONF))
        .arg(&action)
        .output()
        .expect("kvmad");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let deployed = fs::read_to_string(stand.vm.folder().join("deployment.0")).expect("what was deployed");
    let printed = String::from_utf8_lossy(&printed.stdout);
    assert_eq!(comparable(&deployed), comparable(&printed));
    let running = bed::virsh("node1", &["dumpxml", "one-6100"]).expect("the domain");
    for part in [
        "machine='pc",
        "cache='none'",
        "<one:name>bed-6100</one:name>",
        "type='virtio-scsi'",
        "one-6100-serial.log",
    ] {
        let part = part.replace("type='virtio-scsi'", "model='virtio-scsi'");
        assert!(running.contains(&part), "{part}: {running}");
    }
    let document = stand.vm.document();
    stand.good("SHUTDOWN", &document);

    // A change of the file holds for the next VM; a broken one is a failure that names it.
    fs::remove_file(stand.front.folder().join(CONF)).expect("removed");
    let document = stand.vm.deploy();
    let reply = stand.ask("DEPLOY", &document);
    assert!(!reply.succeeded() && reply.info.contains("vmm_exec_kvm.conf"), "{}", reply.raw);
    assert_eq!(stand.vm.state(), None);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_running_vm_through_every_action_of_the_driver() {
    let mut stand = Stand::up(6101);
    for target in ["vdb", "sda"] {
        let attach = stand.disk(target, "MKIMAGE shared 1 raw PATH 6101 0\n");
        stand.good("ATTACHDISK", &attach);
        stand.vm.wait_said(&format!("HOTPLUG add disk {target} sectors=2048"), 1, BOOT);
        let detach = stand.disk(target, "DELETE shared PATH 6101 0\n");
        stand.good("DETACHDISK", &detach);
        stand.vm.wait_said(&format!("HOTPLUG remove disk {target}"), 1, BOOT);
        assert!(!stand.vm.folder().join("disk.1").exists(), "the transfer manager took it away");
    }
    let refused = stand.disk("hdb", "MKIMAGE shared 1 raw PATH 6101 0\n");
    let reason = stand.bad("ATTACHDISK", &refused);
    assert!(reason.contains("the target hdb means the bus ide"), "{reason}");
    assert!(!stand.vm.folder().join("disk.1").exists(), "what was brought is taken away again");

    let mac = "02:00:0a:4d:61:01";
    let nic = |bridge: &str| {
        let fields = [
            ("ATTACH", "YES"),
            ("NIC_ID", "1"),
            ("MAC", mac),
            ("BRIDGE", bridge),
            ("BRIDGE_TYPE", "linux"),
            ("VN_MAD", "bridge"),
            ("TARGET", "one-6101-1"),
            ("NETWORK_ID", "0"),
        ];
        let fields: String = fields.iter().map(|(name, value)| cdata(name, value)).collect();
        format!("<NIC>{fields}</NIC>")
    };
    let bridge = bed::host_path("node1", "/sys/class/net/bedbr6101");
    let document = stand.with(&nic("bedbr6101"));
    stand.good("ATTACHNIC", &document);
    stand.vm.wait_said(&format!("mac={mac}"), 1, BOOT);
    assert!(bridge.exists());
    stand.good("DETACHNIC", &document);
    stand.vm.wait_said("HOTPLUG remove nic", 1, BOOT);
    assert!(!bridge.exists(), "the bridge goes with the last guest");
    let document = stand.with(&nic("a-name-that-is-too-long"));
    stand.bad("ATTACHNIC", &document);

    let mut document = stand.with("<RESIZE><VCPU>1</VCPU><MEMORY>128</MEMORY></RESIZE>");
    document.template = document.template.replace("[128]", "[112]");
    stand.good("RESIZE", &document);
    document.template = document.template.replace("[112]", "[4096]");
    stand.bad("RESIZE", &document);

    let grown = [("RESIZE", "YES"), ("DISK_ID", "0"), ("SIZE", "96"), ("TARGET", "vda")];
    let grown: String = grown.iter().map(|(name, value)| cdata(name, value)).collect();
    let mut document = stand.vm.document();
    document.template = document.template.replacen("<DISK>", &format!("<DISK>{grown}"), 1);
    document.tm_command =
        format!("RESIZE shared node1:{} 96 6101 0\n", as_oned_writes(&stand.vm.folder().join("disk.0")));
    stand.good("RESIZEDISK", &document);
    stand.vm.wait_said("HOTPLUG change disk vda sectors=196608", 1, BOOT);

    let snapshot =
        |more: &str| format!("<SNAPSHOT><ACTIVE>YES</ACTIVE><SNAPSHOT_ID>0</SNAPSHOT_ID>{more}</SNAPSHOT>");
    let document = stand.with(&snapshot(""));
    assert_eq!(stand.good("SNAPSHOTCREATE", &document), "snap-0");
    stand.bad("SNAPSHOTCREATE", &document);
    let document = stand.with(&snapshot("<HYPERVISOR_ID>snap-0</HYPERVISOR_ID>"));
    stand.good("SNAPSHOTREVERT", &document);
    assert!(stand.vm.ticks(BOOT), "the guest goes on");
    stand.good("SNAPSHOTDELETE", &document);
    stand.bad("SNAPSHOTREVERT", &document);

    let document = stand.with("<QEMU_GA_EXEC><COMMAND>ls</COMMAND><STDIN></STDIN></QEMU_GA_EXEC>");
    let reason = stand.bad("EXEC", &document);
    assert!(reason.contains("agent"), "{reason}");
    let document = stand.vm.document();
    stand.good("UPDATECONF", &document);
    stand.good("CANCEL", &document);
    assert_eq!(stand.vm.state(), None);
}
