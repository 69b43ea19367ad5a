//! Somebody who has only the README: its own blocks are what is run, line by line and in their order, on a clean Debian (a
//! machine in namespaces), from the package to a running VM, and from OpenNebula's driver to ours and back.
//!
//! What is not there stands in: systemd (its daemons are started when their packages are), Debian's image server (a local one
//! under its name, with a small guest), oned (what its files name is started as it starts it), `onehost`.

mod machine;
mod oned;

use std::path::Path;
use std::time::Duration;

use kvmad::node::monitor::message::{pack, unpack};

use self::machine::Machine;
use self::oned::{Started, entry, switched, value};
use crate::harness::document::{Document, cdata};
use crate::harness::{bed, wait_for};
use crate::packages::package;
use crate::packages::root::{project, run};
use crate::readme::page;
use crate::vm::server::{Place, Server};

/// The fenced blocks of a section of the README, with their languages.
fn blocks(section: &str) -> Vec<(String, Vec<String>)> {
    let readme = page("README.md");
    let heading = format!("\n## {section}\n");
    let text = readme.split(&heading).nth(1).unwrap_or_else(|| panic!("no section {section}"));
    let text = text.split("\n## ").next().unwrap_or_default();
    let block = |block: &str| {
        let (language, lines) = block.split_once('\n').expect("lines");
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
        (language.to_owned(), lines.map(str::to_owned).collect())
    };
    text.split("```").skip(1).step_by(2).map(block).collect()
}

/// The lines of the blocks of shell.
fn shell(section: &str) -> Vec<Vec<String>> {
    blocks(section).into_iter().filter(|(language, _)| language == "sh").map(|(_, lines)| lines).collect()
}

const DEBIAN: &str = "From Debian to a running VM";
const SWITCH: &str = "Switch a front-end over";

/// A machine on which the section "Install" was followed. Its first line makes the package, which is done for all tests.
fn installed(packages: &str) -> Machine {
    let machine = Machine::boot(packages);
    let lines = shell("Install").concat();
    let [make, install] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(make, "make package");
    let file = install.strip_prefix("apt install ./").unwrap_or_else(|| panic!("{install}"));
    machine.copy(&package("0.1.0", "deb"), &format!("/root/{file}"));
    machine.good("root", install);
    machine
}

/// What systemd does when the packages are installed.
fn daemons(machine: &Machine) {
    let start = "mkdir -p /run/dbus && dbus-daemon --system --fork && /usr/sbin/sshd && /usr/sbin/virtlogd -d && /usr/sbin/libvirtd -d";
    machine.good("root", start);
    let answers = || (machine.line("root", "virsh -c qemu:///system list").status == Some(0)).then_some(());
    wait_for(Duration::from_secs(60), answers).expect("libvirtd answers");
}

/// Debian's server of images, with the guest of the test bed. The machine trusts it and finds it by its name.
fn images(machine: &Machine, host: &str) -> Server {
    let image = machine.work().join("image.qcow2");
    let script = project().join("tests/operator/walk/dhcp-image");
    run(std::process::Command::new(script).arg(bed::folder().join("guest-cloud")).arg(&image));
    let place = Place {
        enter: &|| machine.network(),
        address: "127.0.0.2",
        name: &format!("DNS:{host}"),
        folder: machine.work().join("https"),
    };
    let server = Server::at(&image, 443, place);
    machine.copy(&server.certificate(), "/usr/local/share/ca-certificates/images.crt");
    machine.good("root", &format!("update-ca-certificates; echo 127.0.0.2 {host} >>/etc/hosts"));
    server
}

/// Runs the console in a terminal of its own: a look at it, a line for its shell, Ctrl-].
fn console(machine: &Machine, user: &str, line: &str) -> String {
    let typed =
        "sleep 3; printf '\\n'; sleep 1; printf 'echo so $((6 * 7))\\n'; sleep 3; printf '\\035'; sleep 1";
    machine.good(user, &format!("({typed}) | script -qec '{line}' /dev/null"))
}

