//! A real sshd on loopback, a folder of remotes on either side, and pools that use them.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kvmad::host::ssh::SshOptions;
use kvmad::host::{Ending, HostName, Job, Outcome, Place, Pool, PoolOptions, Program, Runner, Watch};
use kvmad::settings::Settings;

/// How commands get to their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Helper,
    Fallback,
    Local,
    LocalDirect,
    Agent,
    AgentFallback,
}

pub const ALL: [Way; 6] =
    [Way::Helper, Way::Fallback, Way::Local, Way::LocalDirect, Way::Agent, Way::AgentFallback];

/// The ways over ssh with a shared connection.
pub const SHARED: [Way; 2] = [Way::Helper, Way::Fallback];

pub struct Server {
    pub dir: tempfile::TempDir,
    port: u16,
    sshd: Option<Child>,
}

/// What a server is like beyond the ordinary.
#[derive(Debug, Default, Clone)]
pub struct Oddities {
    /// Lines for sshd_config.
    pub config: String,
    /// Lines of a script that stands before every command, as a .bashrc or a MOTD would.
    pub noise: Option<String>,
}

impl Server {
    pub fn start() -> Self {
        Self::odd(&Oddities::default())
    }

    pub fn odd(oddities: &Oddities) -> Self {
        let dir = tempfile::Builder::new().prefix("kvmad-host").tempdir().unwrap();
        for key in ["host_key", "user_key"] {
            let path = dir.path().join(key);
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status();
            assert!(made.unwrap().success());
        }
        fs::copy(dir.path().join("user_key.pub"), dir.path().join("authorized")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = dir.path().display();
        let mut config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host_key\nAuthorizedKeysFile {at}/authorized\n\
             StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\nMaxStartups 200\nUseDNS no\n\
             PrintMotd no\n{}\n",
            oddities.config
        );
        if let Some(noise) = &oddities.noise {
            let script = format!("#!/bin/bash\n{noise}\nexec bash -c \"$SSH_ORIGINAL_COMMAND\"\n");
            executable(&dir.path().join("login"), &script);
            config.push_str(&format!("ForceCommand {at}/login\n"));
        }
        fs::write(dir.path().join("sshd_config"), config).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        let ssh_config = format!(
            "Host *\n HostName 127.0.0.1\n Port {port}\n User root\n IdentityFile {at}/user_key\n\
             IdentitiesOnly yes\n StrictHostKeyChecking accept-new\n UserKnownHostsFile {at}/known_hosts\n"
        );
        fs::write(dir.path().join("ssh_config"), ssh_config).unwrap();
        fs::create_dir(dir.path().join("control")).unwrap();
        fs::set_permissions(dir.path().join("control"), fs::Permissions::from_mode(0o700)).unwrap();
        let mut server = Self { dir, port, sshd: None };
        server.remotes(&server.path("remotes"));
        server.up();
        server
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Lets a copy of the remotes stand on the host, without a stamp.
    pub fn install(&self) {
        self.remotes(&self.path("remote"));
    }

    /// A small folder of remotes with a helper that is a stand-in for the static one.
    fn remotes(&self, dir: &Path) {
        fs::create_dir_all(dir.join("kvmad/x86_64")).unwrap();
        fs::create_dir_all(dir.join("vmm/kvm")).unwrap();
        fs::create_dir_all(dir.join("im")).unwrap();
        executable(&dir.join("vmm/kvm/hello"), "#!/bin/sh\necho hello \"$@\"\n");
        let node = env!("CARGO_BIN_EXE_kvmad-node");
        executable(&dir.join("kvmad/x86_64/kvmad-node"), &format!("#!/bin/sh\nexec {node} \"$@\"\n"));
        let state = self.path("state");
        executable(
            &dir.join("kvmad/serve"),
            &format!(
                "#!/bin/sh\ndir=${{0%/*}}\nexec \"$dir/$(uname -m)/kvmad-node\" serve --remotes \"${{dir%/*}}\" \
                 --state {} \"$@\"\n",
                state.display()
            ),
        );
    }

    pub fn up(&mut self) {
        let config = self.path("sshd_config");
        let log = fs::File::options().create(true).append(true).open(self.path("sshd.log")).unwrap();
        let mut command = Command::new("/usr/sbin/sshd");
        command.arg("-D").arg("-e").arg("-f").arg(config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.sshd = Some(command.spawn().unwrap());
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills sshd and every connection it has, as a reboot does.
    pub fn down(&mut self) {
        let Some(mut sshd) = self.sshd.take() else { return };
        let sessions = descendants(sshd.id());
        sshd.kill().unwrap();
        sshd.wait().unwrap();
        for pid in sessions.into_iter().filter(|pid| name_of(*pid).starts_with("sshd")) {
            kill(pid, 9);
        }
    }

    pub fn options(&self, way: Way) -> PoolOptions {
        Self::options_at(self.dir.path(), way)
    }

    /// Options of a pool for the server whose folder is `dir`.
    pub fn options_at(dir: &Path, way: Way) -> PoolOptions {
        let path = |name: &str| dir.join(name);
        let mut settings = Settings::default();
        settings.host.control_dir = Some(path("control"));
        settings.host.helper = !matches!(way, Way::Fallback | Way::AgentFallback);
        settings.host.connect_timeout = Duration::from_secs(10);
        settings.host.control_persist = Duration::from_secs(2);
        let mut ssh = SshOptions::new(&settings.host);
        ssh.config = Some(path("ssh_config"));
        let helper = PathBuf::from(env!("CARGO_BIN_EXE_kvmad-node"));
        PoolOptions {
            push: true,
            host: settings.host,
            action: settings.action,
            ssh,
            remotes: path("remotes"),
            remote_dir: path("remote").to_str().unwrap().to_owned(),
            local_helper: (way == Way::Local).then_some(helper),
            local_state: Some(path("state-local")),
            extras: vec![],
        }
    }

    pub fn pool(&self, way: Way) -> Pool {
        Pool::new(self.options(way)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.down();
    }
}

pub fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

pub fn host() -> HostName {
    HostName::new("node1").unwrap()
}

pub fn place(way: Way) -> Place {
    match way {
        Way::Local | Way::LocalDirect => Place::Local,
        _ => Place::Host { name: host(), agent: matches!(way, Way::Agent | Way::AgentFallback) },
    }
}

/// A job of `sh -c`.
pub fn sh(script: &str) -> Job {
    let mut job = Job::new(Program::Path("sh".into()));
    job.args = vec!["-c".into(), script.into()];
    job.grace = Duration::from_secs(5);
    job
}

pub fn script(name: &str) -> Job {
    Job::new(Program::Script(name.into()))
}

pub async fn go(pool: &Pool, way: Way, job: Job) -> Outcome {
    pool.run(&place(way), job, Watch::nothing()).await
}

/// Lines as they came.
pub type Kept = Arc<Mutex<Vec<String>>>;

/// A watch that keeps lines of stderr and notices.
pub fn watch() -> (Watch, Kept, Kept) {
    let (lines, notices) = (Kept::default(), Kept::default());
    let (to_lines, to_notices) = (lines.clone(), notices.clone());
    let watch = Watch {
        on_stderr: Arc::new(move |line| to_lines.lock().unwrap().push(line.to_owned())),
        on_notice: Arc::new(move |line| to_notices.lock().unwrap().push(line.to_owned())),
        ..Watch::nothing()
    };
    (watch, lines, notices)
}

pub fn assert_exit(outcome: &Outcome, status: i32, what: &str) {
    assert_eq!(
        outcome.ending,
        Ending::Exited(status),
        "{what}: {}",
        String::from_utf8_lossy(&outcome.stderr)
    );
}

/// Waits until `check` holds.
pub async fn until(what: &str, seconds: u64, mut check: impl FnMut() -> bool) {
    let began = Instant::now();
    while !check() {
        assert!(began.elapsed() < Duration::from_secs(seconds), "not within {seconds} s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn stat(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}

pub fn descendants(pid: u32) -> Vec<u32> {
    let children: Vec<u32> =
        pids().filter(|one| stat(*one).is_some_and(|(_, parent)| parent == pid)).collect();
    children.iter().copied().chain(children.iter().flat_map(|child| descendants(*child))).collect()
}

pub fn is_sshd(pid: u32) -> bool {
    name_of(pid).starts_with("sshd")
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// Live processes that have `word` in their command line.
pub fn running(word: &str) -> Vec<u32> {
    let own = std::process::id();
    let has = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != own
            && String::from_utf8_lossy(&line).contains(word)
            && stat(*pid).is_some_and(|(state, _)| state != "Z")
    };
    pids().filter(has).collect()
}

pub fn kill(pid: u32, signal: i32) {
    let _ =
        Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).stderr(Stdio::null()).status();
}
