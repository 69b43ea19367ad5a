//! Every verb: which scripts run where, with which arguments and stdin, and what undoes them.

use kvmad::vmm::payload::Action;
use kvmad::vmm::plan::{self, Info};
use kvmad::vmm::setup::Setup;
use kvmad::vmm::verb::Verb;

use super::corpus::{self, Recorded};
use super::expected::expected;
use super::show;

fn planned(recorded: &Recorded, setup: &Setup) -> plan::Plan {
    let action = Action::from_xml(recorded.text.clone()).expect(&recorded.name);
    let verb = Verb::from_wire(&recorded.verb).expect(&recorded.name);
    plan::plan(verb, &action, setup).unwrap_or_else(|refusal| panic!("{}: {refusal}", recorded.name))
}

fn setup() -> Setup {
    let mut setup = Setup::new("kvm");
    setup.live_snapshots.insert("dummy-dummy".to_owned());
    setup.live_snapshots.insert("kvmexec-dummy".to_owned());
    setup
}

#[test]
fn every_recorded_document_becomes_the_steps_that_are_documented() {
    let mut verbs = std::collections::BTreeSet::new();
    let mut count = 0;
    for recorded in corpus::RECORDINGS.iter().flat_map(|recording| corpus::documents(recording)) {
        let shown = show::plan(&planned(&recorded, &setup()));
        let expected = expected(&recorded.verb, &recorded.text);
        assert_eq!(shown, expected, "{}", recorded.name);
        verbs.insert(recorded.verb);
        count += 1;
    }
    assert_eq!(count, 61 + 46 + 45 + 41);
    assert_eq!(verbs.len(), Verb::all().count(), "a verb has no recorded document: {verbs:?}");
}

#[test]
fn the_documented_command_lines_are_met_word_for_word() {
    // `HOST h1, VM 7, DEPLOY_ID one-7`: the examples that were seen with the real driver.
    let document = |inner: &str, template: &str| {
        format!(
            "<VMM_DRIVER_ACTION_DATA><HOST>h1</HOST><DEPLOY_ID>one-7</DEPLOY_ID>{inner}<VM><ID>7</ID><UID>0</UID>\
             <TEMPLATE>{template}</TEMPLATE></VM></VMM_DRIVER_ACTION_DATA>"
        )
    };
    let checkpoint = "<CHECKPOINT_FILE>/s/7/checkpoint</CHECKPOINT_FILE>";
    let tm = "<TM_COMMAND>X ssh a</TM_COMMAND>";
    let nic = "<NIC><ATTACH>YES</ATTACH><MAC>02:01</MAC><BRIDGE>br0</BRIDGE><VN_MAD>bridge</VN_MAD>\
               <TARGET>one-7-1</TARGET></NIC>";
    let disk = "<DISK><ATTACH>YES</ATTACH><TARGET>vdc</TARGET></DISK>";
    let grown = "<DISK><RESIZE>YES</RESIZE><DISK_ID>0</DISK_ID><SIZE>2048</SIZE></DISK>";
    let snapshot = "<SNAPSHOT><ACTIVE>YES</ACTIVE><SNAPSHOT_ID>0</SNAPSHOT_ID></SNAPSHOT>";
    let exec = "<QEMU_GA_EXEC><COMMAND>ls -l</COMMAND><STDIN>YQ==</STDIN></QEMU_GA_EXEC>";
    for (verb, text, words) in [
        ("SAVE", document(checkpoint, ""), "save one-7 /s/7/checkpoint h1 7 h1"),
        ("RESTORE", document(checkpoint, ""), "restore /s/7/checkpoint h1 one-7 7 h1"),
        ("MIGRATE", document(&format!("<MIGR_HOST>h2</MIGR_HOST>{tm}"), ""), "migrate one-7 h2 h1 7 h1"),
        ("ATTACHNIC", document("", nic), "attach_nic one-7 02:01 br0 - bridge one-7-1 7 h1"),
        (
            "ATTACHDISK",
            document(&format!("{tm}<DISK_TARGET_PATH>/s/7/disk.2</DISK_TARGET_PATH>"), disk),
            "attach_disk one-7 /s/7/disk.2 vdc 2 $document64 7 h1",
        ),
        ("RESIZEDISK", document(tm, grown), "resize_disk one-7 0 2048 $document64 h1 7 h1"),
        ("SNAPSHOTCREATE", document("", snapshot), "snapshot_create one-7 0 7 h1"),
        ("RESIZE", document("", ""), "resize one-7 7 h1"),
        ("EXEC", document("", exec), "exec 7 h1 'ls -l' 'YQ=='"),
    ] {
        let recorded = Recorded { name: verb.to_owned(), verb: verb.to_owned(), text };
        let shown = show::plan(&planned(&recorded, &setup()));
        let wanted = format!("vmm/kvm/{words} <doc");
        assert!(shown.iter().any(|line| line.ends_with(&wanted)), "{verb}: {wanted}\n{shown:#?}");
    }
    let text = document("<MIGR_HOST>h2</MIGR_HOST>", nic);
    let recorded = Recorded { name: "CLEANUP".to_owned(), verb: "CLEANUP".to_owned(), text };
    assert_eq!(
        show::plan(&planned(&recorded, &setup())),
        [
            "vmm! h1 vmm/kvm/cancel one-7 h1 7 h1 <doc",
            "vnm! h1 vnm/bridge/clean h1 <net:64nl",
            "vmm! h2 vmm/kvm/cancel one-7 h2 7 h2 <doc",
            "vnm! h2 vnm/bridge/clean h2 <net:64nl",
        ]
    );
}

