//! On real libvirt hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::hand::{Hand, cloud_image, in_guest, said, small_image};
use super::server::Server;
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::vm::Vm;
use crate::harness::{bed, processes, wait_for};

/// systemd and cloud-init take one and a half minutes under software emulation, ten on a very busy machine.
const CLOUD_BOOT: Duration = Duration::from_secs(1200);
const BOOT: Duration = Duration::from_secs(180);

const OWN: &str = "#cloud-config\nssh_genkeytypes: [ed25519]\nlocale: false\nwrite_files:\n- path: /etc/own\n  content: merged\n";

/// A bridge of its own on a host, which the host has a leg in.
struct Bridge(&'static str, &'static str);

impl Bridge {
    fn new(host: &'static str, name: &'static str, address: &str) -> Self {
        let bridge = Self(host, name);
        bridge.remove();
        bed::sh(host, &["ip", "link", "add", name, "type", "bridge"]);
        bed::sh(host, &["ip", "addr", "add", address, "dev", name]);
        bed::sh(host, &["ip", "link", "set", name, "up"]);
        bridge
    }

    fn remove(&self) {
        let mut command = bed::on(self.0);
        command.args(["ip", "link", "del", self.1]);
        bed::run(command);
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.remove();
    }
}

fn key() -> String {
    bed::folder().join("keys/id.pub").display().to_string()
}

/// A file that oneadmin can read on the front-end.
fn file(hand: &Hand, name: &str, text: &str) -> String {
    hand.front.put(&format!("var/{name}"), 0o644, text);
    hand.front.folder().join("var").join(name).display().to_string()
}

fn sha256(path: &Path) -> String {
    let mut command = Command::new("sha256sum");
    command.arg(path);
    let text = said(bed::run(command)).out;
    format!("sha256:{}", text.split(' ').next().expect("a sum"))
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_real_cloud_init_gets_its_address_key_and_resolvers_bridged_and_by_nat_and_a_cut_download_goes_on() {
    let image = cloud_image();
    let size = fs::metadata(&image).expect("the image").len();
    let _use = bed::shared();
    let server = Server::start(&image, 8443);
    let mut hand = Hand::on("node1");
    hand.set("KVMAD_CLOUD_CA_FILE", &server.certificate().display().to_string());
    let _bridge = Bridge::new("node1", "kvc8100", "10.81.0.1/24");
    let (own, key) = (file(&hand, "own.yaml", OWN), key());
    let common =
        ["--user", "admin", "--ssh-key", &key, "--user-data", &own, "--type", "qemu", "--memory", "400M"];
    let create = |arguments: &[&str]| hand.good(&[&["create"][..], arguments, &common].concat());

    server.cut_after(size / 2);
    let sum = sha256(&image);
    let first = create(&[
        "nat8100",
        "--image",
        &server.url("cloud-amd64.qcow2"),
        "--checksum",
        &sum,
        "--nat",
        "default",
    ]);
    assert!(first.err.contains("it goes on"), "{first:?}");
    let served = server.served();
    assert_eq!(served.len(), 2, "{served:?}");
    assert!(
        served[1].from > 0 && served[1].from <= size / 2,
        "the second goes on where the first was cut: {served:?}"
    );
    assert_eq!(served[1].from + served[1].sent, size, "{served:?}");

    let second = create(&[
        "bridged8100",
        "--image",
        &server.url("cloud-amd64.qcow2"),
        "--bridge",
        "kvc8100",
        "--address",
        "10.81.0.7/24",
        "--gateway",
        "10.81.0.1",
        "--resolver",
        "9.9.9.9,9.9.9.10",
        "--no-agent-package",
        "--size",
        "3G",
    ]);
    assert!(second.err.contains("nothing is downloaded"), "{second:?}");
    assert_eq!(server.served().len(), 2, "the second VM downloads nothing");

    let bridged = hand.good(&["address", "bridged8100", "--wait", &CLOUD_BOOT.as_secs().to_string()]);
    assert_eq!(bridged.out, "10.81.0.7/24\n", "told by the agent");
    let nat = hand.good(&["address", "nat8100", "--wait", &CLOUD_BOOT.as_secs().to_string()]);
    let nat = nat.out.trim().split('/').next().expect("an address").to_owned();
    assert!(nat.starts_with("192.168.122."), "{nat}");
    let asked = "hostname; cat /etc/own; echo; grep ^nameserver /run/systemd/resolve/resolv.conf";
    for (name, address, resolvers) in [
        ("bridged8100", "10.81.0.7", "nameserver 9.9.9.9\nnameserver 9.9.9.10"),
        ("nat8100", &nat, "nameserver 192.168.122.1"),
    ] {
        let expected = format!("{name}\nmerged\n{resolvers}\n");
        let logged_in = wait_for(CLOUD_BOOT, || {
            let said = in_guest("node1", address, asked);
            (said.status == Some(0) && said.out == expected).then_some(())
        });
        assert!(logged_in.is_some(), "{:?}\n{}", in_guest("node1", address, asked), hand.console(name));
    }
    for name in ["nat8100", "bridged8100"] {
        hand.good(&["delete", name]);
        assert!(!hand.file(&format!("kvmad-{name}")).exists());
    }
    assert!(hand.file("base/cloud-amd64.qcow2").exists(), "the cache stays");
}

/// Words that create a small VM.
fn small<'a>(name: &'a str, url: &'a str, key: &'a str) -> [&'a str; 12] {
    let given = ["create", name, "--image", url, "--ssh-key", key];
    let size = ["--type", "qemu", "--memory", "128M", "--size", "64M"];
    std::array::from_fn(|at| if at < 6 { given[at] } else { size[at - 6] })
}

