//! Hosts that stand in for real ones, where a real one can't be made to fail: a root folder, and programs that answer
//! from a function.

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
            .put("var/lib/libvirt/images/x", "")
            // Whoever runs the test may be root, whose number the stand-in's oneadmin can't have.
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
async fn an_active_apparmor_needs_a_rule_for_the_datastores() {
    let stand = Stand::healthy();
    stand.put("sys/module/apparmor/parameters/enabled", "Y\n");
    stand.put(
        "etc/apparmor.d/abstractions/libvirt-qemu",
        "  /dev/kvm rw,\n  include if exists <local/abstractions/libvirt-qemu>\n",
    );
    let rule = "owner /var/lib/one/** rwk,";
    stand.fails("apparmor", Verdict::Failure, "no rule of", rule).await;
    stand.mends("apparmor").await;
    assert_eq!(
        stand.root().read("/etc/apparmor.d/local/abstractions/libvirt-qemu").as_deref(),
        Some(format!("  {rule}\n").as_str())
    );
    stand.remove("etc/apparmor.d/local").put("etc/apparmor.d/abstractions/libvirt-qemu", "  /dev/kvm rw,\n");
    stand.mends("apparmor").await;
    assert!(
        stand
            .root()
            .read("/etc/apparmor.d/abstractions/libvirt-qemu")
            .is_some_and(|text| text.contains(rule))
    );
    stand.put("etc/libvirt/qemu.conf", "security_driver = \"none\"\n");
    assert_eq!(stand.of("apparmor").await.verdict, Verdict::Skipped);
}

#[tokio::test]
async fn polkit_needs_a_rule_unless_the_daemon_does_not_ask_it() {
    let stand = Stand::healthy().answers("capabilities", Err((1, "authentication unavailable")));
    stand.put("usr/share/polkit-1/actions/org.libvirt.unix.policy", "<x/>");
    assert_eq!(stand.of("polkit").await.verdict, Verdict::Ok, "auth_unix_rw is none");
    stand.put("etc/libvirt/libvirtd.conf", "");
    let other =
        "polkit.addRule(f(a, s) { if (a.id == \"org.libvirt.unix.manage\" && s.user == \"oneadmin2\") });";
    stand.put("usr/share/polkit-1/rules.d/60-libvirt.rules", other);
    stand.fails("polkit", Verdict::Failure, "lets oneadmin use", "/etc/polkit-1/rules.d/").await;
    stand.mends("polkit").await;
    stand.remove("etc/polkit-1");
    stand.put(
        "etc/polkit-1/localauthority/50-local.d/one.pkla",
        "Identity=unix-user:oneadmin\nAction=org.libvirt.unix.manage\n",
    );
    assert_eq!(stand.of("polkit").await.verdict, Verdict::Ok);
}

#[tokio::test]
async fn policy_tools_that_stop_programs_or_disks_are_named() {
    let stand = Stand::healthy();
    stand.put("sys/fs/selinux/enforce", "1").put("proc/77/comm", "fapolicyd\n");
    stand.fails("selinux", Verdict::Warning, "SELinux enforces", "virt_image_t").await;
    stand.fails("fapolicyd", Verdict::Warning, "no rule for /var/tmp/one", "--trust-file kvmad").await;
    stand
        .put("sys/fs/selinux/enforce", "0")
        .put("etc/fapolicyd/rules.d/80-one.rules", "allow perm=execute all : dir=/var/tmp/one/\n");
    assert_eq!(stand.of("selinux").await.verdict, Verdict::Ok);
    assert_eq!(stand.of("fapolicyd").await.verdict, Verdict::Ok);
}

#[tokio::test]
async fn logind_that_ends_processes_is_a_failure_unless_the_user_lingers() {
    let stand = Stand::healthy();
    stand
        .put("run/systemd/seats/seat0", "")
        .put("etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=yes\n");
    assert_eq!(stand.of("kill-user-processes").await.verdict, Verdict::Ok);
    stand.put("etc/systemd/logind.conf.d/50.conf", "[Login]\nKillUserProcesses=yes\n");
    stand.fails("kill-user-processes", Verdict::Failure, "50.conf", "loginctl enable-linger oneadmin").await;
    stand.put("run/systemd/logind.conf.d/60.conf", "[Login]\nKillUserProcesses = no\n");
    assert_eq!(stand.of("kill-user-processes").await.verdict, Verdict::Ok, "the last file counts");
    stand.remove("run/systemd/logind.conf.d").put("var/lib/systemd/linger/oneadmin", "");
    assert_eq!(stand.of("kill-user-processes").await.verdict, Verdict::Ok);
}

