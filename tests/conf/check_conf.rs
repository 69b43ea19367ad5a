//! `kvmad check-conf`: for each class of finding a file that has it and one that has not.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use kvmad::conf::findings::FINDINGS;
use serde_json::Value;

/// A pair: the class, the name of the file, what has it, what has it not.
type Pair = (&'static str, &'static str, &'static [u8], &'static [u8]);

/// Begins every good vmm_exec_kvm.conf.
const ARCH: &str = "OS = [ ARCH = \"x86_64\" ]\n";

#[rustfmt::skip]
const PAIRS: &[Pair] = &[
    ("syntax", "a.conf", b"NIC = [ MODEL = virtio, ]\n", b"NIC = [ MODEL = virtio ]\n"),
    ("syntax", "kvmrc", b"export LANG=\"C\nexport A=1\n", b"export LANG=\"C\"\n"),
    ("syntax", "a.tmpl", b"CPU = 1\nMEMORY = 12 MB\n", b"CPU = 1\nMEMORY = 12\n"),
    ("unknown-key", "a.conf", b"EMULATR = /usr/bin/x\n", b"EMULATOR = /usr/bin/x\n"),
    ("unknown-key", "a.conf", b"ACPI = yes\n", b"FEATURES = [ ACPI = yes ]\n"),
    ("unknown-key", "a.conf", b"FEATURES = [ PEA = yes ]\n", b"FEATURES = [ PAE = yes ]\n"),
    ("unknown-key", "kvmrc", b"export SYNC_TIM=yes\n", b"export SYNC_TIME=yes\n"),
    ("unread-key", "a.conf", b"MEMORY = 512\n", b"MEMORY_SLOTS = 12\n"),
    ("unread-key", "a.conf", b"DISK = [ READONLY = yes ]\n", b"DISK = [ CACHE = none ]\n"),
    ("wrong-kind", "a.conf", b"FEATURES = yes\n", b"FEATURES = [ PAE = no ]\n"),
    ("wrong-kind", "a.conf", b"RAW = [ TYPE = kvm, DATA = \"<a/>\" ]\n", b"VCPU = 1\n"),
    ("bad-value", "a.conf", b"FEATURES = [ ACPI = true ]\n", b"FEATURES = [ ACPI = YES ]\n"),
    ("bad-value", "a.conf", b"DISK = [ TOTAL_BYTES_SEC = 10M ]\n", b"DISK = [ TOTAL_BYTES_SEC = 10000000 ]\n"),
    ("bad-value", "a.conf", b"NIC = [ VIRTIO_QUEUES = AUTO ]\n", b"NIC = [ VIRTIO_QUEUES = auto ]\n"),
    ("syntax", "kvmad.conf", b"[host]\nwhat\n", b"[host]\n# what\n"),
    ("unknown-key", "kvmad.conf", b"[host]\nidel = 5m\n", b"[host]\nidle = 5m\n"),
    ("bad-value", "kvmad.conf", b"[host]\nidle = soon\n", b"[host]\nidle = 5m\n"),
    ("bad-value", "kvmrc", b"export SHUTDOWN_TIMEOUT=3m\n", b"export SHUTDOWN_TIMEOUT=$((3 * 60))\n"),
    ("bad-value", "kvmrc", b"export QEMU_PROTOCOL=qemu+shs\n", b"export QEMU_PROTOCOL=qemu+tls\n"),
    ("bad-value", "kvmrc", b"export MIGRATE_ON_STALL=slow,explode\n", b"export MIGRATE_ON_STALL=slow,suspend\n"),
    ("bad-value", "kvmrc", b"export MIGRATE_ON_TIMEOUT=aborrt\n", b"export MIGRATE_ON_TIMEOUT=none\n"),
    ("bad-value", "kvmrc", b"export MIGRATE_AUTO_CONVERGE=900\n", b"export MIGRATE_AUTO_CONVERGE=20,10\n"),
    ("bad-value", "kvmrc", b"export MIGRATE_URI=foo\n", b"export MIGRATE_URI=tcp://{short}-m\n"),
    ("bad-value", "kvmrc", b"export MIGRATE_URI_node2_example_org=foo\n", b"export MIGRATE_URI_node2_example_org=tcp://10.9.0.2:49300\n"),
    ("bad-value", "a.tmpl", b"CPU = 1 MEMORY = 128 FEATURES = [ ACPI = ja ]\n", b"CPU = 1 MEMORY = 128 FEATURES = [ ACPI = yes ]\n"),
    ("bad-value", "a.tmpl", b"CPU = 1 MEMORY = 128 FEATURES = [ MIGRATE_ON_STALL = pray ]\n", b"CPU = 1 MEMORY = 128 FEATURES = [ MIGRATE_ON_STALL = abort ]\n"),
    ("odd-value", "a.tmpl", b"CPU = 1 MEMORY = 128 DISK = [ IMAGE = a, CACHE = nonne ]\n", b"CPU = 1 MEMORY = 128 DISK = [ IMAGE = a, CACHE = none ]\n"),
    ("refused-by-libvirt", "a.tmpl", b"CPU = 1 MEMORY = 128 NIC = [ BRIDGE = b, MAC = zz ]\n", b"CPU = 1 MEMORY = 128 NIC = [ BRIDGE = b, MAC = \"02:00:0a:00:00:01\" ]\n"),
    ("refused-by-libvirt", "a.tmpl", b"CPU = 1 MEMORY = 128 RAW = [ TYPE = kvm, DATA = \"<nonsense/>\" ]\n", b"CPU = 1 MEMORY = 128 RAW = [ TYPE = kvm, DATA = \"<seclabel type='none'/>\" ]\n"),
    ("odd-value", "a.tmpl", b"CPU = 1 MEMORY = 128 NIC = [ BRIDGE = b, MODEL = virtoi ]\n", b"CPU = 1 MEMORY = 128 NIC = [ BRIDGE = b, MODEL = virtio ]\n"),
    ("wrong-kind", "a.tmpl", b"CPU = 1 MEMORY = 128 RAW = \"<devices/>\"\n", b"CPU = 1 MEMORY = 128\n"),
    ("ignored", "a.tmpl", b"CPU = 1 MEMORY = 128 RAW = [ DATA = \"<devices/>\" ]\n", b"CPU = 1 MEMORY = 128\n"),
    ("unknown-key", "a.tmpl", b"CPU = 1 MEMORY = 128 FEATURES = [ GUEST_AGNT = yes ]\n", b"CPU = 1 MEMORY = 128 FEATURES = [ GUEST_AGENT = yes ]\n"),
    ("unknown-key", "a.tmpl", b"CPU = 1 MEMORY = 128 VPCU = 2\n", b"CPU = 1 MEMORY = 128 VCPU = 2 DESCRIPTION = x LABELS = y\n"),
    ("odd-value", "kvmrc", b"export LIBVIRT_URI=xyz\n", b"export LIBVIRT_URI=qemu:///session\n"),
    ("odd-value", "a.conf", b"DISK = [ CACHE = writebak ]\n", b"DISK = [ CACHE = writeback ]\n"),
    ("ineffective", "a.conf", b"CPU_MODEL = [ FEATURES = aes ]\n", b"CPU_MODEL = [ FEATURES = aes, MODEL = kvm64 ]\n"),
    ("ineffective", "a.conf", b"DISK = [ TOTAL_IOPS_SEC = 1, READ_IOPS_SEC = 1 ]\n", b"DISK = [ TOTAL_IOPS_SEC = 1, READ_BYTES_SEC = 1 ]\n"),
    ("ineffective", "a.conf", b"DISK = [ READ_IOPS_SEC = 5, READ_IOPS_SEC_MAX = 5 ]\n", b"DISK = [ READ_IOPS_SEC = 5, READ_IOPS_SEC_MAX = 6, READ_IOPS_SEC_MAX_LENGTH = 1 ]\n"),
    ("missing-arch", "bare.conf", b"OS = [ MACHINE = pc ]\n", b"OS = [ MACHINE = pc, ARCH = i686 ]\n"),
    ("firmware-not-listed", "bare.conf", b"OS = [ ARCH = x86_64, FIRMWARE = /a.fd ] OVMF_UEFIS = \"/b.fd\"\n", b"OS = [ ARCH = x86_64, FIRMWARE = /a.fd ] OVMF_UEFIS = \"/b.fd /a.fd\"\n"),
    ("refused-by-libvirt", "a.conf", b"DISK = [ IO = native, CACHE = writeback ]\n", b"DISK = [ IO = native, CACHE = none ]\n"),
    ("malformed-markup", "a.conf", b"RAW = \"<devices><rng></devices>\"\n", b"VCPU = 1\n"),
    ("attach-overrides", "kvmrc", b"export DEFAULT_ATTACH_CACHE=none\n", b"#export DEFAULT_ATTACH_CACHE=none\n"),
    ("ends-shell", "kvmrc", b"export LANG=C\nexit 0\n", b"export LANG=C\nfalse\n"),
    ("prints", "kvmrc", b"export LANG=C; date\n", b"export LANG=C; date >/dev/null\n"),
    ("refused", "a.tmpl", b"CPU = 1\n", b"CPU = 1 MEMORY = 128\n"),
    ("ignored", "a.tmpl", b"CPU = 1 MEMORY = 128 GRAPHICS = [ TYPE = sdl ]\n", b"CPU = 1 MEMORY = 128 GRAPHICS = [ TYPE = vnc ]\n"),
    ("too-many-ide-disks", "a.tmpl", b"CPU=1 MEMORY=9 OS=[MACHINE=pc] DISK=[IMAGE=a,TARGET=hda] DISK=[IMAGE=a,TARGET=hdb] DISK=[IMAGE=a,TARGET=hdc] DISK=[IMAGE=a,TARGET=hdd] DISK=[IMAGE=a,TARGET=hde]\n", b"CPU=1 MEMORY=9 OS=[MACHINE=pc] DISK=[IMAGE=a,TARGET=hda] DISK=[IMAGE=a,TARGET=hdb] DISK=[IMAGE=a,TARGET=hdc] DISK=[IMAGE=a,TARGET=hdd] DISK=[IMAGE=a,TARGET=vda]\n"),
    ("dropped-character", "a.conf", b"VCPU = 1\n;\n", b"VCPU = 1\n# ;\n"),
    ("hash-in-value", "a.conf", b"EVC_MODE = # none\n", b"# none\nEVC_MODE = \"\"\n"),
    ("quotes-kept", "a.conf", b"EVC_MODE = \"abc\";\n", b"EVC_MODE = \"abc\" # ;\n"),
    ("quote-not-closed", "a.conf", b"EVC_MODE = \"abc\n", b"EVC_MODE = \"abc\"\n"),
    ("single-quotes", "a.conf", b"EVC_MODE = 'abc'\n", b"EVC_MODE = abc\n"),
    ("swallowed-lines", "a.conf", b"EVC_MODE = \"a\\\"\nEMULATOR = \"/b\"\n", b"EVC_MODE = \"a\"\nEMULATOR = \"/b\"\n"),
    ("carriage-return", "a.conf", b"EVC_MODE = abc\r\n", b"EVC_MODE = abc\n"),
    ("carriage-return", "kvmrc", b"export LANG=C\r\n", b"export LANG=C\n"),
    ("nul-byte", "a.conf", b"EVC_MODE = \"a\0b\"\n", b"EVC_MODE = \"ab\"\n"),
    ("not-utf8", "a.conf", b"EVC_MODE = \"\xe4\"\n", b"# \xe4\nEVC_MODE = a\n"),
    ("renamed", "a.conf", b"XMLTHING = 1\n", b"VCPU = 1\n"),
    ("repeated-attribute", "a.conf", b"NIC = [ MODEL = a ]\nNIC = [ FILTER = b ]\n", b"NIC = [ MODEL = a, FILTER = b ]\n"),
    ("repeated-member", "a.conf", b"NIC = [ MODEL = a, MODEL = b ]\n", b"NIC = [ MODEL = a ]\n"),
];

