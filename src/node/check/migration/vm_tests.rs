use super::super::domain::Disk;
use super::super::needs::Lies;
use super::*;

const PATH: &str = "/ds/0/7/disk.0";

fn disk(cache: &str) -> Disk {
    Disk { target: "vda".into(), path: PATH.into(), readonly: false, cache: cache.into() }
}

fn domain() -> Domain {
    Domain {
        name: "one-7".into(),
        uuid: "9836e20d-beeb-4c38-98b6-b2dccfa000a4".into(),
        machine: "pc-i440fx-7.2".into(),
        cpu_mode: "custom".into(),
        cpu_checked: true,
        bridges: vec!["br0".into()],
        disks: vec![disk("none")],
        ..Domain::default()
    }
}

/// A file of this inode with 7 MiB on `filesystem`.
fn needs(inode: u64, filesystem: &str, same: Option<&str>) -> Needs {
    let file = Some(Ok((inode, 7 << 20)));
    Needs {
        same: Some(Ok(same.map(str::to_owned))),
        cpu: Some(Ok(None)),
        bridges: [("br0".to_owned(), true)].into(),
        disks: [(PATH.to_owned(), Lies { file, filesystem: filesystem.into() })].into(),
        markers: [("/ds/0/7".to_owned(), Ok(true))].into(),
        free: [("/ds/0/7".to_owned(), 1 << 30)].into(),
        ..Needs::default()
    }
}

struct Case {
    source: Needs,
    target: Needs,
    domain: Domain,
    about: About,
    cpus: [(String, Vec<String>); 2],
    options: String,
}

fn good() -> Case {
    let cpu = || ("Skylake".to_owned(), vec!["vmx".to_owned()]);
    Case {
        source: needs(1, "nfs4", Some("running")),
        target: needs(1, "nfs4", None),
        domain: domain(),
        about: About::default(),
        cpus: [cpu(), cpu()],
        options: String::new(),
    }
}

fn all(case: Case) -> Vec<Finding> {
    let side = |needs, cpu, options| Side {
        needs: Some(Ok(needs)),
        cpu: Some(cpu),
        machines: vec!["pc-i440fx-7.2".into()],
        options,
        ..Side::default()
    };
    let [one, other] = case.cpus;
    let (source, target) = (side(case.source, one, case.options), side(case.target, other, String::new()));
    let pair = Pair { source: ("node1", &source), target: ("node2", &target) };
    findings(pair, &case.domain, &case.about)
}

/// Everything that is not well, of a good case with one change.
fn trouble(change: impl Fn(&mut Case)) -> Vec<(String, Verdict)> {
    let mut case = good();
    change(&mut case);
    let found = all(case);
    let bad: Vec<Finding> = found.into_iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
    assert!(
        bad.iter().all(|f| f.verdict == Verdict::Skipped || !f.mend.is_empty()),
        "each has a mend: {bad:?}"
    );
    bad.into_iter().map(|finding| (finding.id.into_owned(), finding.verdict)).collect()
}

fn one(id: &str, verdict: Verdict) -> Vec<(String, Verdict)> {
    vec![(id.to_owned(), verdict)]
}

use Verdict::{CouldNotCheck, Failure, Skipped, Warning};

#[test]
fn a_domain_on_shared_storage_between_like_hosts_is_fine() {
    assert_eq!(trouble(|_| {}), []);
    assert_eq!(trouble(|c| c.about.shared = Some(true)), []);
}

#[test]
fn where_the_domain_is_and_is_not() {
    assert_eq!(trouble(|c| c.source.same = Some(Ok(None))), one("vm-source", Failure));
    assert_eq!(trouble(|c| c.source.same = Some(Ok(Some("state 5".into())))), one("vm-source", Failure));
    assert_eq!(trouble(|c| c.source.same = Some(Ok(Some("paused".into())))), []);
    assert_eq!(trouble(|c| c.source.same = Some(Err("down".into()))), one("vm-source", CouldNotCheck));
    assert_eq!(trouble(|c| c.target.same = Some(Ok(Some("running".into())))), one("vm-target", Failure));
    assert_eq!(trouble(|c| c.target.same = Some(Err("down".into()))), one("vm-target", CouldNotCheck));
}

#[test]
fn a_cpu_that_does_not_fit_is_a_failure_only_where_libvirt_checks_it() {
    let lacks = |c: &mut Case| c.target.cpu = Some(Ok(Some("lacks svm".into())));
    assert_eq!(trouble(lacks), one("vm-cpu", Failure));
    let unchecked = |c: &mut Case| {
        lacks(c);
        c.domain.cpu_checked = false;
    };
    assert_eq!(trouble(unchecked), one("vm-cpu", Warning));
    assert_eq!(trouble(|c| c.target.cpu = Some(Err("down".into()))), one("vm-cpu", CouldNotCheck));
}

