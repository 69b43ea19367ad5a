//! What a guest says of itself, through Debian's own qemu-guest-agent in it, and what becomes of the commands that run there.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kvmad::node::monitor::message::Kind;

use super::attributes::{Bridge, HOST, figures, shown};
use super::{Monitored, PATIENCE, SHORT};
use crate::harness::bed;
use crate::harness::vm::Vm;

const ID: u32 = 5903;
const BOOT: Duration = Duration::from_secs(180);

const CONF: &str = r#":enabled: true
:commands:
  :vm_qemu_ping: "$vm_id '{\"execute\":\"guest-ping\"}' --timeout 5"
  :host_name: "$vm_id '{\"execute\":\"guest-get-host-name\"}'"
  :for_this_system:
    :command: "$vm_id '{\"execute\":\"guest-get-time\"}'"
    :os_ids: [kvmadguest]
    :os_machines: [x86_64]
  :for_another_system:
    :command: "$vm_id '{\"execute\":\"guest-get-time\"}'"
    :os_ids: [mswindows]
  :no_question: "$vm_id '{\"execute\":\"guest-nonsense\"}'"
"#;

/// The guest's domain, started from a kernel with the agent in its first file system.
fn domain(vm: &Vm) -> String {
    let boot = format!(
        "<kernel>{0}/vmlinuz</kernel><initrd>{0}/initrd.img</initrd><cmdline>console=ttyS0 no_timer_check tick rdinit=/init-with-agent</cmdline></os>",
        vm.folder().display()
    );
    let channel = "<channel type='unix'><source mode='bind'/><target type='virtio' name='org.qemu.guest_agent.0'/></channel><serial type='pty'>";
    let xml = vm.domain_xml();
    xml.replace("<boot dev='hd'/></os>", &boot)
        .replace("<serial type='pty'>", channel)
        .replace("<memory>131072", "<memory>262144")
}

/// What the guest's agent answers to whoever asks it on the host.
fn answer(command: &str) -> serde_json::Value {
    let words = ["qemu-agent-command", "one-5903", &format!("{{\"execute\":\"{command}\"}}")];
    let text = bed::virsh(HOST, &words).unwrap_or_else(|| panic!("the agent does not answer {command}"));
    serde_json::from_str::<serde_json::Value>(&text).expect("JSON")["return"].clone()
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_what_a_guest_with_an_agent_says_is_told_and_the_result_of_its_command_too() {
    // Any agent of the host would fetch the result of the command.
    let _use = bed::alone();
    let mut monitored = Monitored::new(HOST, ID, SHORT, "");
    let _bridge = Bridge::make("bedbr5903");
    monitored.front.put("var/remotes/etc/im/kvm-probes.d/guestagent.conf", 0o644, CONF);
    let vm = Vm::with_network(&monitored.front, ID, HOST, "bedbr5903", "dummy");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/remotes/guest-with-agent");
    let made =
        Command::new(script).arg(bed::folder().join("guest-cloud")).arg(vm.folder()).output().expect("bash");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    monitored.start();
    let file = vm.folder().join("deployment.0");
    fs::write(&file, domain(&vm)).expect("a file on the shared storage");
    bed::sh(HOST, &["virsh", "-q", "-c", "qemu:///system", "create", &file.display().to_string()]);
    vm.wait_said("READY at", 1, BOOT);
    vm.type_until("ifconfig eth0 10.77.59.3 && echo has-an-\"address\"", "has-an-address");

    let told = |name: &str, value: &str| {
        let fits =
            |text: &str| figures(text, ID).is_some_and(|f| f.get(name).is_some_and(|v| v.contains(value)));
        let seen = monitored.receiver.count();
        figures(&monitored.receiver.wait(seen, PATIENCE, |m| m.kind == Kind::Vm && fits(&m.text)).1.text, ID)
            .expect("seen")
    };
    let all = told("GUEST_IP_ADDRESSES", "10.77.59.3");
    let system = answer("guest-get-osinfo");
    assert_eq!(system["id"], "kvmadguest", "what the guest's own file says");
    let text = |name: &str| system[name].as_str().expect(name);
    assert_eq!(all["OS_ID"], text("id"));
    assert_eq!(all["OS_VERSION"], text("version-id"));
    assert_eq!((all["OS_MACHINE"].as_str(), &*shown("uname -m")), (text("machine"), text("machine")));
    assert_eq!(all["OS_TYPE"], "posix");
    let addresses = answer("guest-network-get-interfaces").to_string();
    assert!(all["GUEST_IP_ADDRESSES"].split(',').all(|one| addresses.contains(one)), "{all:?} {addresses}");
    assert_eq!(all["VM_QEMU_PING"], "{}");
    assert!(all["HOST_NAME"].contains("host-name"), "{all:?}");
    assert!(all["FOR_THIS_SYSTEM"].parse::<u64>().is_ok(), "{all:?}");
    assert!(!all.contains_key("FOR_ANOTHER_SYSTEM"), "{all:?}");
    assert!(all["NO_QUESTION"].contains("guest-nonsense"), "{all:?}");

    // A command, as the driver starts it; what it printed comes once, in base64.
    let seen = monitored.receiver.count();
    let exec = format!("{}/vmm/kvm/exec", monitored.front.remotes());
    let mut command = bed::as_oneadmin(HOST);
    command.args([&exec, "5903", HOST, "/bin/sh -c 'cat; echo wrong >&2; exit 7'", "QUdFTlQ="]);
    let output = bed::run(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = monitored.receiver.text(seen, Kind::Exec, "ID=\"5903\"", PATIENCE).text;
    for part in ["STATUS=\"DONE\"", "RETURN_CODE=\"7\"", "STDOUT=\"QUdFTlQ=\"", "STDERR=\"d3JvbmcK\""] {
        assert!(result.contains(part), "{part}: {result}");
    }
    assert!(!bed::host_path(HOST, "/var/run/one/one-5903").exists(), "told, so forgotten");

    // The agent goes away, the figures of the VM do not.
    vm.type_until("kill $(pidof ld-linux-x86-64.so.2) && echo no-\"agent\"", "no-agent");
    let all = told("VM_QEMU_PING", "agent");
    assert!(all.contains_key("CPU") && all.contains_key("MEMORY"), "{all:?}");
    monitored.stop();
}