#[test]
#[ignore = "needs the test bed's guest, root and Debian's packages: make test"]
fn from_debian_to_a_running_vm_by_the_readme_alone() {
    let all = shell(DEBIAN);
    let [first, key, vm] = all.as_slice() else { panic!("{all:?}") };
    let machine = installed(&first[0]);

    machine.good("root", &first[0]);
    daemons(&machine);
    let user = first[1].strip_prefix("USER_OF_VMS=").unwrap_or_else(|| panic!("{first:?}"));
    machine.good("root", &format!("useradd --create-home --shell /bin/bash {user}"));
    let looks: Vec<_> =
        first[2..].iter().map(|line| machine.line("root", &format!("{}; {line}", first[1]))).collect();
    let [before, fix, after] = looks.as_slice() else { panic!("{first:?}") };
    assert_eq!(before.status, Some(1), "{before:?}");
    for id in ["dev-kvm", "libvirt", "images"] {
        assert!(before.text.contains(&format!(" {id} ")), "{id}: {before:?}");
    }
    for done in [
        format!("usermod -aG kvm {user}"),
        format!("usermod -aG libvirt {user}"),
        format!("install -d -o {user} -g {user} /var/lib/libvirt/images/kvmad"),
    ] {
        assert!(fix.text.contains(&done), "{done}: {fix:?}");
    }
    assert_eq!(fix.status, Some(0), "{fix:?}");
    assert_eq!(after.status, Some(0), "{after:?}");
    let again = machine.line("root", &format!("{}; {}", first[1], first[3]));
    assert!(again.text.contains("nothing more that --fix can mend"), "{again:?}");

    for line in key {
        machine.good(user, line);
    }

    let image = vm[0].split_whitespace().find(|word| word.starts_with("https://")).expect("a URL");
    let server = images(&machine, image.split('/').nth(2).expect("a host"));
    let [create, address, console_line, delete] = vm.as_slice() else { panic!("{vm:?}") };
    let said = machine.good(user, create);
    assert!(said.contains("first runs on localhost"), "{said}");
    assert_eq!(server.served().len(), 1, "{:?}", server.served());
    let said = machine.good(user, address);
    assert!(said.lines().any(|line| line.starts_with("192.168.122.") && line.ends_with("/24")), "{said}");
    let said = console(&machine, user, console_line);
    assert!(said.contains("so 42"), "{said}");
    let said = machine.good(user, delete);
    assert!(said.contains("first is gone"), "{said}");
    assert_eq!(machine.good("root", "virsh -c qemu:///system --quiet list --all").trim(), "");
    assert_eq!(machine.good("root", "ls /var/lib/libvirt/images/kvmad").trim(), "base");
}

/// oned.conf and monitord.conf, in the form of OpenNebula 7.4.
const ONED_CONF: &str = "# core
VM_MAD = [
    NAME           = \"dummy\",
    EXECUTABLE     = \"one_vmm_dummy\",
    TYPE           = \"xml\"
]

# KVM hosts
VM_MAD = [
    NAME           = \"kvm\",
    SUNSTONE_NAME  = \"KVM\",
    EXECUTABLE     = \"one_vmm_exec\",
    ARGUMENTS      = \"-t 15 -r 0 -p kvm\",
    DEFAULT        = \"vmm_exec/vmm_exec_kvm.conf\",
    TYPE           = \"kvm\"
]
";
const MONITORD_CONF: &str = "NETWORK = [ PORT = 4124 ]
IM_MAD = [
      NAME          = \"kvm\",
      SUNSTONE_NAME = \"KVM\",
      EXECUTABLE    = \"one_im_ssh\",
      ARGUMENTS     = \"-r 3 -t 15 -w 90 kvm\",
      THREADS       = 0
]
";

/// Stands in for the driver that was there before.
const FOREIGN: &str = "#!/bin/bash
while read -r verb id rest; do
  case $verb in
    INIT) echo 'INIT SUCCESS - -' ;;
    FINALIZE) exit 0 ;;
    *) echo \"$verb SUCCESS $id foreign\" ;;
  esac
done
";

