//! Hosts that are broken on purpose: each check that the bed can make fail is found, with its id and its mend. (Those
//! that it can't are made to fail with stand-in hosts, in src/node/check/tests.rs.)

use std::time::Duration;

use super::{Undo, as_root, on_front_end, with};
use crate::harness::front_end::FrontEnd;
use crate::harness::{bed, processes, wait_for};

/// One way to break node2.
struct Case {
    /// Shell that breaks it.
    breaks: &'static str,
    /// Shell that takes it back.
    mends: &'static str,
    /// Further words for the doctor.
    words: &'static [&'static str],
    /// What is to be found: id, verdict, in the evidence, in the mend.
    found: &'static [(&'static str, &'static str, &'static str, &'static str)],
}

const fn case(
    breaks: &'static str,
    mends: &'static str,
    words: &'static [&'static str],
    found: &'static [(&'static str, &'static str, &'static str, &'static str)],
) -> Case {
    Case { breaks, mends, words, found }
}

const KEEP_QEMU: &str = "mv /etc/libvirt/qemu.conf.test /etc/libvirt/qemu.conf";

#[rustfmt::skip]
const CASES: &[Case] = &[
    case("cp -a /etc/libvirt/qemu.conf /etc/libvirt/qemu.conf.test; sed -i 's/^user.*/user = \"root\"/; s/^dynamic.*/dynamic_ownership = 1/' /etc/libvirt/qemu.conf",
        KEEP_QEMU, &[],
        &[("qemu-user", "failure", "user = \"root\"", "user = \"oneadmin\""),
          ("qemu-ownership", "failure", "dynamic_ownership = 1", "dynamic_ownership = 0")]),
    case("gpasswd -d oneadmin libvirt", "usermod -aG libvirt oneadmin", &[],
        &[("group-libvirt", "failure", "not in group libvirt", "usermod -aG libvirt oneadmin"),
          ("libvirt", "failure", "does not answer", "usermod -aG libvirt")]),
    case("gpasswd -d oneadmin kvm", "usermod -aG kvm oneadmin", &[],
        &[("group-kvm", "failure", "not in group kvm", "usermod -aG kvm oneadmin"),
          ("dev-kvm", "failure", "may not be opened by oneadmin", "usermod -aG kvm")]),
    case("install -d -m 750 /srv/doctor; install -d -o oneadmin /srv/doctor/ds", "rm -rf /srv/doctor",
        &["--datastores", "/srv/doctor/ds", "--images", "/srv/doctor/images"],
        &[("datastores-path", "failure", "/srv/doctor does not let oneadmin pass", "setfacl -m u:oneadmin:--x /srv/doctor"),
          ("images-path", "failure", "/srv/doctor does not let oneadmin pass", "setfacl -m u:oneadmin:--x /srv/doctor")]),
    case("install -d /srv/doctor", "rm -rf /srv/doctor", &["--datastores", "/srv/doctor"],
        &[("datastores", "failure", "may not make files there", "chown oneadmin:oneadmin /srv/doctor")]),
    case("ip link add doctor0 type bridge", "ip link del doctor0", &["--bridge", "doctor0"],
        &[("bridge-port", "warning", "without a port that leads out: doctor0", "ip link set NIC master doctor0")]),
    case("true", "true", &["--bridge", "doctor9", "--network", "doctor9"],
        &[("bridge", "failure", "not there: doctor9", "netplan try"),
          ("nat-network", "warning", "there is no libvirt network doctor9", "net-define")]),
    case("mv /etc/sudoers.d/testbed /etc/testbed.test", "mv /etc/testbed.test /etc/sudoers.d/testbed", &[],
        &[("sudo", "warning", "without a password", "opennebula-node-kvm")]),
    case("cp -a /etc/hosts /etc/hosts.test; printf '127.0.0.1 localhost\\n127.0.1.1 node2\\n' >/etc/hosts", "cat /etc/hosts.test >/etc/hosts; rm /etc/hosts.test", &[],
        &[("host-name", "warning", "resolves to 127.0.1.1", "/etc/hosts")]),
    case("mkdir -p /run/systemd/seats /etc/systemd/logind.conf.d; printf '[Login]\\nKillUserProcesses=yes\\n' >/etc/systemd/logind.conf.d/doctor.conf",
        "rm -r /run/systemd/seats /etc/systemd/logind.conf.d/doctor.conf", &[],
        &[("kill-user-processes", "failure", "doctor.conf", "loginctl enable-linger oneadmin")]),
    case("cp -a /etc/ssh/sshd_config /etc/sshd.test; sed -i 's/^MaxSessions.*/MaxSessions 2/' /etc/ssh/sshd_config", "mv /etc/sshd.test /etc/ssh/sshd_config", &[],
        &[("ssh-sessions", "warning", "MaxSessions 2", "MaxSessions 64")]),
    case("mv /usr/bin/qemu-img /usr/bin/qemu-img.test", "mv /usr/bin/qemu-img.test /usr/bin/qemu-img", &[],
        &[("qemu-img", "failure", "is not there", "apt-get install qemu-utils")]),
    case("printf 'echo welcome\\n' >/var/lib/one/.bashrc; chown oneadmin: /var/lib/one/.bashrc", "rm /var/lib/one/.bashrc", &[],
        &[("quiet-shell", "warning", "welcome", "~/.bashrc")]),
];

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_each_way_to_break_a_host_is_found_with_its_id_and_its_mend() {
    let _use = bed::alone();
    let front = FrontEnd::staged();
    let healthy = as_root(&front, "node2", &["--format", "json"]);
    assert_eq!(with(&healthy.findings(0), "failure"), [""; 0], "{}", healthy.stdout);
    for case in CASES {
        let undo = Undo("node2", case.mends);
        bed::sh("node2", &["sh", "-ec", case.breaks]);
        let told = as_root(&front, "node2", &[&["--format", "json"], case.words].concat());
        drop(undo);
        for (id, verdict, evidence, mend) in case.found {
            let found = told.of(id);
            let has = |key: &str, words: &str| found[key].as_str().is_some_and(|text| text.contains(words));
            assert!(
                found["verdict"] == *verdict && has("evidence", evidence) && has("mend", mend),
                "{}: {found:#}",
                case.breaks
            );
        }
        let failed = case.found.iter().any(|(_, verdict, ..)| *verdict == "failure");
        assert_eq!(told.status, i32::from(failed), "{}", case.breaks);
    }
    let again = as_root(&front, "node2", &["--format", "json"]);
    assert_eq!(with(&again.findings(0), "failure"), [""; 0], "the bed is as it was: {}", again.stdout);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_what_only_root_may_read_could_not_be_checked_and_is_no_failure() {
    let _use = bed::alone();
    let front = FrontEnd::staged();
    let _undo = Undo("node2", "chmod 644 /etc/libvirt/qemu.conf");
    bed::sh("node2", &["chmod", "600", "/etc/libvirt/qemu.conf"]);
    let told = on_front_end(
        &front,
        &["doctor", "node2", "--only", "qemu-user", "--only", "qemu-ownership", "--format", "json"],
    );
    assert_eq!(with(&told.findings(0), "could-not-check"), ["qemu-user", "qemu-ownership"]);
    assert!(told.of("qemu-user")["mend"].as_str().is_some_and(|mend| mend.contains("root@HOST")));
    assert_eq!(told.status, 3);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_remotes_on_a_file_system_without_exec_or_of_another_user_are_found_from_the_front_end() {
    let _use = bed::alone();
    let front = FrontEnd::staged();
    assert_eq!(on_front_end(&front, &["sync", "node2"]).status, 0);
    let folder = front.remotes();
    let undo = format!("chown -R oneadmin: {folder}");
    {
        let _undo = Undo("node2", &undo);
        bed::sh("node2", &["chown", "root", folder]);
        let told = on_front_end(&front, &["doctor", "node2", "--only", "remotes", "--format", "json"]);
        let found = told.of("remotes");
        assert_eq!(found["verdict"], "failure", "{found}");
        assert!(
            found["mend"].as_str().is_some_and(|mend| mend.contains(&format!("chown -R oneadmin: {folder}")))
        );
    }
    front.put("var/remotes/a-new-file", 0o644, "x");
    let stale = on_front_end(&front, &["doctor", "node2", "--only", "remotes-version", "--format", "json"]);
    assert_eq!(stale.of("remotes-version")["verdict"], "warning", "{}", stale.stdout);
    let undo = format!("umount {folder}");
    let _undo = Undo("node2", &undo);
    let remount = format!("mount --bind {folder} {folder} && mount -o remount,bind,noexec {folder}");
    bed::sh("node2", &["sh", "-c", &remount]);
    let told = on_front_end(&front, &["doctor", "node2", "--format", "json"]);
    assert_eq!(with(&told.findings(0), "failure"), ["helper", "noexec"], "{}", told.stdout);
    assert!(told.of("noexec")["mend"].as_str().is_some_and(|mend| mend.contains("remount,exec")));
    assert_eq!(told.of("qemu-user")["verdict"], "ok", "the rest is checked all the same");
}

fn libvirtd(host: &str) -> u32 {
    let all = processes::of_host(host);
    let is_it = |p: &&processes::Process| p.arguments.first().is_some_and(|word| word.ends_with("libvirtd"));
    all.values().find(is_it).expect("the host has a libvirtd").pid
}

fn answers(host: &str) -> bool {
    bed::virsh(host, &["list", "--name"]).is_some()
}

fn stop_libvirtd(host: &str) {
    processes::signal(libvirtd(host), "TERM");
    wait_for(Duration::from_secs(30), || (!answers(host)).then_some(())).expect("libvirtd has gone");
}

const START: &str = "/usr/sbin/libvirtd -d --listen; for i in $(seq 100); do virsh -c qemu:///system list >/dev/null 2>&1 && exit 0; sleep 0.2; done; exit 1";

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_a_daemon_that_is_stopped_and_two_hosts_with_one_uuid_are_found() {
    let _use = bed::alone();
    let front = FrontEnd::staged();
    let uuid = bed::sh("node1", &["sed", "-n", "s/^host_uuid = //p", "/etc/libvirt/libvirtd.conf"]);
    {
        let _start = Undo("node2", START);
        stop_libvirtd("node2");
        let told = as_root(&front, "node2", &["--format", "json"]);
        let found = told.of("libvirt");
        assert_eq!(found["verdict"], "failure", "{found}");
        assert!(
            found["mend"].as_str().is_some_and(|mend| mend.contains("systemctl start libvirtd")),
            "{found}"
        );
        for id in ["libvirt-kvm", "host-uuid", "nat-network"] {
            assert_eq!(told.of(id)["verdict"], "could-not-check", "{id}");
        }
        bed::sh("node2", &["cp", "-a", "/etc/libvirt/libvirtd.conf", "/etc/libvirt/libvirtd.conf.test"]);
        let line = format!("s/^host_uuid.*/host_uuid = {}/", uuid.trim());
        bed::sh("node2", &["sed", "-i", &line, "/etc/libvirt/libvirtd.conf"]);
    }
    let told =
        on_front_end(&front, &["doctor", "node1", "node2", "--only", "pair-host-uuid", "--format", "json"]);
    stop_libvirtd("node2");
    bed::sh("node2", &["mv", "/etc/libvirt/libvirtd.conf.test", "/etc/libvirt/libvirtd.conf"]);
    bed::sh("node2", &["sh", "-c", START]);
    let found = told.json()["pairs"][0]["findings"][0].clone();
    assert_eq!(
        (found["id"].as_str(), found["verdict"].as_str()),
        (Some("pair-host-uuid"), Some("failure")),
        "{found}"
    );
    assert!(found["mend"].as_str().is_some_and(|mend| mend.contains("host_uuid")), "{found}");
    assert_eq!(told.status, 1);
}
