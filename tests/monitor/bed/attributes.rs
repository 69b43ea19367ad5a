//! Every attribute against another reading of the same thing: /proc, /sys and virsh of the host, by other programs.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kvmad::node::monitor::message::Kind;
use kvmad::node::monitor::text::check;

use super::{Monitored, PATIENCE, Paused, SHORT, emulator};
use crate::harness::bed;
use crate::harness::vm::Vm;

pub(super) const HOST: &str = "node2";
const PRIVATE: &str = include_str!("../../../src/node/monitor/testdata/monitor.pem");
const PUBLIC: &str = include_str!("../../../src/node/monitor/testdata/monitor.pub.pem");

/// What a shell on the host prints.
pub(super) fn shown(command: &str) -> String {
    bed::sh(HOST, &["sh", "-c", command]).trim().to_owned()
}

/// The plain attributes of a text; blocks are told apart by [`blocks`].
pub(super) fn plain(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let lines = lines.filter(|(_, value)| !value.trim_start().starts_with('['));
    lines.map(|(name, value)| (name.trim().to_owned(), value.trim().trim_matches('"').to_owned())).collect()
}

/// The blocks `NAME = [ ... ]` of a text, as (name, value) each.
fn blocks(text: &str, name: &str) -> Vec<BTreeMap<String, String>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(&format!("{name} = [")) {
        let starts_line = at == 0 || rest[..at].ends_with('\n');
        rest = &rest[at + name.len() + 4..];
        let end = rest.find("]").expect("a closed block");
        let pairs = rest[..end].split(", ").flat_map(|part| part.split(",\n"));
        let pairs = pairs.filter_map(|pair| pair.split_once('='));
        let block =
            pairs.map(|(k, v)| (k.trim().to_owned(), v.trim().trim_matches('"').to_owned())).collect();
        if starts_line {
            found.push(block);
        }
    }
    found
}

fn same(told: &BTreeMap<String, String>, name: &str, shown: &str) {
    assert_eq!(told.get(name).map(String::as_str), Some(shown), "{name}");
}

fn close(told: &BTreeMap<String, String>, name: &str, shown: &str, off: f64) {
    let (a, b): (f64, f64) = (told[name].parse().expect(name), shown.parse().expect(name));
    assert!((a - b).abs() <= off, "{name}: told {a}, the host shows {b}");
}

/// `a,b` in any order.
fn sorted(list: &str, by: &[char]) -> Vec<String> {
    let mut all: Vec<String> = list.split(by).filter(|w| !w.is_empty()).map(str::to_owned).collect();
    all.sort();
    all
}

#[test]
#[ignore = "needs the test bed: make test"]
fn what_is_told_of_a_host_is_what_the_host_itself_shows() {
    let _use = bed::shared();
    let mut monitored = Monitored::with_key(HOST, 5901, SHORT, "", Some((PRIVATE, PUBLIC)));
    monitored.front.put("var/remotes/VERSION", 0o644, "7.4.0\n");
    monitored.front.put("var/remotes/etc/im/kvm-probes.d/pci.conf", 0o644, ":filter: '*:*'\n");
    let wild = Paused::create(HOST, "wild, [one] \"5901\" ]]>");
    for (store, driver) in [("59011", Some("shared\n")), ("59012", None), ("59013", Some("replica"))] {
        let folder = format!("/var/lib/one/datastores/{store}");
        shown(&format!("install -d -o oneadmin -g oneadmin /var/lib/one/datastores {folder}"));
        if let Some(driver) = driver {
            let file = bed::host_path(HOST, format!("/var/lib/one/datastores/{store}/.monitor"));
            fs::write(file, driver).expect("a mark");
        }
    }
    // Of a cache of replicas, images are the files named by hexadecimal digits.
    shown(
        "cd /var/lib/one/datastores/59013 && for name in ab-1 0f9c-2 notes ab-1.lock; do head -c 3000000 /dev/urandom >$name; done && mkdir cafe",
    );
    let _mount = Mounted::new();
    let parts = monitored.start();
    host_system(&parts[&Kind::System], &wild);
    host_numa(&parts[&Kind::System], &parts[&Kind::Host]);
    host_usage(&parts[&Kind::Host]);
    // The same over the network, encrypted; SYSTEM_HOST is asked for by the signal that other software sends.
    let pid = shown("cat /var/tmp/one_db/.monitor_client.pid");
    assert_eq!(Some(pid.parse().expect("a number")), monitored.agent());
    let before = monitored.receiver.count();
    shown(&format!("kill -USR1 {pid}"));
    let system = monitored.receiver.text(before, Kind::System, "HYPERVISOR=kvm", PATIENCE);
    host_system(&system.text, &wild);
    for kind in [Kind::Beacon, Kind::Host, Kind::Vm] {
        let (came, message) = monitored.receiver.wait(0, PATIENCE, |message| message.kind == kind);
        assert!(message.success && message.host == 5901 && came.by == "UDP", "{message:?}");
        if kind == Kind::Host {
            host_usage(&message.text);
        }
    }
    shown("rm -r /var/lib/one/datastores/5901[123]");
    monitored.stop();
    assert_eq!(monitored.agent(), None);
}