#[test]
fn the_info_of_each_reply_is_that_which_the_core_reads() {
    let info = |recording: &str, number: usize| planned(&corpus::document(recording, number), &setup()).info;
    assert_eq!(info("vmm-7.4", 1), Info::DeployId);
    assert_eq!(info("vmm-7.4", 16), Info::FirstWord("snapshot_create"));
    assert_eq!(info("vmm-7.4", 13), Info::Nothing, "an alias has no device");
    assert_eq!(info("vmm-7.4", 10), Info::Output("attach_nic"));
    assert_eq!(info("vmm-7.4", 18), Info::Nothing);
    assert_eq!(info("vmm-7.4", 20), Info::Nothing);
    assert_eq!(info("vmm-7.4", 22), Info::Nothing);
    assert_eq!(info("vmm-7.4", 50), Info::Nothing);
    assert_eq!(info("vmm-7.4", 56), Info::LastLine("backup"));
    let prefix = |number: usize| planned(&corpus::document("vmm-7.4", number), &setup()).prefix;
    assert_eq!(prefix(53).as_deref(), Some("100"));
    assert_eq!(prefix(11).as_deref(), Some("1"));
    assert_eq!(prefix(1), None);
}

#[test]
fn an_updatenic_of_a_nic_without_network_is_planned_and_answered_with_minus_one() {
    let mut recorded = corpus::document("vmm-7.4", 55);
    recorded.text = recorded.text.replace("<VIRTUAL_NETWORK_ID>0</VIRTUAL_NETWORK_ID>", "");
    let plan = planned(&recorded, &setup());
    assert_eq!(plan.prefix.as_deref(), Some("-1"));
    assert!(show::plan(&plan)[0].contains("update_nic host1:extra:dummy -1 <"));
}

#[test]
fn a_migration_between_datastores_of_one_host_leaves_the_network_alone() {
    let mut recorded = corpus::document("vmm-7.4", 26);
    recorded.text = recorded.text.replace("<MIGR_HOST>host2", "<MIGR_HOST>host1");
    let shown = show::plan(&planned(&recorded, &setup()));
    assert!(shown.iter().all(|line| !line.contains("vnm")), "{shown:#?}");
    assert!(shown[2].starts_with("vmm host1+ vmm/kvm/migrate host1:lc-dummy:dummy host1 host1 0 host1 <doc"));
}

