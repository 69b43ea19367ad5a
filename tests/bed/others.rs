//! The actions that other drivers carry out (BACKUP, BACKUPCANCEL, UPDATESG, UPDATENIC, DISKSNAPSHOTCREATE, UPDATECONF),
//! each once for real and each failure of it. The scripts that stay OpenNebula's have stand-ins. VM ids 6110 to 6119.

use std::fs;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::harness::document::{Document, cdata};
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::others::{Call, Others};
use crate::harness::vm::{Vm, as_oned_writes};
use crate::harness::{bed, processes, wait_for};
use crate::life::{ACTION, BOOT, deploy};
use crate::running::Stand;

const BACKUP: [&str; 6] = [
    "tm/others/prebackup_live",
    "tm/others/prebackup",
    "tm/others/postbackup_live",
    "tm/others/postbackup",
    "datastore/others/backup",
    "datastore/others/backup_cancel",
];

fn names(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| call.name.as_str()).collect()
}

/// A running VM without a guest whose disks are backed up by stand-ins.
struct BackedUp {
    vm: Vm,
    driver: Driver,
    others: Others,
    front: FrontEnd,
    _use: bed::Use,
}

impl BackedUp {
    fn new(id: u32) -> Self {
        let using = bed::shared();
        let front = FrontEnd::staged();
        Others::put(&front, &BACKUP);
        let others = Others::on_front_end(&front);
        others.acts("others-backup", "printf 'restic: snapshot saved\\nabcd1234 1024 raw\\n'");
        let mut vm = Vm::new(&front, id, "node1").without_guest();
        let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
        deploy(&mut driver, &mut vm);
        Self { vm, driver, others, front, _use: using }
    }

    /// What follows verb and driver in the command of BACKUP.
    fn words(&self) -> Vec<String> {
        let folder = as_oned_writes(&self.vm.folder());
        [format!("node1:{folder}"), "0".to_owned(), self.vm.deploy_id.clone()]
            .into_iter()
            .chain(["-".to_owned(), self.vm.id.to_string(), "0".to_owned()])
            .collect()
    }

    fn backup(&self, live: bool) -> Document {
        Document {
            tm_command: format!("BACKUP others {}\n", self.words().join(" ")),
            backup_driver: "others".to_owned(),
            live_backup: live,
            ..self.vm.document()
        }
    }

    fn cancel(&self) -> Document {
        let words = self.words();
        Document {
            tm_command: format!("BACKUPCANCEL others {} {}\n", words[0], words[2]),
            ..self.backup(true)
        }
    }

    fn ask(&mut self, document: &Document) -> (bool, String) {
        let reply = self.driver.ask("BACKUP", self.vm.id, &document.payload(), ACTION);
        assert_eq!(self.vm.state().as_deref(), Some("running"), "{}", reply.raw);
        (reply.succeeded(), reply.info)
    }

