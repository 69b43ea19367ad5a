//! Hosts that stand in for real ones, where a real one can't be made to fail: a root folder, and programs that answer
//! from a function.

mod kvm;
mod network;
mod policy;
mod session;
mod users;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use clap::Parser as _;

use super::account::tests::databases;
use super::edit::Edit;
use super::host::{Host, Wanted};
use super::report::{Chosen, report};
use super::{Finding, Group, TABLES, Verdict};
use crate::node::monitor::collect::system::Names;
use crate::node::root::Root;
use crate::node::tools::Ask;
use crate::node::tools::fake::Fake;

#[derive(clap::Parser)]
struct Words {
    #[command(flatten)]
    wanted: Wanted,
}

const CAPABILITIES: &str = "<capabilities><host><uuid>6b071181-4406-4d06-8fd7-5629e3f1e044</uuid><cpu><arch>x86_64</arch>\
    </cpu></host><guest><arch name='x86_64'><domain type='qemu'/><domain type='kvm'/></arch></guest></capabilities>";

/// Stdout, or the status and stderr of a failure.
type Answer = Result<String, (i32, String)>;

/// A stand-in for a host. The user oneadmin of its databases has the numbers of whoever runs the test.
struct Stand {
    dir: tempfile::TempDir,
    words: Vec<String>,
    answers: Vec<(&'static str, Answer)>,
}

impl Stand {
    /// A healthy Debian host for OpenNebula.
    fn healthy() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let stand = Self { dir, words: vec!["check".into()], answers: Vec::new() };
        for program in
            ["virsh", "qemu-system-x86_64", "qemu-img", "xorriso", "virt-install", "nc", "ip", "sshd"]
        {
            stand.put(&format!("usr/bin/{program}"), "").chmod(&format!("usr/bin/{program}"), 0o755);
        }
        stand
            .put("proc/cpuinfo", "flags: vmx\n")
            .put("sys/module/kvm/x", "")
            .put("dev/kvm", "")
            .put("proc/self/mountinfo", "1 0 0:1 / / rw - ext4 /dev/a rw\n")
            .put("proc/self/limits", "Limit Soft Limit Hard Limit Units\nMax processes 100 63000 processes\nMax open files 1024 524288 files\n")
            .put("etc/libvirt/qemu.conf", "user = \"oneadmin\"\ngroup = \"oneadmin\"\ndynamic_ownership = 0\n")
            .put("etc/libvirt/libvirtd.conf", "auth_unix_rw = \"none\"\n")
            .put("etc/ssh/sshd_config", "MaxSessions 64\nMaxStartups 64:30:256\n")
            .put("var/lib/one/datastores/0/x", "")
            .put("var/lib/libvirt/images/kvmad/x", "")
            // Whoever runs the test may be root, whose number the stand-in's oneadmin can't have.
            .chmod("var/lib/libvirt/images/kvmad", 0o777)
            .chmod("var/lib/one/datastores", 0o777);
        stand
    }

    fn put(&self, path: &str, text: &str) -> &Self {
        let file = self.dir.path().join(path);
        fs::create_dir_all(file.parent().expect("a parent")).expect("made");
        fs::write(file, text).expect("written");
        self
    }

    fn chmod(&self, path: &str, mode: u32) -> &Self {
        fs::set_permissions(self.dir.path().join(path), fs::Permissions::from_mode(mode)).expect("mode");
        self
    }

    fn remove(&self, path: &str) -> &Self {
        let path = self.dir.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("gone");
        self
    }