#[tokio::test]
async fn bridges_are_told_by_their_ports() {
    let stand = Stand::healthy();
    for (port, kind) in [
        ("br0/brif/eth0", "eth0/device/x"),
        ("br1/brif/one-7-0", "one-7-0/tun_flags"),
        ("br2/brif/wlan0", "wlan0/phy80211/x"),
        ("br3/brif/bond0", "bond0/lower_eth3/x"),
    ] {
        let bridge = port.split('/').next().expect("one");
        stand.put(&format!("sys/class/net/{bridge}/bridge/x"), "");
        stand.put(&format!("sys/class/net/{port}"), "").put(&format!("sys/class/net/{kind}"), "");
    }
    stand.put("sys/class/net/virbr0/bridge/x", "");
    stand
        .fails(
            "bridge-port",
            Verdict::Warning,
            "without a port that leads out: br1",
            "ip link set NIC master br1",
        )
        .await;
    stand.fails("bridge-wireless", Verdict::Failure, "wlan0 is wireless and a port of br2", "NAT").await;
    stand.put("run/NetworkManager/x", "");
    let stand = stand.answers("nmcli", Ok("yes:eth0:lan\nno:bond0:bond: a\nno:tun7:vpn\n"));
    stand
        .fails(
            "bridge-autoconnect",
            Verdict::Warning,
            "bond0",
            "nmcli con mod 'bond: a' connection.autoconnect yes",
        )
        .await;
    let stand = stand.words(&["--bridge", "br0", "--bridge", "br9"]);
    assert_eq!(stand.of("bridge-port").await.verdict, Verdict::Ok, "only those that were asked for");
    let found = stand.fails("bridge", Verdict::Failure, "not there: br9", "netplan try").await;
    assert!(
        found.mend.contains("interfaces: [eth0]") && found.mend.contains("nmcli con add type bridge"),
        "{}",
        found.mend
    );
}

#[tokio::test]
async fn the_daemons_transport_is_that_of_kvmrc() {
    let stand = Stand::healthy().answers("bash -c", Ok("\0qemu+tcp\0"));
    stand.put("var/tmp/one/etc/vmm/kvm/kvmrc", "");
    stand.fails("libvirt-tcp", Verdict::Failure, "nothing listens", "libvirtd-tcp.socket").await;
    let edit = Edit::Number { file: "/etc/libvirt/libvirtd.conf".into(), key: "listen_tcp".into(), value: 1 };
    let fix = stand.of("libvirt-tcp").await.fix.expect("a fix");
    assert_eq!(fix.edits, [edit]);
    stand.put("etc/libvirt/libvirtd.conf", "listen_tcp = 1\nauth_tcp = \"none\"\n");
    assert!(stand.of("libvirt-tcp").await.fix.is_none(), "the key is not what is missing");
    if cfg!(target_endian = "little") {
        stand.put("proc/net/tcp", "head\n0: 00000000:407D 0:0 0A 0\n");
        assert_eq!(stand.of("libvirt-tcp").await.verdict, Verdict::Ok);
        stand.fails("libvirt-tcp-auth", Verdict::Warning, "listens on 0.0.0.0", "firewall").await;
        stand.put("proc/net/tcp", "head\n0: 0B004D0A:407D 0:0 0A 0\n");
        assert_eq!(stand.of("libvirt-tcp-auth").await.verdict, Verdict::Ok, "one private address");
    }
    let tls = Stand::healthy().answers("bash -c", Ok("\0qemu+tls\0"));
    tls.put("var/tmp/one/etc/vmm/kvm/kvmrc", "");
    tls.fails("libvirt-tls", Verdict::Failure, "/etc/pki/CA/cacert.pem", "tlscerts").await;
    let ssh = Stand::healthy();
    ssh.remove("usr/bin/nc");
    // What this machine has in its own PATH is below the stand-in's root, too: nothing is there.
    ssh.fails("libvirt-ssh", Verdict::Failure, "neither virt-ssh-helper nor nc", "netcat-openbsd").await;
}