fn kvmad() -> Command {
    let mut command = Command::cargo_bin("kvmad").expect("built");
    command.env_remove("ONE_LOCATION");
    command
}

/// Checks files that are written into a folder; gives the exit status and all findings.
fn check(files: &[(&str, &[u8])], more: &[&str]) -> (i32, Vec<Value>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = kvmad();
    command.args(["check-conf", "--format", "json"]).args(more);
    for (name, text) in files {
        let path = folder.path().join(name);
        let head = if *name == "a.conf" { ARCH.as_bytes() } else { b"" };
        fs::write(&path, [head, text].concat()).expect("written");
        command.arg(path);
    }
    let output = command.output().expect("run");
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let findings =
        json.as_array().expect("files").iter().flat_map(|file| file["findings"].as_array().cloned());
    (output.status.code().expect("a status"), findings.flatten().collect())
}

fn ids(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|finding| finding["id"].as_str().expect("an id")).collect()
}

#[test]
fn each_class_is_found_where_it_is_and_nothing_where_it_is_not() {
    let schema = Path::new("/usr/bin/virt-xml-validate").exists() && Path::new("/usr/bin/xmllint").exists();
    for (id, name, bad, good) in PAIRS {
        if name.ends_with(".tmpl") && !schema {
            continue;
        }
        let shown = String::from_utf8_lossy(bad);
        let (status, findings) = check(&[(name, bad)], &["--strict"]);
        assert!(ids(&findings).contains(id), "{shown}: {findings:?}");
        assert_eq!(status, 1, "{shown}");
        for finding in &findings {
            assert!(!finding["why"].as_str().unwrap_or("").is_empty(), "{finding}");
            assert!(!finding["mend"].as_str().unwrap_or("").is_empty(), "{finding}");
        }
        let (status, findings) = check(&[(name, good)], &["--strict"]);
        let shown = String::from_utf8_lossy(good);
        assert_eq!((status, findings), (0, vec![]), "{shown}");
    }
}