#[test]
fn a_local_action_runs_on_the_front_end_under_its_other_name() {
    let mut setup = setup();
    setup.local = kvmad::mad::options::ActionList::parse("migrate=migrate_local,post,snapshotrevert");
    let shown = show::plan(&planned(&corpus::document("vmm-7.4", 26), &setup));
    assert!(
        shown.iter().any(|line| line.starts_with("vmm local vmm/kvm/migrate_local host1:lc")),
        "{shown:#?}"
    );
    assert!(
        shown.iter().any(|line| line.starts_with("vnm! local vnm/dummy/post ") && line.ends_with("<net:64"))
    );
    assert!(shown.iter().any(|line| line.starts_with("vnm host2+ vnm/dummy/pre ")));
    let shown = show::plan(&planned(&corpus::document("vmm-7.4", 18), &setup));
    assert!(shown[0].starts_with("vmm local vmm/kvm/snapshot_revert ") && shown[0].ends_with("<doc:local"));
}

#[test]
fn a_local_deploy_uses_the_files_of_the_front_end() {
    let mut setup = setup();
    setup.local = kvmad::mad::options::ActionList::parse("deploy");
    let shown = show::plan(&planned(&corpus::document("vmm-7.4", 1), &setup));
    assert!(
        shown.contains(&"vmm local /bin/sh store /var/lib/one/vms/0 vm.xml <vm".to_owned()),
        "{shown:#?}"
    );
    let deploy = "vmm local vmm/kvm/deploy /var/lib/one/vms/0/deployment.0 host1 0 host1 \
                  <file:/var/lib/one/vms/0/deployment.0:local";
    assert!(shown.contains(&deploy.to_owned()), "{shown:#?}");
}

#[test]
fn elastic_networks_are_completed_on_the_front_end_and_not_again_after_a_revert() {
    let elastic = |number: usize| {
        let mut recorded = corpus::document("vmm-7.4", number);
        recorded.text = recorded.text.replace("<VN_MAD><![CDATA[dummy", "<VN_MAD><![CDATA[elastic");
        show::plan(&planned(&recorded, &setup()))
    };
    let deploy = elastic(1);
    assert!(deploy.contains(&"vnm host1 vnm/elastic/pre <net:64nl".to_owned()), "{deploy:#?}");
    assert!(
        deploy.contains(&"vnm local vnm/elastic/post $deploy:one-0 host1 <net:64".to_owned()),
        "{deploy:#?}"
    );
    assert!(deploy.contains(&"~ vnm local vnm/elastic/clean host1 <net:64".to_owned()), "{deploy:#?}");
    assert_eq!(elastic(18).len(), 1);
}

#[test]
fn other_actions_are_delegated_when_d_names_them_but_never_direct_calls() {
    let mut setup = setup();
    setup.delegated = kvmad::mad::options::ActionList::parse("snapshot_revert,RESIZE");
    let first = |number: usize| show::plan(&planned(&corpus::document("vmm-7.4", number), &setup)).remove(0);
    assert!(first(18).starts_with("vmm host1+ "));
    assert!(first(15).starts_with("vmm host1 "));
    let migrate = show::plan(&planned(&corpus::document("vmm-7.4", 26), &setup));
    assert!(migrate.iter().all(|line| !line.contains('+')), "{migrate:#?}");
}

