//! docs/actions.md, the part below its mark: every action with its contract, out of the plans themselves and the heads
//! of the scripts. With `KVMAD_WRITE_DOCS=1` the page is written, else compared.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use kvmad::vmm::payload::Action;
use kvmad::vmm::plan::plan;
use kvmad::vmm::setup::Setup;
use kvmad::vmm::verb::Verb;

const MARK: &str =
    "<!-- From here on made by tests/vmm/contracts.rs: KVMAD_WRITE_DOCS=1 cargo nextest run contracts -->\n";

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Verb, the releases of OpenNebula that send it, what oned makes of SUCCESS and of FAILURE. The releases are those that were
/// read: a verb may have come with a minor release before.
const ONED: &[(Verb, &str, &str, &str)] = &[
    (
        Verb::Deploy,
        "3.8 to 7.4",
        "the first word is the deploy id; RUNNING",
        "BOOT_FAILURE, or the state before",
    ),
    (Verb::Shutdown, "3.8 to 7.4", "the VM is off", "RUNNING"),
    (Verb::Cancel, "3.8 to 7.4", "the VM is off", "RUNNING"),
    (Verb::Save, "3.8 to 7.4", "SUSPENDED, STOPPED, or the move goes on", "RUNNING"),
    (Verb::Restore, "3.8 to 7.4", "RUNNING", "the state before"),
    (Verb::Migrate, "3.8 to 7.4", "RUNNING on the target", "RUNNING on the source"),
    (Verb::Reboot, "3.8 to 7.4", "nothing", "nothing"),
    (Verb::Reset, "3.8 to 7.4", "a line in the log", "a line in the log"),
    (Verb::Poll, "3.8 to 5.10", "the figures are stored", "nothing"),
    (Verb::AttachDisk, "3.8 to 7.4", "the disk stays in the VM", "the disk is taken out of the VM"),
    (Verb::DetachDisk, "3.8 to 7.4", "the disk is taken out of the VM", "the disk stays in the VM"),
    (Verb::AttachNic, "4.0 to 7.4", "the NIC stays in the VM", "the NIC is taken out of the VM"),
    (Verb::DetachNic, "4.0 to 7.4", "the NIC is taken out of the VM", "the NIC stays in the VM"),
    (Verb::SnapshotCreate, "4.0 to 7.4", "the first word is the snapshot's name", "the snapshot is dropped"),
    (Verb::SnapshotRevert, "4.0 to 7.4", "RUNNING", "RUNNING, with the reason"),
    (Verb::SnapshotDelete, "4.0 to 7.4", "the snapshot is dropped", "the snapshot stays"),
    (Verb::DiskSnapshotCreate, "4.14 to 7.4", "the snapshot stays", "the snapshot is dropped"),
    (Verb::ResizeDisk, "5.4 to 7.4", "the new size stays", "the old size comes back"),
    (Verb::Resize, "6.0 to 7.4", "the new capacity stays", "the old capacity comes back"),
    (Verb::Cleanup, "4.0 to 7.4", "the deletion goes on", "the deletion goes on"),
    (
        Verb::UpdateSg,
        "5.0 to 7.4",
        "the first word is the group's id; the next VM follows",
        "the same, marked as failed",
    ),
    (
        Verb::UpdateNic,
        "6.10 to 7.4",
        "the first word is the network's id; RUNNING",
        "the network is marked as failed; RUNNING",
    ),
    (Verb::UpdateConf, "5.10 to 7.4", "RUNNING", "RUNNING, with the reason"),
    (Verb::Backup, "6.10 to 7.4", "id, size in MiB and format of the backup", "the state before"),
    (Verb::BackupCancel, "6.10 to 7.4", "nothing", "nothing"),
    (Verb::Exec, "7.4", "the command runs; the result comes by monitoring", "marked as failed"),
    (Verb::ExecCancel, "7.4", "the command is cancelled", "marked as failed"),
];