/// A datastore that an automounter has mounted: real ones, of a file system that needs no server.
struct Mounted;

impl Mounted {
    const FOLDER: &str = "/var/lib/one/datastores/59014";

    fn new() -> Self {
        let folder = Self::FOLDER;
        shown(&format!(
            "mkdir -p {folder} && mount -t tmpfs -o size=64k,mode=755 'nas 5901:/export' {folder} && touch {folder}/.automounted"
        ));
        Self
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        shown(&format!("umount {0}; rmdir {0}", Self::FOLDER));
    }
}

fn host_system(text: &str, wild: &Paused) {
    check(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let told = plain(text);
    same(&told, "HYPERVISOR", "kvm");
    same(&told, "ARCH", &shown("uname -m"));
    same(&told, "HOSTNAME", &shown("uname -n"));
    same(&told, "MODELNAME", &shown("awk -F': ' '/^model name/ {print $2; exit}' /proc/cpuinfo"));
    same(&told, "VERSION", "7.4.0");
    let processors: u32 = shown("getconf _NPROCESSORS_ONLN").parse().expect("a number");
    same(&told, "TOTALCPU", &(processors * 100).to_string());
    same(&told, "TOTALMEMORY", &shown("awk '/^MemTotal:/ {print $2}' /proc/meminfo"));
    let speed = shown("awk -F': ' '/^cpu MHz/ {print $2; exit}' /proc/cpuinfo");
    close(&told, "CPUSPEED", &speed, 1000.0);
    same(&told, "CGROUPS_VERSION", &shown("grep -q ' cgroup ' /proc/mounts && echo 1 || echo 2"));
    let features = shown(
        "virsh -c qemu:///system capabilities | virsh -c qemu:///system cpu-baseline --features /dev/stdin | sed -n \"s/.*name='\\([^']*\\)'.*/\\1/p\"",
    );
    assert_eq!(sorted(&told["KVM_CPU_FEATURES"], &[',']), sorted(&features, &['\n']));
    let machines = shown(
        "virsh -c qemu:///system capabilities | awk '/<arch name=/ {on = /x86_64|i686/} /<domain / {on = 0} on && /<machine/' | sed 's/.*>\\([^<]*\\)<.*/\\1/' | sort -u",
    );
    assert_eq!(sorted(&told["KVM_MACHINES"], &[' ']), sorted(&machines, &['\n']));
    let models = shown(
        "virsh -c qemu:///system domcapabilities --arch x86_64 | awk '/<mode name=.custom/ {on = 1} /<\\/mode>/ {on = 0} on && /<model usable=.(yes|unknown)/' | sed 's/.*>\\([^<]*\\)<.*/\\1/' | sort -u",
    );
    assert_eq!(sorted(&told["KVM_CPU_MODELS"], &[' ']), sorted(&models, &['\n']));
    let model = shown(
        "virsh -c qemu:///system capabilities | awk '/<host>/ {on = 1} on && /<model>/ {print; exit}' | sed 's/.*>\\([^<]*\\)<.*/\\1/'",
    );
    same(&told, "KVM_CPU_MODEL", &model);
    same(&told, "MEMORY_ENCRYPTION", "NONE");
    stores(text, &told);
    let ours = blocks(text, "PCI");
    let devices = shown("ls /sys/bus/pci/devices");
    assert_eq!(ours.len(), devices.lines().count(), "{text}");
    for (told, device) in ours.iter().zip(devices.lines()) {
        let read = |name: &str| shown(&format!("cut -c3-6 /sys/bus/pci/devices/{device}/{name}"));
        assert_eq!((told["VENDOR"].as_str(), told["DEVICE"].as_str()), (&*read("vendor"), &*read("device")));
        assert_eq!(
            (told["CLASS"].as_str(), &*told["ADDRESS"]),
            (&*read("class"), &*device.replace('.', ":"))
        );
        assert_eq!(
            format!("{}:{}:{}.{}", told["DOMAIN"], told["BUS"], told["SLOT"], told["FUNCTION"]),
            device
        );
    }
    let told_wild = text.lines().find(|line| line.contains(&wild.uuid)).expect("the wild domain");
    assert!(told_wild.contains("VM_NAME=\"wild, [one] \\\"5901\\\" ]] >\""), "{told_wild}");
    let packed = told_wild.split("IMPORT_TEMPLATE=\"").nth(1).and_then(|rest| rest.split('"').next());
    let template = STANDARD.decode(packed.expect("a template")).expect("base64");
    let template = String::from_utf8(template).expect("text");
    for part in ["MEMORY=32\n", "VCPU=1\n", "OS=[ARCH=\"x86_64\"]", &format!("DEPLOY_ID=\"{}\"", wild.uuid)] {
        assert!(template.replace(" = ", "=").contains(part), "{part}: {template}");
    }
    // What the bed's hosts lack is said, and does no harm: KVM of this machine can't be opened by everyone.
    assert!(["YES", "NO"].contains(&told["KVMAD_READY"].as_str()), "{text}");
    assert_eq!(told["KVMAD_PROBE_ERRORS"], "");
}

fn stores(text: &str, told: &BTreeMap<String, String>) {
    let disk = shown("df -B1M -P /var/lib/one/datastores | awk 'NR == 2 {print $2, $3, $4}'");
    let disk: Vec<&str> = disk.split(' ').collect();
    same(told, "DS_LOCATION_TOTAL_MB", disk[0]);
    close(told, "DS_LOCATION_USED_MB", disk[1], 3000.0);
    close(told, "DS_LOCATION_FREE_MB", disk[2], 3000.0);
    let all = blocks(text, "DS");
    let ids: Vec<&str> = all.iter().map(|block| block["ID"].as_str()).collect();
    assert!(ids.contains(&"59011") && !ids.contains(&"59012"), "only marked ones: {ids:?}");
    let ours = all.iter().find(|block| block["ID"] == "59011").expect("there");
    same(ours, "TOTAL_MB", disk[0]);
    close(ours, "FREE_MB", disk[2], 3000.0);
    let cache = all.iter().find(|block| block["ID"] == "59013").expect("there");
    same(cache, "REPLICA_CACHE", "YES");
    same(cache, "REPLICA_CACHE_SIZE", &shown("du -sh /var/lib/one/datastores/59013 | cut -f1"));
    same(cache, "REPLICA_IMAGES", "2");
    let source = shown(&format!("findmnt -n -o SOURCE {}", Mounted::FOLDER));
    assert!(told["AUTONFS_MOUNT"].split(',').any(|told| told == source), "{source}: {text}");
}

fn host_numa(system: &str, host: &str) {
    let nodes = shown("ls -d /sys/bus/node/devices/node* | sed 's/.*node//'");
    for node in nodes.lines() {
        let of = |text: &str, name: &str| -> Vec<BTreeMap<String, String>> {
            blocks(text, name).into_iter().filter(|block| block["NODE_ID"] == node).collect()
        };
        let folder = format!("/sys/bus/node/devices/node{node}");
        let pages = shown(&format!("ls {folder}/hugepages"));
        assert_eq!(of(system, "HUGEPAGE").len(), pages.lines().count(), "{system}");
        for (told, used) in of(system, "HUGEPAGE").iter().zip(of(host, "HUGEPAGE")) {
            let folder = format!("{folder}/hugepages/hugepages-{}kB", told["SIZE"]);
            same(told, "PAGES", &shown(&format!("cat {folder}/nr_hugepages")));
            let size = format!("{}/free_hugepages", folder.replace(&told["SIZE"], &used["SIZE"]));
            same(&used, "FREE", &shown(&format!("cat {size}")));
        }
        let processors = shown(&format!("ls -d {folder}/cpu[0-9]* | sed 's/.*cpu//'"));
        let mut told: Vec<String> =
            of(system, "CORE").iter().flat_map(|core| sorted(&core["CPUS"], &[','])).collect();
        told.sort();
        assert_eq!(told, sorted(&processors, &['\n']), "each CPU stands in one core");
        let memory = shown(&format!("awk '/MemTotal:/ {{print $4}}' {folder}/meminfo"));
        same(&of(system, "MEMORY_NODE")[0], "TOTAL", &memory);
        assert!(
            of(system, "MEMORY_NODE")[0]["DISTANCE"].split(' ').next() == Some(node),
            "itself is nearest"
        );
        let used = &of(host, "MEMORY_NODE")[0];
        let free = shown(&format!("awk '/MemFree:/ {{print $4}}' {folder}/meminfo"));
        close(used, "FREE", &free, 3e6);
        assert!(used["USED"].parse::<u64>().is_ok());
    }
}

fn host_usage(text: &str) {
    check(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let told = plain(text);
    let number = |name: &str| told[name].parse::<u64>().expect(name);
    let processors: u64 = shown("getconf _NPROCESSORS_ONLN").parse().expect("a number");
    assert_eq!(number("FREECPU") + number("USEDCPU"), processors * 100);
    let memory = shown("awk '/^(MemTotal|MemFree|Buffers|Cached):/ {print $2}' /proc/meminfo");
    let memory: Vec<u64> = memory.lines().map(|line| line.parse().expect("KiB")).collect();
    assert_eq!(number("USEDMEMORY") + number("FREEMEMORY"), memory[0]);
    let used = memory[0] - memory[1] - memory[2] - memory[3];
    close(&told, "USEDMEMORY", &used.to_string(), 2e6);
    let traffic = shown(
        "awk '/eth[0-9]+:/ {sub(/.*:/, \"\"); rx += $1; tx += $9} END {printf \"%.0f %.0f\", rx, tx}' /proc/net/dev",
    );
    let (received, sent) = traffic.split_once(' ').expect("two");
    // Counters go on while we look; what was told before is never more.
    for (name, now) in [("NETRX", received), ("NETTX", sent)] {
        let now: u64 = now.parse().expect("bytes");
        assert!(number(name) <= now && now - number(name) < 100_000_000, "{name}: {} of {now}", number(name));
    }
}

/// A bridge of the host; it goes away with this.
pub(super) struct Bridge(&'static str);

impl Bridge {
    pub(super) fn make(name: &'static str) -> Self {
        shown(&format!(
            "ip link del {name} 2> /dev/null; ip link add {name} type bridge && ip link set {name} up"
        ));
        Self(name)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        shown(&format!("ip link del {}", self.0));
    }
}

/// The figures of one VM in a MONITOR_VM text.
pub(super) fn figures(text: &str, vm: u32) -> Option<BTreeMap<String, String>> {
    let line = text.lines().find(|line| line.contains(&format!("ID=\"{vm}\",")))?;
    let packed = line.split("MONITOR=\"").nth(1)?.split('"').next()?;
    Some(plain(&String::from_utf8(STANDARD.decode(packed).expect("base64")).expect("text")))
}

#[test]
#[ignore = "needs the test bed: make test"]
fn what_is_told_of_a_vm_is_what_proc_and_virsh_show() {
    let _use = bed::shared();
    let mut monitored = Monitored::new(HOST, 5902, SHORT, "");
    let _bridge = Bridge::make("bedbr5902");
    monitored.front.put(
        "var/remotes/etc/im/kvm-probes.d/guestagent.conf",
        0o644,
        ":enabled: true\n:commands:\n  :vm_qemu_ping: \"$vm_id '{\\\"execute\\\":\\\"guest-ping\\\"}' --timeout 5\"\n",
    );
    let vm = Vm::with_network(&monitored.front, 5902, HOST, "bedbr5902", "dummy");
    monitored.start();
    let file = vm.folder().join("deployment.0");
    fs::write(&file, vm.domain_xml()).expect("a file on the shared storage");
    bed::sh(HOST, &["virsh", "-q", "-c", "qemu:///system", "create", &file.display().to_string()]);
    let uuid = bed::virsh(HOST, &["domuuid", "one-5902"]).expect("it runs");
    let process = emulator(HOST, &uuid);
    let ticks = || -> f64 {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
        let columns: Vec<&str> = stat.rsplit_once(") ").expect("columns").1.split(' ').collect();
        columns[11..15].iter().map(|word| word.parse::<f64>().expect("ticks")).sum()
    };
    // Busy while it boots: the shares of some rounds together are the ticks that the process used.
    let mut samples = Vec::new();
    let mut seen = monitored.receiver.count();
    while samples.len() < 5 {
        let with_cpu = |text: &str| figures(text, 5902).and_then(|f| f.get("CPU")?.parse::<f64>().ok());
        let (came, message) =
            monitored.receiver.wait(seen, PATIENCE, |m| m.kind == Kind::Vm && with_cpu(&m.text).is_some());
        samples.push((came.at, ticks(), with_cpu(&message.text).expect("seen")));
        seen = monitored.receiver.count();
    }
    let told: f64 = samples.windows(2).map(|w| w[1].2 / 100.0 * (w[1].0 - w[0].0).as_secs_f64()).sum();
    let used = (samples[4].1 - samples[0].1) / 100.0;
    assert!((told - used).abs() < 0.25 * used + 0.3, "told {told:.2} s of CPU, the process used {used:.2} s");

    vm.wait_said("READY at", 1, Duration::from_secs(180));
    let before = counters();
    let seen = monitored.receiver.count();
    let message =
        monitored.receiver.wait(seen, PATIENCE, |m| m.kind == Kind::Vm && figures(&m.text, 5902).is_some()).1;
    let after = counters();
    let told = figures(&message.text, 5902).expect("seen");
    for (name, (low, high)) in before.iter().map(|(name, low)| (name, (low, after[name]))) {
        let told: u64 = told[*name].parse().expect(name);
        assert!(*low <= told && told <= high, "{name}: told {told}, virsh showed {low} and then {high}");
    }
    assert!(before["DISKRDBYTES"] > 1_000_000 && before["DISKRDIOPS"] > 100, "it read its disk: {before:?}");
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let kib = |name: &str| -> f64 {
        let line = status.lines().find(|line| line.starts_with(name)).expect(name);
        line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
    };
    close(&told, "MEMORY", &(kib("VmRSS:") + kib("VmSwap:")).to_string(), 30_000.0);
    // This guest has no agent: what virsh says about that is told under the key of the question, well-formed.
    let asked = |text: &str| figures(text, 5902).is_some_and(|f| f.contains_key("VM_QEMU_PING"));
    let message = monitored.receiver.wait(seen, PATIENCE, |m| m.kind == Kind::Vm && asked(&m.text)).1;
    let told = &figures(&message.text, 5902).expect("seen")["VM_QEMU_PING"];
    assert!(told.contains("QEMU guest agent is not configured"), "{told}");
}

/// Counters of the VM as virsh sums them.
fn counters() -> BTreeMap<&'static str, u64> {
    let text = shown("virsh -q -c qemu:///system domstats --raw --interface --block one-5902");
    let sum = |end: &str| -> u64 {
        let lines = text.lines().filter_map(|line| line.trim().split_once('='));
        lines
            .filter(|(key, _)| key.ends_with(end))
            .map(|(_, value)| value.parse::<u64>().expect("a number"))
            .sum()
    };
    BTreeMap::from([
        ("NETRX", sum(".rx.bytes")),
        ("NETTX", sum(".tx.bytes")),
        ("DISKRDBYTES", sum(".rd.bytes")),
        ("DISKWRBYTES", sum(".wr.bytes")),
        ("DISKRDIOPS", sum(".rd.reqs")),
        ("DISKWRIOPS", sum(".wr.reqs")),
    ])
}
