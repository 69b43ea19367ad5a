//! What a driver does before it speaks. Each of these changes the process, which nextest gives each test of its own.

use std::path::Path;

use kvmad::settings::Paths;
use kvmad::start;

fn front_end(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    folder
}

fn start(folder: &Path) -> start::Started {
    let paths = Paths::below(folder);
    let own = paths.vmm_execrc();
    start::driver(paths, &own, "one_vmm_kvm", Some("http://proxy:3128"))
}

#[test]
fn rc_files_core_configuration_and_settings_are_read() {
    let folder = front_end(&[
        ("etc/defaultrc", "PRIORITY=0\nONE_MAD_DEBUG=\n"),
        ("etc/vmm_exec/vmm_execrc", "A=one\nLIVE_DISK_SNAPSHOTS=\"kvm-qcow2 $A\"\n"),
        ("etc/kvmad.conf", "[host]\nidle = 7s\n"),
        ("var/config", "SCRIPTS_REMOTE_DIR=/var/tmp/two\n"),
    ]);
    let started = start(folder.path());
    assert_eq!(started.fault, None);
    assert_eq!(started.variable("LIVE_DISK_SNAPSHOTS").as_deref(), Some("kvm-qcow2 one"));
    assert_eq!(started.variable("http_proxy").as_deref(), Some("http://proxy:3128"));
    assert_eq!(started.variable("NO_SUCH_VARIABLE_AT_ALL"), None);
    assert_eq!(started.settings.host.idle.as_secs(), 7);
    assert_eq!(started.core.scripts_remote_dir(), "/var/tmp/two");
    let here = std::env::current_dir().expect("a folder");
    assert_eq!(here, folder.path().join("var").canonicalize().expect("there"));
}

#[test]
fn bad_settings_are_a_fault_and_everything_else_a_notice_in_the_debug_log() {
    let folder = front_end(&[
        ("etc/defaultrc", "PRIORITY=high\nONE_MAD_DEBUG=1\n"),
        ("etc/kvmad.conf", "[host]\nidle = soon\n"),
        ("var/remotes/x", ""),
    ]);
    let started = start(folder.path());
    let fault = started.fault.expect("a fault");
    assert!(fault.contains("etc/kvmad.conf, line 2: idle in section [host]"), "{fault}");
    assert_eq!(
        kvmad::mad::form::init(Some(&fault)),
        "INIT FAILURE - idle in kvmad.c",
        "30 bytes and the line end"
    );
    let log = std::fs::read_to_string(folder.path().join("var/one_vmm_kvm.log")).expect("a log");
    for part in ["PRIORITY=\"high\" is no number", "/var/config is not there", "idle in section [host]"] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
}

#[test]
fn a_line_that_is_none_is_named_first_too() {
    let folder = front_end(&[("etc/kvmad.conf", "[host]\nwhat is this\n"), ("var/config", "")]);
    let fault = start(folder.path()).fault.expect("a fault");
    assert!(kvmad::mad::form::init(Some(&fault)).starts_with("INIT FAILURE - line "), "{fault}");
}

#[test]
fn a_driver_is_nice_as_the_wrappers_made_it() {
    let folder = front_end(&[("etc/defaultrc", "PRIORITY=5\n"), ("var/config", "")]);
    let nice = || rustix::process::getpriority_process(None).expect("known");
    let before = nice();
    let _ = start(folder.path());
    assert_eq!(nice(), (before + 5).min(19));
}