#[test]
fn host_passthrough_compares_the_hosts() {
    let passthrough = |c: &mut Case| {
        c.domain.cpu_mode = "host-passthrough".into();
        // virsh can't compare that mode
        c.target.cpu = Some(Err("unsupported".into()));
    };
    assert_eq!(trouble(passthrough), []);
    let lacking = |c: &mut Case| {
        passthrough(c);
        c.cpus[1].1.clear();
    };
    assert_eq!(trouble(lacking), one("vm-cpu", Failure));
    let other = |c: &mut Case| {
        passthrough(c);
        c.cpus[1].0 = "Icelake".into();
    };
    assert_eq!(trouble(other), one("vm-cpu", Warning));
}

#[test]
fn what_the_target_lacks() {
    assert_eq!(trouble(|c| c.domain.machine = "pc-i440fx-9.0".into()), one("vm-machine", Failure));
    assert_eq!(trouble(|c| c.target.missing.push("the emulator".into())), one("vm-files", Failure));
    assert_eq!(trouble(|c| c.domain.bound.push("a pci device".into())), one("vm-devices", Failure));
}

#[test]
fn a_bridge_that_its_network_driver_makes_may_be_missing() {
    let missing = |c: &mut Case| {
        c.target.bridges.insert("br0".into(), false);
    };
    assert_eq!(trouble(missing), one("vm-bridges", Failure));
    for (driver, want) in [("dummy", one("vm-bridges", Failure)), ("vxlan", vec![])] {
        let by = |c: &mut Case| {
            missing(c);
            c.about.drivers.insert("br0".into(), driver.into());
        };
        assert_eq!(trouble(by), want, "{driver}");
    }
    assert_eq!(trouble(|c| c.target.bridges.clear()), one("vm-bridges", Skipped));
}

/// The target has a folder of its own, empty.
fn local(c: &mut Case) {
    c.target.markers.insert("/ds/0/7".into(), Ok(false));
    c.target.disks.insert(PATH.into(), Lies::default());
}

#[test]
fn storage_is_judged_by_what_the_datastore_says() {
    assert_eq!(trouble(local), one("vm-storage", Warning));
    for (shared, want) in [(true, one("vm-storage", Failure)), (false, vec![])] {
        let said = |c: &mut Case| {
            local(c);
            c.about.shared = Some(shared);
        };
        assert_eq!(trouble(said), want, "SHARED {shared}");
    }
    // one file on both hosts, but it would be copied onto itself
    assert_eq!(trouble(|c| c.about.shared = Some(false)), one("vm-storage", Failure));
}

#[test]
fn a_copy_needs_room_and_replaces_nothing_unsaid() {
    let full = |c: &mut Case| {
        local(c);
        c.about.shared = Some(false);
        c.target.free.insert("/ds/0/7".into(), 6 << 20);
    };
    assert_eq!(trouble(full), one("vm-storage", Failure));
    let taken = |c: &mut Case| {
        c.about.shared = Some(false);
        c.target.markers.insert("/ds/0/7".into(), Ok(false));
    };
    assert_eq!(trouble(taken), one("vm-storage", Warning));
}

#[test]
fn without_a_marker_the_inode_decides() {
    let unmarked = |c: &mut Case| drop(c.target.markers.insert("/ds/0/7".into(), Err("read-only".into())));
    assert_eq!(trouble(unmarked), []);
    let other = |c: &mut Case| {
        unmarked(c);
        c.target.disks.insert(PATH.into(), Lies { file: Some(Ok((2, 7 << 20))), filesystem: "ext4".into() });
    };
    assert_eq!(trouble(other), one("vm-storage", Warning));
    let unreadable = |c: &mut Case| {
        let file = Some(Err("Permission denied".into()));
        c.target.disks.insert(PATH.into(), Lies { file, filesystem: "nfs4".into() });
    };
    assert_eq!(trouble(unreadable), one("vm-storage", CouldNotCheck));
}

#[test]
fn cache_modes_are_judged_with_their_file_system() {
    let of = |cache: &str, filesystem: &str, options: &str| {
        trouble(|c| {
            c.domain.disks = vec![disk(cache)];
            c.source = needs(1, filesystem, Some("running"));
            c.options = options.into();
        })
    };
    assert_eq!(of("directsync", "nfs4", ""), []);
    assert_eq!(of("default", "nfs4", ""), one("vm-cache", Failure));
    assert_eq!(of("default", "fuse.glusterfs", ""), []);
    assert_eq!(of("none", "ext4", ""), one("vm-cache", Failure));
    assert_eq!(of("writeback", "nfs4", "--unsafe --verbose"), one("vm-cache", Warning));
}

#[test]
fn when_the_target_tells_nothing_nothing_is_taken_for_well() {
    let source = Side { needs: Some(Ok(needs(1, "nfs4", Some("running")))), ..Side::default() };
    let target = Side { needs: Some(Err("virsh gave no answer".into())), ..Side::default() };
    let pair = Pair { source: ("node1", &source), target: ("node2", &target) };
    let found = findings(pair, &domain(), &About::default());
    let unknown = found.iter().filter(|finding| finding.verdict == CouldNotCheck).count();
    assert_eq!((found.len(), unknown), (9, 7));
}