#[test]
fn every_class_of_the_documentation_has_such_a_pair() {
    // Two have tests of their own below: one needs two files, one takes ten seconds.
    for (id, _) in FINDINGS.iter().filter(|(id, _)| !matches!(*id, "attach-differs" | "hangs")) {
        assert!(PAIRS.iter().any(|pair| pair.0 == *id), "{id}");
    }
}

#[test]
fn defaults_of_attached_devices_are_compared_with_those_at_deployment() {
    let conf = b"DISK = [ CACHE = none ] NIC = [ MODEL = virtio ]\n".as_slice();
    for (kvmrc, expected) in [
        ("DEFAULT_ATTACH_CACHE=none DEFAULT_ATTACH_NIC_MODEL=virtio", vec![]),
        ("DEFAULT_ATTACH_CACHE=writeback", vec!["attach-differs"]),
        ("DEFAULT_ATTACH_NIC_FILTER=clean-traffic", vec!["attach-differs"]),
        ("DEFAULT_ATTACH_VIRTIO_BLK_IOTHREAD=1", vec![]),
        ("DEFAULT_ATTACH_DISCARD=", vec![]),
        ("DEFAULT_ATTACH_DISCRD=unmap", vec!["unknown-key"]),
    ] {
        let text = format!("export {kvmrc}\n");
        let (status, findings) = check(&[("kvmrc", text.as_bytes()), ("a.conf", conf)], &[]);
        assert_eq!(ids(&findings), expected, "{kvmrc}");
        assert_eq!(status, i32::from(!expected.is_empty()), "{kvmrc}");
    }
}