/// An action document in which every value is its own name.
fn document(verb: Verb) -> String {
    let tm = match verb {
        Verb::Deploy | Verb::Restore | Verb::AttachNic | Verb::DetachNic | Verb::UpdateConf => {
            "CONTEXT TM_MAD context.sh HOST:DISK 42 0"
        }
        Verb::Migrate => "MIGRATE TM_MAD HOST TARGET_HOST TARGET_FOLDER 42 0",
        Verb::AttachDisk => "CLONE TM_MAD SOURCE HOST:DISK 42 1",
        Verb::DetachDisk => "MVDS TM_MAD HOST:DISK SOURCE 42 1",
        Verb::DiskSnapshotCreate => "SNAP_CREATE TM_MAD HOST:DISK 0 42 1",
        Verb::ResizeDisk => "RESIZE TM_MAD HOST:DISK SIZE 42 1",
        Verb::Cleanup => "DELETE TM_MAD HOST:FOLDER 42 0\n",
        Verb::Backup => "BACKUP TM_MAD HOST:FOLDER 0 DEPLOY_ID - 42 100",
        Verb::BackupCancel => "BACKUPCANCEL TM_MAD HOST:FOLDER DEPLOY_ID",
        _ => "",
    };
    let second = if matches!(verb, Verb::Migrate | Verb::Cleanup) { "TARGET_HOST" } else { "" };
    let disk = match verb {
        Verb::AttachDisk | Verb::DetachDisk => "<ATTACH>YES</ATTACH><TARGET>vdb</TARGET>",
        Verb::DiskSnapshotCreate => "<DISK_SNAPSHOT_ACTIVE>YES</DISK_SNAPSHOT_ACTIVE>",
        Verb::ResizeDisk => "<RESIZE>YES</RESIZE><SIZE>SIZE</SIZE>",
        _ => "",
    };
    let nic = if matches!(verb, Verb::AttachNic | Verb::DetachNic) { "<ATTACH>YES</ATTACH>" } else { "" };
    let others = match verb {
        Verb::SnapshotCreate | Verb::SnapshotRevert | Verb::SnapshotDelete => {
            "<SNAPSHOT><ACTIVE>YES</ACTIVE><SNAPSHOT_ID>SNAPSHOT_ID</SNAPSHOT_ID><HYPERVISOR_ID>NAME</HYPERVISOR_ID></SNAPSHOT>"
        }
        Verb::Exec => "<QEMU_GA_EXEC><COMMAND>COMMAND</COMMAND><STDIN>U1RESU4=</STDIN></QEMU_GA_EXEC>",
        _ => "",
    };
    format!(
        "<VMM_DRIVER_ACTION_DATA><HOST>HOST</HOST><MIGR_HOST>{second}</MIGR_HOST><DEPLOY_ID>DEPLOY_ID</DEPLOY_ID>\
         <LOCAL_DEPLOYMENT_FILE>DEPLOYMENT_FILE</LOCAL_DEPLOYMENT_FILE>\
         <REMOTE_DEPLOYMENT_FILE>FOLDER/deployment.0</REMOTE_DEPLOYMENT_FILE>\
         <CHECKPOINT_FILE>FOLDER/checkpoint</CHECKPOINT_FILE><TM_COMMAND>{tm}</TM_COMMAND>\
         <TM_COMMAND_ROLLBACK>DELETE TM_MAD HOST:DISK 42 1</TM_COMMAND_ROLLBACK><DISK_TARGET_PATH>DISK</DISK_TARGET_PATH>\
         <SECURITY_GROUP_ID>7</SECURITY_GROUP_ID><VIRTUAL_NETWORK_ID>7</VIRTUAL_NETWORK_ID>\
         <VM><ID>42</ID><DEPLOY_ID>DEPLOY_ID</DEPLOY_ID><TEMPLATE>\
         <CONTEXT><TARGET>hda</TARGET></CONTEXT>\
         <DISK>{disk}<DISK_ID>1</DISK_ID><TM_MAD>qcow2</TM_MAD></DISK>\
         <NIC>{nic}<VN_MAD>VN_MAD</VN_MAD><BRIDGE>BRIDGE</BRIDGE><MAC>MAC</MAC><MODEL>MODEL</MODEL><TARGET>TAP</TARGET></NIC>\
         {others}</TEMPLATE><HISTORY_RECORDS><HISTORY><VM_MAD>kvm</VM_MAD></HISTORY></HISTORY_RECORDS></VM>\
         <DATASTORE><ID>0</ID><DS_MAD>DS_MAD</DS_MAD></DATASTORE></VMM_DRIVER_ACTION_DATA>"
    )
}