/// A front-end of OpenNebula with one host, node1, on one machine: what OpenNebula's packages and its administrator did.
fn front_end(machine: &Machine) {
    let tests = project().join("tests");
    machine.write("/etc/one/oned.conf", ONED_CONF);
    machine.write("/etc/one/monitord.conf", MONITORD_CONF);
    for program in ["one_vmm_exec", "one_im_ssh"] {
        machine.write(&format!("/usr/lib/one/mads/{program}"), FOREIGN);
    }
    machine.copy(&tests.join("testbed/as-oned"), "/usr/local/lib/as-oned");
    run(std::process::Command::new("cp")
        .arg("-a")
        .arg(tests.join("bed/foreign-remotes"))
        .arg(machine.at("/var/lib/one/remotes")));
    machine.write("/var/lib/one/remotes/im/run_probes", "#!/bin/sh\n");
    machine.write("/var/lib/one/remotes/etc/vnm/OpenNebulaNetwork.conf", ":keep_empty_bridge: false\n");
    machine.write("/usr/local/bin/systemctl", "#!/bin/sh\necho \"$*\" >>/root/systemctl\n");
    let onehost = "#!/bin/sh\n[ \"$*\" = 'sync --force' ] || exit 2\nrm -rf /var/tmp/one\ncp -a /var/lib/one/remotes /var/tmp/one\n";
    machine.write("/usr/local/bin/onehost", onehost);
    machine.write("/root/front-end", "set -e
useradd --system --user-group --no-create-home --home-dir /var/lib/one --shell /bin/bash --groups libvirt,kvm oneadmin
usermod -p '*' oneadmin
chown -R oneadmin: /var/lib/one
chmod 755 /usr/lib/one/mads/* /usr/local/bin/* /usr/local/lib/as-oned /var/lib/one
printf 'user = \"oneadmin\"\\ngroup = \"oneadmin\"\\ndynamic_ownership = 0\\n' >>/etc/libvirt/qemu.conf
echo 127.0.0.3 node1 >>/etc/hosts
su -c \"ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519; cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys\" oneadmin
");
    machine.good("root", "bash /root/front-end");
    daemons(machine);
    machine.good("oneadmin", "ssh -o StrictHostKeyChecking=accept-new node1 true");
}

/// A VM of oned: an empty disk in the system datastore, its deployment file, and the document of its DEPLOY.
fn vm(machine: &Machine) -> Document {
    let folder = "/var/lib/one/datastores/0/42";
    let disk = format!("{folder}/disk.0");
    machine
        .good("oneadmin", &format!("mkdir -p {folder} ~/vms/42 && qemu-img create -q -f qcow2 {disk} 16M"));
    let mkdom = bed::programs().join("mkdom");
    let domain =
        run(std::process::Command::new(mkdom).args(["one-42", "kvm", &disk]).env("SYSTEM_DATASTORE", folder));
    machine.write("/var/lib/one/vms/42/deployment.0", &domain);
    let disk =
        [("DISK_ID", "0"), ("TYPE", "FILE"), ("FORMAT", "qcow2"), ("TARGET", "vda"), ("TM_MAD", "shared")];
    let disk: String = disk.iter().map(|(name, text)| cdata(name, text)).collect();
    Document {
        host: "node1".to_owned(),
        vm: 42,
        local_file: "/var/lib/one/vms/42/deployment.0".to_owned(),
        remote_file: format!("{folder}/deployment.0"),
        template: format!("{}{}<DISK>{disk}</DISK>", cdata("CPU", "1"), cdata("MEMORY", "128")),
        datastore: "/var/lib/one/datastores".to_owned(),
        ..Document::default()
    }
}

/// The recorded request of OpenNebula 7.4, for host 0 as node1.
fn monitoring(verb: &str) -> String {
    let all = include_str!("../../corpus/monitord-7.4/driver-conversation.txt");
    let line = all.lines().find_map(|line| line.strip_prefix("> START_MONITOR - 0 0 ")).expect("recorded");
    let document = String::from_utf8(unpack(line).expect("packed")).expect("text");
    let document = document.replacen("<NAME>host1</NAME>", "<NAME>node1</NAME>", 1).replacen(
        "<IM_MAD><![CDATA[dummy]]>",
        "<IM_MAD><![CDATA[kvm]]>",
        1,
    );
    format!("{verb} - 0 0 {}", pack(document.as_bytes()))
}

/// Every file of the remotes with its content's checksum.
fn remotes(machine: &Machine) -> String {
    machine.good("root", "cd /var/lib/one/remotes && find . -type f -exec sha256sum {} + | sort -k 2")
}

/// The file names the driver that was there before, and it answers.
fn is_foreign(machine: &Machine, (file, section): (&str, &str), payload: &str) {
    let mut started = Started::by(machine, file, section);
    assert!(started.program.starts_with("/usr/lib/one/mads/"), "{}", started.program);
    let reply = started.ask("DEPLOY", 42, &format!("DEPLOY  42 {payload}"));
    assert!(reply.info == "foreign", "the driver that was there before: {}", reply.raw);
    started.end();
}

#[test]
#[ignore = "needs the test bed's packages, root and Debian's packages: make test"]
fn a_front_end_is_switched_over_and_back_by_the_readme_alone() {
    let machine = installed(&shell(DEBIAN)[0][0]);
    front_end(&machine);
    let all = blocks(SWITCH);
    let languages: Vec<&str> = all.iter().map(|(language, _)| language.as_str()).collect();
    assert_eq!(languages, ["sh", "", "", "sh", "sh"], "remotes, two lines, restart, the way back");
    let lines: Vec<&Vec<String>> = all.iter().map(|(_, lines)| lines).collect();
    let (vmm, im) = (("/etc/one/oned.conf", "VM_MAD"), ("/etc/one/monitord.conf", "IM_MAD"));
    let payload = vm(&machine).payload();
    is_foreign(&machine, vmm, &payload);
    let untouched = remotes(&machine);

    let said: String = lines[0].iter().map(|line| machine.good("root", line)).collect();
    assert!(said.contains("replaced    vmm/kvm/deploy") && said.contains("node1"), "{said}");
    let mut old = Vec::new();
    for ((file, section), line) in [(vmm, lines[1]), (im, lines[2])] {
        let conf = std::fs::read_to_string(machine.at(file)).expect("it");
        let range = entry(&conf, section, "kvm");
        old.push(value(&conf[range], "EXECUTABLE").expect("the old one"));
        machine.write(file, &switched(&conf, section, "kvm", &line[0]));
    }
    lines[3].iter().for_each(|line| drop(machine.good("root", line)));

    let mut driver = Started::by(&machine, vmm.0, vmm.1);
    assert_eq!(driver.program, "/usr/lib/kvmad/mads/one_vmm_exec");
    let reply = driver.ask("DEPLOY", 42, &format!("DEPLOY  42 {payload}"));
    assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    let virsh = "virsh -c qemu:///system --quiet";
    assert_eq!(machine.good("root", &format!("{virsh} list --name")).trim(), "one-42");
    let mut monitor = Started::by(&machine, im.0, im.1);
    assert_eq!(monitor.program, "/usr/lib/kvmad/mads/one_im_exec");
    let reply = monitor.ask("START_MONITOR", 0, &monitoring("START_MONITOR"));
    assert!(reply.succeeded(), "{}\n{}", reply.raw, monitor.conversation.text());
    let packed = reply.info.split(' ').nth(1).expect("a document");
    let told = String::from_utf8(unpack(packed).expect("packed")).expect("text");
    assert!(told.contains("<STATE_VM>"), "{told}");
    let reply = monitor.ask("STOP_MONITOR", 0, &monitoring("STOP_MONITOR"));
    assert!(reply.succeeded(), "{}", reply.raw);
    monitor.end();
    driver.end();

    for ((file, section), executable) in [vmm, im].into_iter().zip(old) {
        let conf = std::fs::read_to_string(machine.at(file)).expect("it");
        machine.write(file, &switched(&conf, section, "kvm", &format!("EXECUTABLE = \"{executable}\",")));
    }
    lines[4].iter().for_each(|line| drop(machine.good("root", line)));
    assert_eq!(remotes(&machine), untouched, "OpenNebula's remotes are as they were");
    is_foreign(&machine, vmm, &payload);
    assert_eq!(machine.good("root", &format!("{virsh} list --name")).trim(), "one-42", "VMs run on");
    let restarts = std::fs::read_to_string(machine.at("/root/systemctl")).expect("restarted");
    assert_eq!(restarts, "restart opennebula\nrestart opennebula\n");
    assert!(Path::new(&machine.at("/var/tmp/one/vmm/kvm/deploy")).exists());
}