#[tokio::test]
async fn names_uuids_and_networks_that_do_not_serve() {
    let loopback = Stand::healthy().answers("ahosts node1", Ok("127.0.1.1 STREAM node1\n"));
    loopback.fails("host-name", Verdict::Warning, "resolves to 127.0.1.1", "/etc/hosts").await;
    let unknown = Stand::healthy().answers("ahosts node1", Err((2, "")));
    unknown.fails("host-name", Verdict::Warning, "does not resolve", "migration_host").await;
    unknown.put("etc/libvirt/qemu.conf", "migration_host = \"192.0.2.9\"\n");
    assert_eq!(unknown.of("host-name").await.verdict, Verdict::Ok);
    let dummy =
        CAPABILITIES.replace("6b071181-4406-4d06-8fd7-5629e3f1e044", "03000200-0400-0500-0006-000700080009");
    Stand::healthy()
        .answers("capabilities", Ok(&dummy))
        .fails("host-uuid", Verdict::Failure, "other hosts have", "host_uuid")
        .await;
    let no_kvm = CAPABILITIES.replace("<domain type='kvm'/>", "");
    let stand = Stand::healthy().answers("capabilities", Ok(&no_kvm));
    stand.fails("libvirt-kvm", Verdict::Failure, "for x86_64: qemu", "dev-kvm").await;
    assert_eq!(stand.words(&["--emulated"]).of("libvirt-kvm").await.verdict, Verdict::Ok);
    let none = Stand::healthy().answers("net-list", Ok("other\n"));
    none.fails("nat-network", Verdict::Warning, "there is no libvirt network default", "net-define").await;
    let idle =
        Stand::healthy().answers("net-list --name --all", Ok("default\n")).answers("net-list", Ok("\n"));
    idle.fails("nat-network", Verdict::Warning, "is not active", "virsh net-start default").await;
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_leaves_what_it_would_tell_unchecked() {
    let stand = Stand::healthy().answers("virsh", Err((1, "error: failed to connect")));
    stand.fails("libvirt", Verdict::Failure, "failed to connect", "systemctl start libvirtd").await;
    for id in ["libvirt-kvm", "host-uuid", "nat-network"] {
        assert_eq!(stand.of(id).await.verdict, Verdict::CouldNotCheck, "{id}");
    }
}

#[tokio::test]
async fn nothing_is_well_for_a_user_that_is_not_there_and_mends_name_the_user_that_was_given() {
    let nobody = Stand::healthy().words(&["--user", "nosuch"]);
    nobody.fails("user", Verdict::Failure, "no user nosuch", "useradd").await;
    for id in ["dev-kvm", "libvirt"] {
        nobody.fails(id, Verdict::CouldNotCheck, "no user nosuch", "see the check user").await;
    }
    let deaf = || Stand::healthy().answers("virsh", Err((1, "error: failed to connect")));
    let other = deaf().words(&["--user", "libvirt-qemu"]);
    let found = other.fails("libvirt", Verdict::Failure, "failed", "usermod -aG libvirt libvirt-qemu").await;
    assert!(!found.mend.contains("oneadmin"), "{found:?}");
    deaf().fails("libvirt", Verdict::Failure, "failed", "usermod -aG libvirt oneadmin").await;
    for wrong in ["", "a:b", "a\nb"] {
        assert!(Words::try_parse_from(["check", "--user", wrong]).is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn sessions_that_are_too_few_limits_that_are_too_low_and_shells_that_print() {
    let stand = Stand::healthy().answers("/bin/bash -c exit 0", Ok("Welcome\n"));
    stand.put(
        "etc/ssh/sshd_config",
        "Include /etc/ssh/sshd_config.d/*.conf\nMaxSessions 64\nMatch user x\nMaxStartups 1\n",
    );
    stand.put("etc/ssh/sshd_config.d/10.conf", "maxsessions=2\n");
    stand
        .fails("ssh-sessions", Verdict::Warning, "MaxSessions 2, MaxStartups 10:30:100", "MaxSessions 64")
        .await;
    stand.put("proc/self/limits", "Max processes 10 500 processes\nMax open files 1024 1024 files\n");
    stand.fails("limits", Verdict::Warning, "1024 open files, 500 processes", "limits.d").await;
    stand
        .fails("quiet-shell", Verdict::Warning, "8 bytes before a command: \"Welcome\"", "is-interactive")
        .await;
    let flood = "x".repeat(70_000);
    let stand = Stand::healthy().answers("/bin/bash -c exit 0", Ok(&flood));
    stand.fails("quiet-shell", Verdict::Failure, "70000 bytes", "start-up file").await;
    let stand = Stand::healthy().answers("sudo", Err((1, "a password is required")));
    stand.fails("sudo", Verdict::Warning, "a password is required", "opennebula-node-kvm").await;
    stand.put("proc/self/mountinfo", "1 0 0:1 / /var/tmp rw,noexec - tmpfs t rw\n");
    stand.fails("noexec", Verdict::Failure, "noexec", "SCRIPTS_REMOTE_DIR").await;
}

#[tokio::test]
async fn users_groups_and_qemus_user() {
    let nobody = Stand::healthy().answers("passwd oneadmin", Err((2, "")));
    nobody.fails("user", Verdict::Failure, "there is no user oneadmin", "useradd").await;
    assert_eq!(nobody.of("group-kvm").await.verdict, Verdict::Skipped);
    let broken = Stand::healthy().answers("passwd oneadmin", Err((3, "no directory")));
    broken.fails("user", Verdict::CouldNotCheck, "no directory", "getent").await;
    let alone = Stand::healthy().answers("id -G", Ok("4242"));
    let found = alone
        .fails("group-libvirt", Verdict::Failure, "not in group libvirt", "usermod -aG libvirt oneadmin")
        .await;
    let member = |group: &str| Edit::Member { user: "oneadmin".into(), group: group.into() };
    assert_eq!(found.fix.expect("a fix").edits, [member("libvirt")]);
    let found =
        alone.fails("group-kvm", Verdict::Failure, "not in group kvm", "usermod -aG kvm oneadmin").await;
    assert_eq!(found.fix.expect("a fix").edits, [member("kvm")]);
    alone.put("etc/libvirt/libvirtd.conf", "unix_sock_group = \"vmusers\"\n");
    alone.fails("group-libvirt", Verdict::Failure, "there is no group vmusers", "libvirt").await;
    let stock = Stand::healthy();
    stock.put("etc/libvirt/qemu.conf", "#user = \"root\"\n");
    stock.fails("qemu-user", Verdict::Failure, "no user, no group", "user = \"oneadmin\"").await;
    stock.fails("qemu-ownership", Verdict::Failure, "the default is 1", "dynamic_ownership = 0").await;
    stock.mends("qemu-user").await;
    stock.mends("qemu-ownership").await;
    let text = stock.root().read("/etc/libvirt/qemu.conf").expect("there");
    assert_eq!(text, "#user = \"root\"\nuser = \"oneadmin\"\ngroup = \"oneadmin\"\ndynamic_ownership = 0\n");
}

#[tokio::test]
async fn a_parent_that_blocks_qemus_user_is_named_and_folders_are_made() {
    let stand = Stand::healthy();
    stand.put("etc/libvirt/qemu.conf", "user = \"libvirt-qemu\"\n");
    stand.put("home/ann/vms/x", "").chmod("home/ann", 0o750);
    let stand = stand.words(&["--datastores", "/home/ann/vms", "--images", "/home/ann/images"]);
    for id in ["datastores-path", "images-path"] {
        let found = stand
            .fails(
                id,
                Verdict::Failure,
                "/home/ann does not let libvirt-qemu pass",
                "setfacl -m u:libvirt-qemu:--x /home/ann",
            )
            .await;
        let edit = Edit::Pass { user: "libvirt-qemu".into(), folder: "/home/ann".into() };
        assert_eq!(found.fix.expect("a fix").edits, [edit]);
    }
    stand.chmod("home/ann", 0o751);
    assert_eq!(stand.of("datastores-path").await.verdict, Verdict::Ok);
    stand.remove("home/ann/vms");
    let found = stand.fails("datastores", Verdict::Warning, "is not there", "install -d -o oneadmin").await;
    let edit = Edit::Folder { folder: "/home/ann/vms".into(), owner: "oneadmin".into() };
    assert_eq!(found.fix.expect("a fix").edits, [edit]);
    stand.put("home/ann/vms", "a file");
    stand.fails("datastores", Verdict::Failure, "is no folder", "move it").await;
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

#[tokio::test]
async fn hugepages_are_counted() {
    let stand = Stand::healthy();
    stand.put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n");
    stand.put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n");
    assert_eq!(stand.of("hugepages").await.evidence, "8 of 2048kB, 3 free");
}

#[test]
fn a_program_of_another_root_is_not_ours() {
    let dir = tempfile::tempdir().expect("a folder");
    assert_eq!(super::kvm::find(&Root::at(dir.path()), "sh"), None);
    assert!(super::kvm::find(&Root::system(), "sh").is_some_and(|path| path.starts_with(Path::new("/"))));
}