#[test]
fn the_reduced_document_has_each_part_in_a_chain_of_its_own() {
    let nic =
        |id: u8, mad: &str| format!("<NIC><NIC_ID>{id}</NIC_ID><VN_MAD><![CDATA[{mad}]]></VN_MAD></NIC>");
    let (a, b) = (nic(0, "bridge"), nic(2, "fw"));
    let alias = "<NIC_ALIAS><NIC_ID>3</NIC_ID><VN_MAD>bridge</VN_MAD></NIC_ALIAS>";
    let rule = |n: u8| format!("<SECURITY_GROUP_RULE><N>{n}</N></SECURITY_GROUP_RULE>");
    let text = format!(
        "<VMM_DRIVER_ACTION_DATA><HOST>h1</HOST><DEPLOY_ID>one-7</DEPLOY_ID><SECURITY_GROUP_ID>5</SECURITY_GROUP_ID>\
         <VM><ID>7</ID><UID>0</UID><DEPLOY_ID>one-7</DEPLOY_ID><TEMPLATE><CONTEXT><A><![CDATA[x&y]]></A></CONTEXT>\
         <DISK><X>1</X></DISK>{alias}{a}<NIC><NIC_ID>1</NIC_ID><VN_MAD/></NIC>{b}{}{}<PCI><P>1</P></PCI></TEMPLATE>\
         <USER_TEMPLATE><U>1</U></USER_TEMPLATE><HISTORY_RECORDS><HISTORY><OID>7</OID><HOSTNAME>h1</HOSTNAME>\
         <HID>3</HID><VM_MAD>kvm</VM_MAD><DS_ID>100</DS_ID></HISTORY></HISTORY_RECORDS></VM></VMM_DRIVER_ACTION_DATA>",
        rule(1),
        rule(2)
    );
    let recorded = Recorded { name: "UPDATESG".to_owned(), verb: "UPDATESG".to_owned(), text };
    let plan = planned(&recorded, &setup());
    let scripts: Vec<String> = show::plan(&plan);
    assert_eq!(
        scripts,
        ["vnm h1 vnm/bridge/update_sg one-7 <net:64nl", "vnm h1 vnm/fw/update_sg one-7 <net:64nl"]
    );
    let plan::Source::Data(data) = &plan.steps[0].calls[0].stdin.source else { panic!("data") };
    let history = |inner: &str| format!("<HISTORY_RECORDS><HISTORY>{inner}</HISTORY></HISTORY_RECORDS>");
    let expected = [
        "<VM><ID>7</ID><DEPLOY_ID>one-7</DEPLOY_ID>".to_owned(),
        "<TEMPLATE><CONTEXT><A><![CDATA[x&y]]></A></CONTEXT></TEMPLATE>".to_owned(),
        "<USER_TEMPLATE><U>1</U></USER_TEMPLATE>".to_owned(),
        format!("<TEMPLATE>{}</TEMPLATE><TEMPLATE>{}</TEMPLATE>", rule(1), rule(2)),
        history("<HOSTNAME>h1</HOSTNAME>"),
        history("<HID>3</HID>"),
        history("<DS_ID>100</DS_ID>"),
        history("<VM_MAD>kvm</VM_MAD>"),
        format!("<TEMPLATE>{a}</TEMPLATE><TEMPLATE>{b}</TEMPLATE><TEMPLATE>{alias}</TEMPLATE></VM>"),
    ];
    assert_eq!(std::str::from_utf8(data).expect("utf-8"), expected.concat());
}

