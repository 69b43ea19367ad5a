//! `--fix` mends what it promises, keeps what was, and has nothing to do the second time.

use super::{Undo, as_root, on_front_end};
use crate::harness::bed;
use crate::harness::front_end::FrontEnd;

const BREAK: &str = "cp -a /etc/libvirt/qemu.conf /etc/qemu.test
sed -i '/^group/d; s/^user.*/user = \"libvirt-qemu\"/; s/^dynamic.*/dynamic_ownership = 1/' /etc/libvirt/qemu.conf
gpasswd -d oneadmin libvirt; gpasswd -d oneadmin kvm
install -d -m 750 /srv/doctor";
const MEND: &str = "mv /etc/qemu.test /etc/libvirt/qemu.conf; usermod -aG libvirt,kvm oneadmin; rm -rf /srv/doctor; rm -f /etc/libvirt/*.kvmad-*";
const WORDS: [&str; 4] = ["--datastores", "/srv/doctor/ds", "--images", "/srv/doctor/images"];
/// Everything that the edits are about.
const STATE: &str = "sha256sum /etc/libvirt/* /etc/group /etc/passwd 2>/dev/null; ls -lRa /etc/libvirt /srv/doctor; getfacl -p /srv/doctor 2>/dev/null; id oneadmin";

fn state() -> String {
    bed::sh("node2", &["sh", "-c", STATE])
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_fix_mends_what_it_promises_and_a_second_run_changes_nothing() {
    let _use = bed::alone();
    let front = FrontEnd::staged();
    let _undo = Undo("node2", MEND);
    bed::sh("node2", &["sh", "-ec", BREAK]);
    let broken = state();
    let mended = [
        "qemu-user",
        "qemu-ownership",
        "group-libvirt",
        "group-kvm",
        "dev-kvm",
        "libvirt",
        "datastores-path",
        "datastores",
        "images",
    ];

    let looked = as_root(&front, "node2", &[&["--format", "json"], &WORDS[..]].concat());
    for id in mended {
        let found = looked.of(id);
        assert!(found["verdict"] != "ok" && found["fixable"] == true, "{found}");
    }
    // Nobody answers: the end of the input.
    let unanswered = as_root(&front, "node2", &[&["--fix"], &WORDS[..]].concat());
    assert_eq!(unanswered.status, 1, "{}", unanswered.stdout);
    assert!(unanswered.stdout.contains("do it?"), "{}", unanswered.stdout);
    assert_eq!(state(), broken, "nothing is changed without a yes");
    let unable =
        on_front_end(&front, &["doctor", "node2", "--fix", "--yes", "--datastores", "/srv/doctor/ds"]);
    assert_eq!(unable.status, 1);
    assert!(
        unable.stdout.contains("needs root's rights: kvmad doctor --fix root@node2"),
        "{}",
        unable.stdout
    );
    assert_eq!(state(), broken, "nothing is changed without root's rights");

    let fixed = as_root(&front, "node2", &[&["--fix", "--yes"], &WORDS[..]].concat());
    for shown in [
        "- user = \"libvirt-qemu\"",
        "+ user = \"oneadmin\"",
        "+ dynamic_ownership = 0",
        "usermod -aG libvirt oneadmin",
        "usermod -aG kvm oneadmin",
        // The one that it was, then the one that it is from now on.
        "setfacl -m u:libvirt-qemu:--x /srv/doctor",
        "setfacl -m u:oneadmin:--x /srv/doctor",
        "install -d -o oneadmin -g oneadmin /srv/doctor/ds",
        "install -d -o oneadmin -g oneadmin /srv/doctor/images",
        "it counts after: systemctl restart libvirtd",
    ] {
        assert!(fixed.stdout.contains(shown), "{shown}: {}\n{}", fixed.stdout, fixed.stderr);
    }
    assert_eq!(fixed.status, 0, "{}", fixed.stdout);
    let after = as_root(&front, "node2", &[&["--format", "json"], &WORDS[..]].concat());
    for id in mended {
        assert_eq!(after.of(id)["verdict"], "ok", "{}", after.of(id));
    }
    let backup =
        bed::sh("node2", &["sh", "-c", "cat \"$(ls -d /etc/libvirt/qemu.conf.kvmad-* | head -n 1)\""]);
    assert!(
        backup.contains("user = \"libvirt-qemu\"") && backup.contains("dynamic_ownership = 1"),
        "{backup}"
    );

    let mended_state = state();
    let again = as_root(&front, "node2", &[&["--fix", "--yes"], &WORDS[..]].concat());
    assert!(again.stdout.contains("nothing more that --fix can mend"), "{}", again.stdout);
    assert_eq!(again.status, 0);
    assert_eq!(state(), mended_state, "the second run changes nothing");
}

const SSHD: &str = "mkdir -p /run/doctor /root/.ssh; chmod 700 /root/.ssh; cat >/root/.ssh/authorized_keys; chmod 600 /root/.ssh/authorized_keys
/usr/sbin/sshd -f /dev/null -o Port=2222 -o HostKey=/etc/ssh/ssh_host_ed25519_key -o PidFile=/run/doctor/pid -o UsePAM=no -o PermitRootLogin=yes";
const NO_SSHD: &str =
    "kill \"$(cat /run/doctor/pid)\"; rm -r /run/doctor /root/.ssh; usermod -aG kvm oneadmin";
const CONFIG: &str = "Match originalhost node2 user root\n  Port 2222\n  HostKeyAlias node2\n";

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_fix_from_the_front_end_works_as_root_and_leaves_nothing_behind() {
    let _use = bed::alone();
    let front = FrontEnd::staged();
    let key = bed::sh(bed::FRONT_END, &["cat", "/var/lib/one/.ssh/id_ed25519.pub"]);
    let _undo = Undo("node2", NO_SSHD);
    let script = SSHD.replacen("cat >", "printf '%s' \"$1\" >", 1);
    bed::sh("node2", &["sh", "-ec", &script, "sh", &key]);
    let _config = Undo(bed::FRONT_END, "rm /var/lib/one/.ssh/config");
    let write = "printf '%s' \"$1\" >/var/lib/one/.ssh/config; chown oneadmin: /var/lib/one/.ssh/config; chmod 600 /var/lib/one/.ssh/config";
    bed::sh(bed::FRONT_END, &["sh", "-ec", write, "sh", CONFIG]);
    bed::sh("node2", &["gpasswd", "-d", "oneadmin", "kvm"]);
    let told = on_front_end(&front, &["doctor", "--fix", "--yes", "root@node2", "--only", "group-kvm"]);
    assert!(
        told.stdout.contains("usermod -aG kvm oneadmin (back: gpasswd -d oneadmin kvm)"),
        "{} {}",
        told.stdout,
        told.stderr
    );
    assert_eq!((told.status, told.stderr.as_str()), (0, ""));
    let groups = bed::sh("node2", &["id", "-Gn", "oneadmin"]);
    assert!(groups.split_whitespace().any(|group| group == "kvm"), "{groups}");
    let left = bed::sh("node2", &["sh", "-c", "find /var/tmp -maxdepth 1 -name 'kvmad-doctor-*'"]);
    assert_eq!(left, "");
}
