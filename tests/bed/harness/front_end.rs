//! A front-end folder (what ONE_LOCATION points to), readable for oneadmin, with a remotes folder of its own on the hosts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{bed, wait_for};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A front-end. Its folder, and its remotes folder on every host, go away with it.
#[derive(Debug)]
pub struct FrontEnd {
    folder: PathBuf,
    remotes: String,
    agent: Child,
}

impl FrontEnd {
    /// With what `make stage` has laid out (`KVMAD_STAGE`, else `target/stage`).
    pub fn staged() -> Self {
        let stage = std::env::var_os("KVMAD_STAGE")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/stage"), PathBuf::from);
        assert!(stage.join("lib/mads").is_dir(), "{}: nothing is staged: run make stage", stage.display());
        Self::new(|folder| copy(&stage, folder))
    }

    /// Without a program: for stand-ins.
    pub fn bare() -> Self {
        Self::new(|folder| {
            for part in ["lib/mads", "var/remotes", "etc", "bin"] {
                fs::create_dir_all(folder.join(part)).expect("a folder in the test bed");
            }
        })
    }

    fn new(fill: impl FnOnce(&Path)) -> Self {
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = bed::folder().join(format!("stage-{name}"));
        let remotes = format!("/var/tmp/one-bed-{name}");
        fs::create_dir_all(&folder).expect("a folder in the test bed");
        fill(&folder);
        fs::create_dir_all(folder.join("var/vms")).expect("a folder in the test bed");
        fs::write(folder.join("var/config"), format!("SCRIPTS_REMOTE_DIR={remotes}\n")).expect("a file");
        let agent = start_agent(&folder);
        // OpenNebula's own remotes bring this file; ours are laid over them
        let network = folder.join("var/remotes/etc/vnm");
        fs::create_dir_all(&network).expect("a folder in the test bed");
        fs::write(network.join("OpenNebulaNetwork.conf"), ":keep_empty_bridge: false\n").expect("a file");
        let front = Self { folder, remotes, agent };
        front.give_to_oneadmin();
        front
    }

    /// Makes oneadmin the owner of what was put in.
    pub fn give_to_oneadmin(&self) {
        let done = Command::new("chown").args(["-R", "oneadmin:oneadmin"]).arg(&self.folder).status();
        assert!(done.is_ok_and(|status| status.success()), "chown {}", self.folder.display());
    }

    /// ONE_LOCATION.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// SCRIPTS_REMOTE_DIR.
    pub fn remotes(&self) -> &str {
        &self.remotes
    }

    /// Writes a file below the folder, with its mode.
    pub fn put(&self, path: &str, mode: u32, content: &str) {
        use std::os::unix::fs::PermissionsExt;
        let file = self.folder.join(path);
        fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
        fs::write(&file, content).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("its mode");
        self.give_to_oneadmin();
    }

    /// Takes the staged remotes away and lays those of `from` in their place: foreign ones, without our helper.
    pub fn with_remotes(self, from: &Path) -> Self {
        let remotes = self.folder.join("var/remotes");
        fs::remove_dir_all(&remotes).expect("the staged remotes");
        copy(from, &remotes);
        self.give_to_oneadmin();
        self
    }

    /// What oned's unit gives its drivers.
    pub fn environment(&self) -> Vec<String> {
        vec![
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            "HOME=/var/lib/one".to_owned(),
            "USER=oneadmin".to_owned(),
            "LOGNAME=oneadmin".to_owned(),
            "LANG=C.UTF-8".to_owned(),
            format!("ONE_LOCATION={}", self.folder.display()),
            format!("SSH_AUTH_SOCK={}", self.folder.join("agent").display()),
        ]
    }
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status();
    assert!(done.is_ok_and(|status| status.success()), "cp {} {}", from.display(), to.display());
}

fn start_agent(folder: &Path) -> Child {
    let done = Command::new("chown").arg("oneadmin:oneadmin").arg(folder).status();
    assert!(done.is_ok_and(|status| status.success()), "chown {}", folder.display());
    let socket = folder.join("agent");
    let mut command = bed::as_oneadmin(bed::FRONT_END);
    command.args(["ssh-agent", "-D", "-a"]).arg(&socket);
    let agent = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("ssh-agent");
    wait_for(Duration::from_secs(10), || socket.exists().then_some(())).expect("the agent's socket");
    // for whoever has to clean up after a harness that was killed
    let pid = super::processes::children(agent.id()).first().copied().unwrap_or_default();
    fs::write(folder.join("agent.pid"), format!("{pid}\n")).expect("a file in the test bed");
    let mut command = bed::as_oneadmin(bed::FRONT_END);
    command.arg("env").arg(format!("SSH_AUTH_SOCK={}", socket.display())).args(["ssh-add", "-q"]);
    let added = bed::run(command);
    assert!(added.status.success(), "ssh-add: {}", String::from_utf8_lossy(&added.stderr));
    agent
}

impl Drop for FrontEnd {
    fn drop(&mut self) {
        for pid in super::processes::children(self.agent.id()) {
            super::processes::signal(pid, "TERM");
        }
        let _ = self.agent.wait();
        if std::env::var_os("KVMAD_KEEP").is_some() {
            return;
        }
        let _ = fs::remove_dir_all(&self.folder);
        for host in bed::NODES.iter().chain([&bed::DIFFICULT]) {
            let _ = fs::remove_dir_all(bed::host_path(host, &self.remotes));
            // What pushes to it take turns by.
            let lock = self.remotes.replace("/var/tmp/", "/var/tmp/.") + ".kvmad-lock";
            let _ = fs::remove_file(bed::host_path(host, lock));
        }
    }
}