#[test]
fn what_an_action_needs_and_does_not_have_is_named() {
    let refusal = |recording: &str, number: usize, from: &str, to: &str, setup: &Setup| {
        let recorded = corpus::document(recording, number);
        assert!(recorded.text.contains(from), "{} has no {from}", recorded.name);
        let action = Action::from_xml(recorded.text.replace(from, to)).expect(&recorded.name);
        let verb = Verb::from_wire(&recorded.verb).expect("verb");
        plan::plan(verb, &action, setup).expect_err(&recorded.name).to_string()
    };
    let s = setup();
    let attach = "<ATTACH><![CDATA[YES]]></ATTACH>";
    for (number, from, to, wanted) in [
        (4, attach, "", "Cannot perform ATTACHDISK, expecting VM/TEMPLATE/DISK[ATTACH='YES']/TARGET"),
        (5, attach, "", "Cannot perform DETACHDISK, expecting VM/TEMPLATE/DISK[ATTACH='YES']/TARGET"),
        (4, "TM_COMMAND>", "X>", "Cannot perform ATTACHDISK, expecting TM_COMMAND"),
        (
            20,
            "TM_MAD>",
            "X>",
            "Cannot perform DISKSNAPSHOTCREATE, expecting VM/TEMPLATE/DISK[DISK_SNAPSHOT_ACTIVE='YES']/TM_MAD",
        ),
        (
            20,
            "VM_MAD>",
            "X>",
            "Cannot perform DISKSNAPSHOTCREATE, expecting VM/HISTORY_RECORDS/HISTORY/VM_MAD",
        ),
        (56, "DS_MAD>", "X>", "Cannot perform BACKUP, expecting DATASTORE/DS_MAD"),
        (58, "TM_COMMAND>", "X>", "Cannot perform BACKUPCANCEL, expecting TM_COMMAND"),
        (26, "<MIGR_HOST>host2</MIGR_HOST>", "", "Cannot perform MIGRATE, expecting MIGR_HOST"),
        (26, "TM_COMMAND>", "X>", "Cannot perform MIGRATE, expecting TM_COMMAND"),
        (
            16,
            "SNAPSHOT_ID>",
            "X>",
            "Cannot perform SNAPSHOTCREATE, expecting VM/TEMPLATE/SNAPSHOT[ACTIVE='YES']/SNAPSHOT_ID",
        ),
        (
            18,
            "HYPERVISOR_ID>",
            "X>",
            "Cannot perform SNAPSHOTREVERT, expecting VM/TEMPLATE/SNAPSHOT[ACTIVE='YES']/HYPERVISOR_ID",
        ),
        (21, "SIZE>", "X>", "Cannot perform RESIZEDISK, expecting VM/TEMPLATE/DISK[RESIZE='YES']/SIZE"),
        (24, "COMMAND>", "X>", "Cannot perform EXEC, expecting VM/TEMPLATE/QEMU_GA_EXEC/COMMAND"),
        (27, "CHECKPOINT_FILE>", "X>", "Cannot perform SAVE, expecting CHECKPOINT_FILE"),
        (29, "DEPLOY_ID>", "X>", "Cannot perform SHUTDOWN, expecting DEPLOY_ID"),
        (53, "SECURITY_GROUP_ID>", "X>", "Cannot perform UPDATESG, expecting SECURITY_GROUP_ID"),
        (1, "REMOTE_DEPLOYMENT_FILE>", "X>", "Cannot perform DEPLOY, expecting REMOTE_DEPLOYMENT_FILE"),
    ] {
        assert_eq!(refusal("vmm-7.4", number, from, to, &s), wanted);
    }
    let mac = |recorded: &str| recorded.replace("<MAC>", "<M>").replace("</MAC>", "</M>");
    let action = Action::from_xml(mac(&corpus::document("vmm-7.4", 12).text)).expect("good");
    let refused = plan::plan(Verb::DetachNic, &action, &s).expect_err("no MAC").to_string();
    assert_eq!(refused, "Error in DETACHNIC, MAC needed in NIC");
    let plain = Setup::new("kvm");
    let live = refusal("vmm-7.4-kvm", 20, "<VM_MAD>", "<VM_MAD>", &plain);
    assert_eq!(live, "Cannot perform a live DISKSNAPSHOTCREATE operation", "the recorded reply says so too");
}

#[test]
fn thin_lvm_disks_of_another_driver_count_as_lvm_thin() {
    let mut recorded = corpus::document("vmm-7.4-kvm", 20);
    let disk = "<DISK_SNAPSHOT_ACTIVE>";
    let thin = "<LVM_THIN_ENABLE>yes</LVM_THIN_ENABLE><DISK_SNAPSHOT_ACTIVE>";
    recorded.text =
        recorded.text.replace(disk, thin).replace("<TM_MAD><![CDATA[dummy", "<TM_MAD><![CDATA[fs_lvm_ssh");
    recorded.text = recorded.text.replace("SNAP_CREATE dummy", "SNAP_CREATE.ssh fs_lvm_ssh");
    let mut setup = Setup::new("kvm");
    setup.live_snapshots.insert("kvmexec-lvm_thin".to_owned());
    let shown = show::plan(&planned(&recorded, &setup));
    assert!(
        shown[0].starts_with("tm local tm/fs_lvm_ssh/snap_create_live.ssh|snap_create_live "),
        "{shown:?}"
    );
}