#[test]
#[ignore = "needs the test bed: make test"]
fn many_who_want_one_image_download_it_once_and_a_vm_lives_until_it_is_deleted() {
    let _use = bed::shared();
    let server = Server::start(&small_image(), 8444);
    let mut hand = Hand::on("node2");
    hand.set("KVMAD_CLOUD_CA_FILE", &server.certificate().display().to_string());
    let (url, key) = (server.url("small.qcow2"), key());
    let start = |name: &str| {
        let arguments = small(name, &url, &key);
        hand.command(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kvmad")
    };
    let running: Vec<_> = ["m1", "m2", "m3"].into_iter().map(|name| (name, start(name))).collect();
    for (name, child) in running {
        let said = said(child.wait_with_output().expect("its end"));
        assert_eq!(said.status, Some(0), "{name}: {said:?}");
    }
    let served = server.served();
    assert_eq!(
        served.iter().map(|one| one.sent).sum::<u64>(),
        fs::metadata(small_image()).expect("it").len()
    );
    assert_eq!(served.len(), 1, "{served:?}");

    hand.wait_said("m1", "READY at", BOOT);
    assert!(
        hand.console("m1").contains(" vda=131072 vdb="),
        "a disk of 64 MiB and the seed: {}",
        hand.console("m1")
    );
    let listed = hand.good(&["list", "--format", "json"]);
    assert_eq!(listed.out.matches("\"state\":\"running\"").count(), 3, "{listed:?}");
    let again = hand.vm(&["create", "m1", "--image", &url, "--ssh-key", &key]);
    assert!(
        again.status == Some(1) && again.err.contains("there is a VM m1 on this host already"),
        "{again:?}"
    );
    let display = hand.good(&["console", "m1", "--display"]);
    assert!(display.out.starts_with("vnc://127.0.0.1:"), "{display:?}");
    let nothing = hand.vm(&["address", "m1"]);
    assert!(nothing.status == Some(1) && nothing.err.contains("no lease yet"), "{nothing:?}");

    bed::virsh("node2", &["destroy", "kvmad-m1"]);
    let listed = hand.good(&["list"]);
    assert!(listed.out.lines().any(|line| line.contains("m1") && line.contains("shut down")), "{listed:?}");
    hand.good(&["start", "m1"]);
    assert_eq!(bed::virsh("node2", &["domstate", "kvmad-m1"]).as_deref(), Some("running"));
    for name in ["m1", "m2", "m3", "m3", "never"] {
        hand.good(&["delete", name]);
        assert_eq!(bed::virsh("node2", &["domstate", &format!("kvmad-{name}")]), None);
        assert!(!hand.file(&format!("kvmad-{name}")).exists());
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_create_that_is_killed_ends_on_the_host_too_and_the_next_goes_on_with_its_download() {
    let _use = bed::shared();
    let size = fs::metadata(small_image()).expect("the image").len();
    let server = Server::start(&small_image(), 8446);
    let mut hand = Hand::on("node1");
    hand.set("KVMAD_CLOUD_CA_FILE", &server.certificate().display().to_string());
    let (url, key) = (server.url("small.qcow2"), key());
    let arguments = small("k1", &url, &key);
    server.hang_after(size / 2);
    let mut child =
        hand.command(&arguments).stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("kvmad");
    let part = hand.file("base/.small.qcow2.part");
    let half = || fs::metadata(&part).is_ok_and(|meta| meta.len() == size / 2).then_some(());
    wait_for(Duration::from_secs(120), half).expect("half of the image");
    for pid in processes::tree(child.id()) {
        processes::signal(pid.pid, "KILL");
    }
    child.wait().expect("its end");
    let ended = wait_for(Duration::from_secs(60), || (!server.served().is_empty()).then_some(()));
    assert!(ended.is_some(), "the download on the host ends with the command");
    assert!(!hand.file("kvmad-k1").exists());
    hand.good(&arguments);
    let served = server.served();
    assert_eq!((served.len(), served[1].from, served[1].sent), (2, size / 2, size - size / 2), "{served:?}");
    assert_eq!(fs::read(hand.file("base/small.qcow2")).expect("it"), fs::read(small_image()).expect("it"));
    hand.good(&["delete", "k1"]);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn what_can_not_become_a_vm_is_refused_with_what_to_do_and_nothing_of_it_is_left() {
    let _use = bed::shared();
    let server = Server::start(&small_image(), 8445);
    let hand = Hand::on("node2");
    hand.library("small.qcow2", &small_image());
    let page = hand.front.folder().join("page.html");
    fs::write(&page, "<!DOCTYPE html><html></html>").expect("a file");
    hand.library("page.img", &page);
    hand.library("small-arm64.qcow2", &small_image());
    let outside = bed::run({
        let mut command = bed::on("node2");
        let library = format!("{}/cloud-images", hand.images);
        command.args(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"]);
        command.arg(format!("{library}/leak.qcow2")).arg("1M");
        command
    });
    assert!(outside.status.success(), "{outside:?}");
    let (key, zeros) = (key(), format!("sha256:{}", "0".repeat(64)));
    let url = server.url("small.qcow2");
    for (arguments, part) in [
        (&["--image", "page"][..], "a web page"),
        (&["--image", "small-arm64"], "made for aarch64, this host is x86_64"),
        (&["--image", "leak"], "further file"),
        (&["--image", "nothing"], "there are: leak.qcow2, page.img, small-arm64.qcow2, small.qcow2"),
        (&["--image", "small", "--checksum", &zeros], "sha256 checksum"),
        (&["--image", "small", "--size", "1M"], "it needs a disk of"),
        (&["--image", "small", "--bridge", "kvnone"], "bridge kvnone does not exist on this host: create it"),
        (&["--image", "small", "--bridge", "lo"], "no bridge but another interface"),
        (&["--image", "small", "--nat", "nothing"], "has no network nothing"),
        // a certificate that the host does not trust
        (&["--image", &url], "can't be downloaded"),
        (&["--image", "http://10.77.0.1/x.qcow2"], "only https"),
    ] {
        let said =
            hand.vm(&[&["create", "bad", "--ssh-key", &key, "--type", "qemu"][..], arguments].concat());
        assert_eq!(said.status, Some(1), "{arguments:?}: {said:?}");
        assert!(said.err.contains(part), "{arguments:?}: {said:?}");
        assert!(!hand.file("kvmad-bad").exists(), "{arguments:?}");
        assert_eq!(bed::virsh("node2", &["domstate", "kvmad-bad"]), None);
    }
    assert!(server.served().is_empty(), "nothing is sent to a host that does not trust the server");
    // Deployment fails after all is prepared: the host has not that much memory.
    let said = hand.vm(&[
        "create",
        "bad",
        "--image",
        "small",
        "--ssh-key",
        &key,
        "--type",
        "qemu",
        "--memory",
        "900T",
    ]);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(!hand.file("kvmad-bad").exists(), "{said:?}");

    let deep = hand.file("deep");
    fs::create_dir_all(deep.join("er")).expect("folders");
    fs::set_permissions(&deep, fs::Permissions::from_mode(0o700)).expect("a mode");
    let blocked = bed::run({
        let mut command = bed::as_oneadmin("node2");
        command.arg(format!("{}/vmm/kvm/cloud", hand.front.remotes()));
        command.arg("blocked").arg(format!("{}/deep/er/disk.0", hand.images));
        command
    });
    let text = String::from_utf8_lossy(&blocked.stdout).into_owned();
    let mend = format!("setfacl -m u:oneadmin:--x {}/deep", hand.images);
    assert!(text.contains("blocks user oneadmin") && text.contains(&mend), "{blocked:?}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn under_oned_a_volatile_disk_with_cloud_image_and_the_seed_are_made_by_deploy_and_a_disk_with_data_is_kept()
{
    let _use = bed::shared();
    let front = FrontEnd::staged();
    let library =
        format!("{}/library", bed::shared_folder().join(format!("lib-{}", std::process::id())).display());
    fs::create_dir_all(&library).expect("a folder");
    fs::copy(small_image(), format!("{library}/small.qcow2")).expect("an image");
    front.put("var/remotes/etc/kvmad.conf", 0o644, &format!("[cloud]\nlibrary = {library}\n"));
    let mut driver = Driver::ready(&front, "kvm");
    let mut vm = Vm::new(&front, 8150, "node1");
    let disk = vm.folder().join("disk.0");
    let fresh = |disk: &Path| {
        let mut command = Command::new("qemu-img");
        command.args(["create", "-q", "-f", "qcow2"]).arg(disk).arg("64M");
        assert!(bed::run(command).status.success());
        let mut command = Command::new("chown");
        assert!(
            bed::run({
                command.arg("oneadmin:oneadmin").arg(disk);
                command
            })
            .status
            .success()
        );
    };
    fresh(&disk);
    let document = |vm: &Vm, reference: &str| {
        let mut document = vm.deploy();
        document.template = format!(
            "<CPU>1</CPU><MEMORY>128</MEMORY><OS><UUID>u-8150</UUID></OS><DISK><DISK_ID>0</DISK_ID><TYPE>fs</TYPE>\
             <SIZE>64</SIZE><FORMAT>qcow2</FORMAT><DRIVER>qcow2</DRIVER><CLOUD_IMAGE><![CDATA[{reference}]]></CLOUD_IMAGE></DISK>"
        );
        document.user_template =
            "<CLOUD_INIT><USER><![CDATA[admin]]></USER><HOSTNAME><![CDATA[web]]></HOSTNAME></CLOUD_INIT>"
                .to_owned();
        document.payload()
    };
    let limit = Duration::from_secs(120);
    for (reference, part) in
        [("/etc/passwd", "no paths"), ("https://10.77.0.1/x.qcow2", "source is not allowed")]
    {
        let reply = driver.ask("DEPLOY", vm.id, &document(&vm, reference), limit);
        assert!(!reply.succeeded() && reply.info.contains(part), "{}", reply.raw);
        assert!(!vm.folder().join("kvmad-seed.iso").exists());
    }
    let reply = driver.ask("DEPLOY", vm.id, &document(&vm, "small"), limit);
    assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    vm.deploy_id = reply.info.trim().to_owned();
    driver.conversation.log(vm.id, "was made from", Duration::from_secs(5));
    vm.wait_said("READY at", 1, BOOT);
    let disks =
        vm.console().lines().find(|line| line.contains("GUEST: disks:")).expect("its disks").to_owned();
    assert!(disks.contains(" vda=131072") && disks.contains(" vdb="), "the disk and the seed: {disks}");
    let seed = bed::run({
        let mut command = Command::new("isoinfo");
        command.args(["-R", "-x", "/user-data", "-i"]).arg(vm.folder().join("kvmad-seed.iso"));
        command
    });
    assert!(String::from_utf8_lossy(&seed.stdout).contains("hostname: web"), "{seed:?}");

    // Off and on again: the guest's disk holds data now and must stay.
    let reply = driver.ask("CANCEL", vm.id, &vm.document().payload(), limit);
    assert!(reply.succeeded(), "{}", reply.raw);
    let before = sha256(&disk);
    let reply = driver.ask("DEPLOY", vm.id, &document(&vm, "small"), limit);
    assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    vm.deploy_id = reply.info.trim().to_owned();
    driver.conversation.log(vm.id, "holds data already", Duration::from_secs(5));
    let reply = driver.ask("CANCEL", vm.id, &vm.document().payload(), limit);
    assert!(reply.succeeded(), "{}", reply.raw);
    assert_eq!(sha256(&disk), before, "the guest writes nothing, and nobody else did");
    fs::remove_dir_all(Path::new(&library).parent().expect("a folder")).expect("removed");
}