    fn words(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// What a program, or a question of virsh that has the word, answers in place of the usual.
    fn answers(mut self, word: &'static str, answer: Result<&str, (i32, &str)>) -> Self {
        self.answers
            .push((word, answer.map(str::to_owned).map_err(|(status, text)| (status, text.to_owned()))));
        self
    }

    fn root(&self) -> Root {
        Root::at(self.dir.path())
    }

    async fn host(&self) -> Host {
        let own = fs::metadata(self.dir.path()).expect("meta");
        let (uid, gid) = (own.uid().max(1), own.gid().max(1));
        let answers = self.answers.clone();
        let tools = Fake(move |ask: &Ask| {
            let words = format!("{} {}", ask.program, ask.args.join(" "));
            if let Some((_, answer)) = answers.iter().find(|(word, _)| words.contains(word)) {
                return answer.clone();
            }
            if words.starts_with("getent -- passwd oneadmin") {
                return Ok(format!("oneadmin:x:{uid}:{gid}::/var/lib/one:/bin/bash\n"));
            }
            match (ask.program.as_str(), ask.args.last().map(String::as_str)) {
                ("virsh", Some("version")) => Ok("library: libvirt 9.0.0\n".into()),
                ("virsh", Some("capabilities")) => Ok(CAPABILITIES.into()),
                ("virsh", Some("--name" | "--all" | "--autostart")) => Ok("default\n".into()),
                ("getent", Some("node1")) => Ok("192.0.2.7 STREAM node1\n".into()),
                ("/bin/bash" | "sudo", _) => Ok(String::new()),
                _ => databases(ask).unwrap_or_else(|| panic!("{words}: not thought of")),
            }
        });
        let names = Names { machine: "x86_64".into(), node: "node1".into() };
        let wanted = Words::try_parse_from(&self.words).expect("words").wanted;
        let user = wanted.user.clone().unwrap_or_else(|| "oneadmin".into());
        Host::with(self.root(), Arc::new(tools), names, wanted, user, false).await
    }

    async fn findings(&self) -> Vec<Finding> {
        report(&self.host().await, &Chosen::default()).await.findings
    }

    /// The finding of one check.
    async fn of(&self, id: &str) -> Finding {
        let all = self.findings().await;
        all.into_iter().find(|finding| finding.id == id).unwrap_or_else(|| panic!("no finding {id}"))
    }

    /// The check fails so, with words of the evidence and of the mend.
    async fn fails(&self, id: &str, verdict: Verdict, evidence: &str, mend: &str) -> Finding {
        let found = self.of(id).await;
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.evidence.contains(evidence), "{found:?}");
        assert!(found.mend.contains(mend), "{found:?}");
        found
    }

    /// Makes the edits of a finding, twice; then the check is well.
    async fn mends(&self, id: &str) {
        let found = self.of(id).await;
        let fix = found.fix.unwrap_or_else(|| panic!("{id} has no fix"));
        for edit in &fix.edits {
            let tools = Fake(|ask: &Ask| panic!("{ask:?}"));
            edit.apply(&self.root(), &tools, "t").await.expect("done");
            assert_eq!(edit.shown(&self.root()), Ok(None), "a second time changes nothing");
        }
        assert_eq!(self.of(id).await.verdict, Verdict::Ok);
    }
}

#[tokio::test]
async fn a_healthy_host_has_no_finding_and_every_check_of_the_tables_is_made_once() {
    let all = Stand::healthy().findings().await;
    let bad: Vec<&Finding> =
        all.iter().filter(|finding| !matches!(finding.verdict, Verdict::Ok | Verdict::Skipped)).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let skipped: Vec<&str> =
        all.iter().filter(|f| f.verdict == Verdict::Skipped).map(|finding| finding.id.as_ref()).collect();
    assert_eq!(
        skipped,
        [
            "vhost-net",
            "apparmor",
            "polkit",
            "selinux",
            "fapolicyd",
            "bridge",
            "bridge-port",
            "bridge-wireless",
            "bridge-autoconnect",
            "libvirt-tcp",
            "libvirt-tcp-auth",
            "libvirt-tls",
            "post-copy",
            "remotes",
            "kill-user-processes",
            "hugepages"
        ]
    );
    let mut made: Vec<&str> = all.iter().map(|finding| finding.id.as_ref()).collect();
    made.sort_unstable();
    let alone = |id: &&str| !id.starts_with("pair-") && !id.starts_with("vm-");
    let mut known: Vec<&str> =
        TABLES.iter().flat_map(|table| table.iter()).map(|check| check.id).filter(alone).collect();
    known.sort_unstable();
    assert_eq!(made, known);
}

#[tokio::test]
async fn chosen_checks_are_made_alone() {
    let host = Stand::healthy().host().await;
    let ids = |chosen: Chosen| {
        let host = &host;
        async move {
            report(host, &chosen).await.findings.into_iter().map(|f| (f.id, f.group)).collect::<Vec<_>>()
        }
    };
    let only = ids(Chosen { only: vec!["user".into(), "virsh".into()], ..Chosen::default() }).await;
    assert_eq!(only.iter().map(|(id, _)| id.as_ref()).collect::<Vec<_>>(), ["virsh", "user"]);
    let cloud = ids(Chosen { groups: vec![Group::Cloud], ..Chosen::default() }).await;
    assert!(!cloud.is_empty() && cloud.iter().all(|(_, group)| *group == Group::Cloud));
}

#[test]
fn a_program_of_another_root_is_not_ours() {
    let dir = tempfile::tempdir().expect("a folder");
    assert_eq!(super::kvm::find(&Root::at(dir.path()), "sh"), None);
    assert!(super::kvm::find(&Root::system(), "sh").is_some_and(|path| path.starts_with(Path::new("/"))));
}