    /// Processes on the front-end that belong to a backup of this VM, ours not among them.
    fn at_work(&self) -> Vec<processes::Process> {
        let found = processes::traces(bed::FRONT_END, &format!("one-bed-sleep-{}", self.vm.id));
        found
            .into_iter()
            .filter(|process| process.arguments.iter().any(|word| word.contains("one-bed-sleep")))
            .collect()
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_backup_calls_the_scripts_as_opennebulas_driver_does_and_each_failure_has_its_end() {
    let mut stand = BackedUp::new(6110);
    for (live, ending) in [(true, "_live"), (false, "")] {
        let document = stand.backup(live);
        assert_eq!(stand.ask(&document), (true, "abcd1234 1024 raw".to_owned()));
        let calls = stand.others.calls();
        let (before, after) = (format!("others-prebackup{ending}"), format!("others-postbackup{ending}"));
        assert_eq!(names(&calls), [before.as_str(), "others-backup", after.as_str()]);
        assert!(calls.iter().all(|call| call.args == stand.words()), "{calls:?}");
        let (vm, datastore) = (document.vm_xml(), document.datastore_xml());
        assert_eq!((&calls[0].stdin, &calls[2].stdin), (&vm, &vm));
        assert_eq!(calls[1].stdin, format!("<DS_DRIVER_ACTION_DATA>{datastore}{vm}</DS_DRIVER_ACTION_DATA>"));
    }

    let document = stand.backup(true);
    stand.others.acts("others-postbackup_live", "echo 'can not remove the layer' >&2; exit 1");
    assert_eq!(stand.ask(&document), (true, "abcd1234 1024 raw".to_owned()), "the backup is there");
    stand.driver.conversation.log(6110, "can not remove the layer", ACTION);
    stand.others.calls();

    stand.others.acts("others-backup", "echo 'repository is locked' >&2; exit 3");
    let (good, reason) = stand.ask(&document);
    assert!(!good && reason.starts_with("repository is locked"), "{reason}");
    assert!(reason.contains("not undone: tm_postbackup_live"), "{reason}");
    let calls = stand.others.calls();
    assert_eq!(names(&calls), ["others-prebackup_live", "others-backup", "others-postbackup_live"]);

    stand.others.acts("others-postbackup_live", "");
    stand.others.acts("others-prebackup_live", "echo 'no space for the layer' >&2; exit 1");
    let (good, reason) = stand.ask(&document);
    assert!(!good && reason.starts_with("no space for the layer"), "{reason}");
    assert_eq!(names(&stand.others.calls()), ["others-prebackup_live", "others-postbackup_live"]);

    let missing = Document { backup_driver: "nobody".to_owned(), ..stand.backup(false) };
    let (good, reason) = stand.ask(&missing);
    assert!(!good && reason.contains("Datastore Driver 'nobody' not available"), "{reason}");
    assert_eq!(names(&stand.others.calls()), ["others-prebackup", "others-postbackup"]);
}

/// As OpenNebula's `backup_cancel`: ends what has the deploy id among the words of a backup script.
const SEARCHES: &str = r#"for folder in /proc/[0-9]*; do
  words=$(tr '\0' ' ' 2>/dev/null <"$folder/cmdline") || continue
  if [[ $words == *bash\ */datastore/others/backup\ *" $2 "* ]]; then kill -TERM "${folder#/proc/}"; fi
done"#;

#[test]
#[ignore = "needs the test bed: make test"]
fn a_backup_that_is_cancelled_ends_on_the_front_end_is_undone_and_answered() {
    let mut stand = BackedUp::new(6111);
    // A child of its own, which outlives a TERM to the script alone.
    let sleeps = "exec -a one-bed-sleep-6111 sleep 300";
    for (name, phase) in [("others-backup", 2), ("others-prebackup_live", 1)] {
        for search in [SEARCHES, "true"] {
            stand.others.acts(name, sleeps);
            stand.others.acts("others-backup_cancel", search);
            let before = stand.driver.conversation.replies("BACKUP", 6111);
            let document = stand.backup(true);
            stand.driver.send("BACKUP", 6111, &document.payload());
            let there = wait_for(ACTION, || (stand.at_work().len() == 1).then_some(()));
            assert!(there.is_some(), "the script sleeps: {}", stand.driver.conversation.text());

            let document = stand.cancel();
            let reply = stand.driver.ask("BACKUPCANCEL", 6111, &document.payload(), ACTION);
            assert!(reply.succeeded(), "{}", reply.raw);
            let reply = stand.driver.conversation.reply("BACKUP", 6111, before, ACTION);
            assert!(!reply.succeeded(), "{}", reply.raw);
            assert_eq!(stand.at_work(), [], "nothing of it is left: {}", reply.raw);
            assert_eq!(stand.vm.state().as_deref(), Some("running"));
            let calls = stand.others.calls();
            let expected =
                ["others-prebackup_live", "others-backup", "others-backup_cancel", "others-postbackup_live"];
            let mut found = names(&calls);
            found.sort_unstable();
            let mut expected: Vec<_> =
                expected.into_iter().filter(|name| phase == 2 || *name != "others-backup").collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "{}", reply.raw);
            let cancelled = calls.iter().find(|call| call.name.ends_with("_cancel")).expect("it was called");
            assert_eq!(cancelled.args, [stand.words()[0].clone(), stand.words()[2].clone()]);
            assert_eq!(cancelled.stdin, document.vm_xml());
        }
    }

    // DRIVER_CANCEL: the same, but no answer.
    stand.others.acts("others-prebackup_live", "");
    stand.others.acts("others-backup", sleeps);
    let before = stand.driver.conversation.replies("BACKUP", 6111);
    let document = stand.backup(true);
    stand.driver.send("BACKUP", 6111, &document.payload());
    assert!(wait_for(ACTION, || (stand.at_work().len() == 1).then_some(())).is_some());
    stand.driver.cancel(6111);
    let ended = wait_for(Duration::from_secs(40), || {
        let calls = stand.front.folder().join("var/remotes.others/calls");
        let done = fs::read_dir(calls).ok()?.flatten().filter(|call| call.path().join("words").exists());
        (done.count() == 3 && stand.at_work().is_empty()).then_some(())
    });
    assert!(ended.is_some(), "{:?} {}", stand.others.calls(), stand.driver.conversation.text());
    assert_eq!(names(&stand.others.calls()).last(), Some(&"others-postbackup_live"));
    assert_eq!(stand.driver.conversation.replies("BACKUP", 6111), before, "nobody waits for an answer");
}

fn nic(id: u32, driver: &str, bridge: &str, more: &str) -> String {
    let fields = [
        ("BRIDGE", bridge),
        ("BRIDGE_TYPE", "linux"),
        ("MAC", "02:00:0a:4d:61:12"),
        ("NETWORK_ID", "7"),
        ("NIC_ID", &id.to_string()),
        ("TARGET", &format!("one-6112-{id}")),
        ("VN_MAD", driver),
    ];
    format!("<NIC>{}{more}</NIC>", fields.iter().map(|(name, value)| cdata(name, value)).collect::<String>())
}

#[test]
#[ignore = "needs the test bed: make test"]
fn changes_of_security_groups_and_networks_reach_the_network_drivers_on_the_host() {
    let (_use, front) = (bed::shared(), FrontEnd::staged());
    Others::put(&front, &["vnm/others/update_sg", "vnm/others/update_nic"]);
    let others = Others::on(&front, "node1");
    let (bridge, port) = ("bedbr6112", "bedphy6112");
    let mut vm = Vm::with_network(&front, 6112, "node1", bridge, "bridge").without_guest();
    let mut driver = Driver::ready(&front, "-t 15 -r 0 kvm -p");
    deploy(&mut driver, &mut vm);
    bed::virsh("node1", &["suspend", &vm.domain()]);
    let rule = "<SECURITY_GROUP_RULE><PROTOCOL>TCP</PROTOCOL></SECURITY_GROUP_RULE>";
    let with = |change, more: &str| {
        let mut document = Document { changed: Some(change), ..vm.document() };
        document.template.push_str(&nic(1, "others", "br-of-others", ""));
        document.template.push_str(more);
        document
    };
    let decoded = |text: &str| {
        let bare: String = text.split_whitespace().collect();
        String::from_utf8(STANDARD.decode(bare).expect("base64")).expect("text")
    };

    let document = with(("SECURITY_GROUP_ID", 101), rule);
    let reply = driver.ask("UPDATESG", 6112, &document.payload(), ACTION);
    assert!(reply.succeeded() && reply.info.starts_with("101 "), "{}", reply.raw);
    let calls = others.calls();
    assert_eq!((names(&calls), &calls[0].args), (vec!["others-update_sg"], &vec![vm.deploy_id.clone()]));
    assert_eq!(calls[0].stdin.trim_end().lines().count(), 1, "one line of base64");
    let read = decoded(&calls[0].stdin);
    assert!(read.contains(rule) && read.contains("br-of-others") && !read.contains("<DISK>"), "{read}");
    others.acts("others-update_sg", "echo 'ipset is missing' >&2; exit 1");
    let reply = driver.ask("UPDATESG", 6112, &document.payload(), ACTION);
    assert!(!reply.succeeded() && reply.info.starts_with("101 "), "{}", reply.raw);
    assert!(reply.info.contains("others: ipset is missing"), "{}", reply.raw);
    others.calls();

    // Ours does what it is told: the network's device becomes a port of the bridge.
    bed::sh("node1", &["ip", "tuntap", "add", "dev", port, "mode", "tap"]);
    let change = format!("<VNET_UPDATE>{}</VNET_UPDATE>", cdata("PHYDEV", ""));
    let ours = nic(2, "bridge", bridge, &cdata("PHYDEV", port));
    let document = with(("VIRTUAL_NETWORK_ID", 7), &format!("{ours}{change}"));
    let reply = driver.ask("UPDATENIC", 6112, &document.payload(), ACTION);
    let master = fs::read_link(bed::host_path("node1", format!("/sys/class/net/{port}/master")));
    let calls = others.calls();
    others.acts("others-update_nic", "echo 'no such network' >&2; exit 1");
    let refused = driver.ask("UPDATENIC", 6112, &document.payload(), ACTION);
    bed::sh("node1", &["ip", "link", "del", port]);
    assert!(reply.succeeded() && reply.info.starts_with("7 "), "{}", reply.raw);
    assert!(master.is_ok_and(|to| to.ends_with(bridge)), "{}", reply.raw);
    assert_eq!(names(&calls), ["others-update_nic"]);
    assert_eq!(calls[0].args, [vm.deploy_id.clone(), "7".to_owned()]);
    assert!(calls[0].stdin.lines().count() > 1, "base64 with line breaks");
    assert_eq!(decoded(&calls[0].stdin), document.vm_xml(), "the whole VM");
    assert!(!refused.succeeded() && refused.info.starts_with("7 "), "{}", refused.raw);
    assert!(refused.info.contains("others: no such network"), "{}", refused.raw);
    assert_eq!(vm.state().as_deref(), Some("paused"), "and the VM is where it was");
}

/// `context CONTEXT.SH FILE... HOST:DISK VMID DSID`: the "image" is the text, so that the guest can read it.
const CONTEXT: &str = r#"disk=${*: -3:1}
printf '%-65536s' "$(<"$1")" >"${disk#*:}""#;

/// `snap_create_live HOST:DISK SNAPSHOT VMID DSID`, as OpenNebula's does it: by libvirt, on the host.
const LAYER: &str = r#"host=${1%%:*} disk=${1#*:}
if ssh -n "$host" test -e "$disk.$2"; then echo "$disk.$2 is there already" >&2; exit 1; fi
ssh -n "$host" qemu-img create -q -f qcow2 -F qcow2 -b "$disk" "$disk.$2"
ssh -n "$host" virsh -q -c qemu:///system snapshot-create-as "one-$3" "layer-$2" --disk-only --atomic --no-metadata \
  --reuse-external --diskspec "vda,file=$disk.$2" >/dev/null"#;

#[test]
#[ignore = "needs the test bed: make test"]
fn a_running_guest_gets_its_new_context_and_a_snapshot_of_its_disk() {
    let context = "<CONTEXT><DISK_ID><![CDATA[1]]></DISK_ID><TARGET><![CDATA[hda]]></TARGET></CONTEXT>";
    let mut stand = Stand::prepared(6113, |front, vm| {
        Others::put(front, &["tm/shared/context", "tm/shared/snap_create_live"]);
        context.clone_into(&mut vm.more);
    });
    let others = Others::on_front_end(&stand.front);
    others.acts("shared-context", CONTEXT);
    others.acts("shared-snap_create_live", LAYER);
    let disk = as_oned_writes(&stand.vm.folder().join("disk.1"));
    let script = stand.front.folder().join("var/vms/6113/context.sh");
    let says = |text: &str| fs::write(&script, text).expect("context.sh");
    let command = format!("CONTEXT shared {} node1:{disk} 6113 0\n", script.display());
    let with_context =
        |document: Document| Document { tm_command: command.clone(), disk_path: disk.clone(), ..document };

    says("first-context");
    let document = with_context(stand.vm.deploy());
    stand.vm.deploy_id = stand.good("DEPLOY", &document);
    stand.vm.wait_said("READY at", 1, BOOT);
    stand.vm.type_until("head -c 13 /dev/sr0; echo", "first-context");

    says("other-context");
    let document = with_context(stand.vm.document());
    assert_eq!(stand.good("UPDATECONF", &document), "");
    stand.vm.type_until("head -c 13 /dev/sr0; echo", "other-context");
    assert_eq!(names(&others.calls()), ["shared-context", "shared-context"]);

    others.acts("shared-context", "echo 'no room for the context' >&2; exit 1");
    let reason = stand.bad("UPDATECONF", &document);
    assert_eq!(reason, "no room for the context (exit code 1)");
    let before = stand.vm.said("other-context");
    let in_drive = bed::virsh("node1", &["dumpxml", "one-6113"]).expect("the domain");
    assert!(in_drive.contains(&format!("<source file='{disk}'")), "{in_drive}");
    stand.vm.type_until("head -c 13 /dev/sr0; echo -\"again\"", "other-context-again");
    assert!(stand.vm.said("other-context") > before, "the old one is in the drive again");

    let image = as_oned_writes(&stand.vm.folder().join("disk.0"));
    let snapshot = |tm: &str| {
        let flags = format!("{}{}", cdata("DISK_SNAPSHOT_ACTIVE", "YES"), cdata("DISK_ID", "0"));
        let mut document = stand.vm.document();
        document.template = document.template.replacen("<DISK>", &format!("<DISK>{flags}"), 1);
        document.template = document.template.replacen("<![CDATA[shared]]>", &format!("<![CDATA[{tm}]]>"), 1);
        document.tm_command = format!("SNAP_CREATE {tm} node1:{image} 3 6113 1\n");
        document
    };
    let (allowed, refused) = (snapshot("shared"), snapshot("dev"));
    let reason = stand.bad("DISKSNAPSHOTCREATE", &refused);
    assert!(reason.contains("Cannot perform a live"), "{reason}");
    let layers = || bed::virsh("node1", &["domblklist", "one-6113"]).expect("its disks");
    assert!(!layers().contains("disk.0.3"));
    others.calls();
    assert_eq!(stand.good("DISKSNAPSHOTCREATE", &allowed), "");
    assert!(layers().contains("disk.0.3"), "{}", layers());
    assert!(stand.vm.ticks(BOOT), "the guest goes on");
    let calls = others.calls();
    assert_eq!(names(&calls), ["shared-snap_create_live"]);
    assert_eq!((calls[0].args.join(" "), calls[0].stdin.as_str()), (format!("node1:{image} 3 6113 1"), ""));
    let reason = stand.bad("DISKSNAPSHOTCREATE", &allowed);
    assert!(reason.contains("disk.0.3 is there already"), "{reason}");
    assert!(stand.vm.ticks(BOOT));
    let document = stand.vm.document();
    stand.good("CANCEL", &document);
}