#[test]
fn a_kvmrc_means_what_bash_says_it_means() {
    // (text, is SHUTDOWN_TIMEOUT found bad, in which line)
    for (text, line) in [
        ("export SHUTDOWN_TIMEOUT=180 LANG=C # 3m", None),
        ("export SHUTDOWN_TIMEOUT='180'", None),
        ("A=18; SHUTDOWN_TIMEOUT=${A}0; unset A", None),
        ("SHUTDOWN_TIMEOUT=3m\nSHUTDOWN_TIMEOUT=180", None),
        ("SHUTDOWN_TIMEOUT=180\n\nSHUTDOWN_TIMEOUT=\"1 80\"", Some(3)),
        ("if true; then\n  export LANG=C SHUTDOWN_TIMEOUT=3m\nfi", Some(2)),
        ("if false; then\n  export SHUTDOWN_TIMEOUT=3m\nfi", None),
        ("# SHUTDOWN_TIMEOUT=3m", None),
        ("LANG=C SHUTDOWN_TIMEOUT=3m true", None),
    ] {
        let (_, findings) = check(&[("kvmrc", text.as_bytes())], &[]);
        let bad = findings.iter().find(|finding| finding["key"] == "SHUTDOWN_TIMEOUT");
        assert_eq!(bad.map(|finding| finding["line"].as_i64().unwrap_or(0)), line, "{text}: {findings:?}");
    }
}

#[test]
fn what_is_in_the_environment_of_the_caller_is_not_in_a_kvmrc() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kvmrc");
    fs::write(&path, "export LANG=C\n").expect("written");
    kvmad()
        .args(["check-conf", "--strict"])
        .arg(&path)
        .env("SHUTDOWN_TIMEOUT", "3m")
        .env("SYNC_TIM", "yes")
        .env("BASH_ENV", "/nonexistent")
        .assert()
        .code(0);
}

#[test]
fn a_kvmrc_that_never_ends_is_a_finding() {
    let (status, findings) = check(&[("kvmrc", b"while :; do sleep 1; done\n")], &[]);
    assert_eq!((status, ids(&findings)), (1, vec!["hangs"]));
}

#[test]
fn notes_count_only_when_they_are_asked_for() {
    let files: &[(&str, &[u8])] = &[("a.conf", b"EVC_MODE = 'abc'\n")];
    assert_eq!(check(files, &[]).0, 0);
    assert_eq!(check(files, &["--strict"]).0, 1);
}