fn actions() -> String {
    let mut text = String::from(
        "\n## Every action\n\n\
         What each action runs, as `kvmad run --dry-run` shows it: steps in their order, where the script runs and with which \
         arguments, its stdin, what undoes it. Words in capitals stand for values; `VN_MAD` and `TM_MAD` for the driver's \
         names; 42 is the VM. `vmm/kvm/...` and `vnm/...` lie in the remotes. A script says success by status 0; its reason for a \
         failure goes to stderr.\n",
    );
    for (verb, releases, success, failure) in ONED {
        let action = Action::from_xml(document(*verb)).unwrap_or_else(|error| panic!("{verb}: {error}"));
        let plan = plan(*verb, &action, &Setup::new("kvm")).unwrap_or_else(|error| panic!("{verb}: {error}"));
        let shown = plan.to_string();
        let lines = shown.lines().skip(1).map(without_bytes);
        let lines: Vec<String> = lines.collect();
        let _ = write!(
            text,
            "\n### {verb}\n\nOpenNebula {releases}. SUCCESS: {success}. FAILURE: {failure}.\n\n```text\n{}\n```\n",
            lines.join("\n")
        );
    }
    text
}

/// The length of a sample says nothing.
fn without_bytes(line: &str) -> String {
    match line.split_once(" bytes") {
        Some((front, back)) if front.ends_with(|c: char| c.is_ascii_digit()) => {
            let front = front.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches([' ', ',']);
            format!("{front}{back}")
        }
        _ => line.to_owned(),
    }
}

/// The head of a script: its usage, and what else it says of itself.
fn head(path: &Path) -> Option<(String, String)> {
    let name = path.file_name()?.to_str()?;
    let text = fs::read_to_string(path).ok()?;
    let lines: Vec<&str> = text.lines().skip(1).map_while(|line| line.strip_prefix('#')).collect();
    let usage = lines.iter().find(|line| line.starts_with("   "))?.trim().to_owned();
    let says: Vec<&str> =
        lines.iter().filter(|line| !line.starts_with("   ")).map(|line| line.trim()).collect();
    let known = usage.starts_with(name) || usage.contains('|');
    known.then(|| (usage, says.join(" ")))
}

fn scripts() -> String {
    let mut text = String::from(
        "\n## Every script\n\n\
         The scripts on a host, as their heads tell it. Whoever replaces one keeps to this. `vmm/qemu` is served by the same \
         folder where OpenNebula links it.\n",
    );
    for folder in ["vmm/kvm", "vnm/bridge", "vnm/dummy"] {
        let _ = write!(text, "\n### {folder}\n\n| call | what it does |\n|---|---|\n");
        let entries = fs::read_dir(project().join("remotes").join(folder)).expect("the scripts");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_none_or(|end| end != "sh")) {
            let (usage, says) =
                head(path).unwrap_or_else(|| panic!("{} does not say how it is called", path.display()));
            let _ = writeln!(text, "| `{}` | {} |", usage.replace('|', "\\|"), says.replace('|', "\\|"));
        }
    }
    text
}

#[test]
fn the_contracts_in_docs_actions_are_fresh() {
    let page = project().join("docs/actions.md");
    let there = fs::read_to_string(&page).expect("docs/actions.md");
    let front = there.split(MARK).next().expect("a front").trim_end();
    let fresh = format!("{front}\n\n{MARK}{}{}", actions(), scripts());
    if std::env::var_os("KVMAD_WRITE_DOCS").is_some() {
        fs::write(&page, &fresh).expect("written");
    }
    assert!(
        fs::read_to_string(&page).expect("docs/actions.md") == fresh,
        "docs/actions.md is not fresh: KVMAD_WRITE_DOCS=1 cargo nextest run contracts"
    );
}

#[test]
fn every_verb_has_a_contract() {
    let known: Vec<Verb> = ONED.iter().map(|(verb, ..)| *verb).collect();
    assert_eq!(known.len(), Verb::all().count());
    for verb in Verb::all() {
        assert!(known.contains(&verb), "{verb}");
    }
}

#[test]
fn a_script_without_a_head_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deploy");
    fs::write(&path, "#!/bin/bash\n# Starts it.\nset -eu\n").expect("written");
    assert_eq!(head(&path), None);
    fs::write(&path, "#!/bin/bash\n# Starts it.\n#   deploy FILE    stdin: x\n# Twice is fine.\nset -eu\n")
        .expect("written");
    assert_eq!(head(&path), Some(("deploy FILE    stdin: x".into(), "Starts it. Twice is fine.".into())));
}