#[test]
fn markup_without_the_schema_is_unchecked_and_with_it_judged() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.conf");
    let good = "RAW = \"<devices><rng model='virtio'><backend model='random'>/dev/urandom</backend></rng></devices>\
                <qemu:commandline><qemu:arg value='-x'/></qemu:commandline>\"\n";
    fs::write(&path, format!("{ARCH}{good}")).expect("written");
    kvmad().arg("check-conf").arg(&path).env("PATH", folder.path()).assert().code(3);
    if Path::new("/usr/bin/virt-xml-validate").exists() && Path::new("/usr/bin/xmllint").exists() {
        kvmad().arg("check-conf").arg(&path).assert().code(0);
        fs::write(&path, format!("{ARCH}{}", good.replace("rng model", "rng modell"))).expect("written");
        kvmad().arg("check-conf").arg(&path).assert().code(1);
    }
}

#[test]
fn a_broken_kvmad_conf_is_unreadable_input_for_the_commands_that_read_it() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("etc")).expect("made");
    fs::write(folder.path().join("etc/kvmad.conf"), "[host]\nidle = soon\n").expect("written");
    for command in ["sync", "monitor", "doctor"] {
        let run =
            kvmad().args([command, "127.0.0.1"]).env("ONE_LOCATION", folder.path()).output().expect("run");
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("line 2: idle in section [host]"), "{command}: {said}");
    }
}

#[test]
fn names_that_opennebula_itself_writes_into_a_vm_are_known() {
    let vms = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/domain/oned-7.4");
    for vm in ["04_kernel_ds_files.alt", "20_disk_options.alt", "02_basic_vm.alt"] {
        let path = vms.join(vm).join("action.xml");
        let output = kvmad().args(["check-conf", "--format", "json"]).arg(path).output().expect("run");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("\"findings\"") && !text.contains("unknown-key"), "{text}");
    }
}

#[test]
fn a_vm_without_the_schema_is_unchecked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.tmpl");
    fs::write(&path, "CPU = 1 MEMORY = 128\n").expect("written");
    kvmad().arg("check-conf").arg(&path).env("PATH", folder.path()).assert().code(3);
}

#[test]
fn what_can_not_be_read_is_status_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kvmad.conf");
    fs::write(&path, b"[log]\ntarget = /\xe4\n").expect("written");
    kvmad().arg("check-conf").arg(&path).assert().code(2);
    kvmad().args(["check-conf", "/nonexistent.conf"]).assert().code(2);
    kvmad().args(["check-conf"]).assert().code(2);
    kvmad().args(["check-conf", "/proc/self/mem"]).assert().code(2);
    kvmad().args(["check-conf", "/"]).assert().code(2);
}

#[test]
fn the_shipped_files_are_without_a_finding() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = kvmad()
        .args(["check-conf", "--strict"])
        .arg(root.join("etc/vmm_exec/vmm_exec_kvm.conf"))
        .arg(root.join("remotes/etc/vmm/kvm/kvmrc"))
        .output()
        .expect("run");
    let text = String::from_utf8_lossy(&status.stdout);
    assert!(text.ends_with("kvmrc: nothing found\n"), "{text}");
    assert!(matches!(status.status.code(), Some(0 | 3)), "{text}");
}

#[test]
fn what_stands_in_a_file_does_not_drive_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("a.conf", "EVC_MODE = \u{1b}[2J;\nOS = [ ARCH = \"\u{1b}]0;x\u{7}\" ]\n\u{1b}A = \u{1b}[1m b\n"),
        ("kvmrc", "export SHUTDOWN_TIMEOUT=$'\\e[2J' LANG=C\nprintf '\\e[2J'\n"),
        ("kvmrc2", "if \u{1b}[2J )\n"),
        ("a.tmpl", "CPU = 1\nMEMORY = \"\u{1b}[2J\"\n"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        let output = kvmad().arg("check-conf").arg(&path).output().expect("run");
        let all = [output.stdout, output.stderr].concat();
        assert!(
            !all.contains(&0x1b) && !all.is_empty(),
            "{name}: {}",
            String::from_utf8_lossy(&all).escape_debug()
        );
    }
}

#[test]
fn people_see_the_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "OS = [ ARCH = x86_64 ]\nFEATURES = [ ACPI = true, PEA = no ]\nNIC = [ MODEL = e1000 VIRTIO_QUEUES = 2 ]\n";
    fs::write(folder.path().join("x.conf"), text).expect("written");
    let output = kvmad().args(["check-conf", "x.conf"]).current_dir(folder.path()).output().expect("run");
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout));
}
