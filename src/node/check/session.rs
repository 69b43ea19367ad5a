//! What a session of the drivers on the host meets: mounts, shells, sshd, logind, sudo, limits.

use std::time::Duration;

use bytes::Bytes;

use super::host::Host;
use super::{Check, Finding, Group, Verdict, mounts};
use crate::node::tools::Ask;

const GROUP: Group = Group::Opennebula;

/// What is checked here.
pub const CHECKS: &[Check] = &[
    Check {
        id: "noexec",
        group: GROUP,
        what: "The folder of the remotes (normally below /var/tmp) lies on a file system that lets programs run.",
        why: "With noexec neither the helper nor any action script can be started.",
        mend: "Mount it without noexec, or set SCRIPTS_REMOTE_DIR in oned.conf to a folder elsewhere.",
    },
    Check {
        id: "remotes",
        group: GROUP,
        what: "The folder of the remotes belongs to the drivers' user and has the files of this version.",
        why: "Old scripts and an old helper go on running on a host whose remotes can't be updated.",
        mend: "kvmad sync HOST; chown -R oneadmin: /var/tmp/one when it belongs to another user.",
    },
    Check {
        id: "kill-user-processes",
        group: GROUP,
        what: "logind does not end a user's processes when its last session ends, or the user lingers.",
        why: "The monitoring agent would be killed when the ssh session that started it ends.",
        mend: "loginctl enable-linger oneadmin",
    },
    Check {
        id: "quiet-shell",
        group: GROUP,
        what: "The user's login shell prints nothing when it runs a command.",
        why: "What .bashrc and the like print comes before the answer of every command. kvmad skips it (up to 64 KiB), OpenNebula's transfer scripts and scp do not.",
        mend: "In the shell's start-up file: return at once when the shell is not interactive.",
    },
    Check {
        id: "ssh-sessions",
        group: GROUP,
        what: "sshd takes at least 10 sessions on a connection (MaxSessions) and at least 10 new connections at once (MaxStartups).",
        why: "With the helper one session carries everything; without it, and for OpenNebula's transfer scripts, connections are refused when many actions run.",
        mend: "MaxSessions 64 and MaxStartups 64:30:256 in /etc/ssh/sshd_config, then reload sshd.",
    },
    Check {
        id: "sudo",
        group: GROUP,
        what: "The user may run `ip link` by sudo without a password.",
        why: "The network drivers make and delete bridges so; a VM with such a network does not start otherwise.",
        mend: "Install opennebula-node-kvm (/etc/sudoers.d/opennebula and opennebula-node-kvm).",
    },
    Check {
        id: "limits",
        group: GROUP,
        what: "A session of the user may open at least 4096 files and start at least 1024 processes (hard limits).",
        why: "The helper of a busy host holds three pipes for each running command.",
        mend: "oneadmin hard nofile 65536 and oneadmin hard nproc 65536 in /etc/security/limits.d/one.conf",
    },
    Check {
        id: "hugepages",
        group: GROUP,
        what: "How many huge pages are reserved; they are needed only by VMs that ask for them (TOPOLOGY/HUGEPAGE_SIZE).",
        why: "A VM that asks for huge pages does not start when too few are free.",
        mend: "sysctl -w vm.nr_hugepages=N, and the same in /etc/sysctl.d/",
    },
];

/// All of them.
pub async fn all(host: &Host) -> Vec<Finding> {
    vec![
        mounts::noexec(&host.root.read("/proc/self/mountinfo").unwrap_or_default(), &host.wanted.remotes),
        remotes(host),
        kill_user_processes(host),
        quiet_shell(host).await,
        ssh_sessions(host).await,
        sudo(host).await,
        limits(host),
        hugepages(host),
    ]
}

fn remotes(host: &Host) -> Finding {
    use std::os::unix::fs::MetadataExt as _;
    let (id, folder) = ("remotes", host.wanted.remotes.as_str());
    let meta = match std::fs::metadata(host.root.path(folder)) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let evidence = format!("{folder} is not there; the first action of the drivers makes it");
            return Finding::skipped(id, GROUP, evidence);
        }
        Err(error) => {
            return Finding::unchecked(id, GROUP, format!("{folder}: {error}"), "look at it as root");
        }
    };
    let Ok(Some(account)) = &host.account else {
        return Finding::unchecked(id, GROUP, format!("{} is not known", host.user), "see the check user");
    };
    if meta.uid() != account.who.uid {
        let evidence = format!("{folder} belongs to user {}, not to {}", meta.uid(), host.user);
        let user = shell_words::quote(&host.user);
        let mend = format!("chown -R {user}: {} (look first who put it there)", shell_words::quote(folder));
        return Finding::bad(id, GROUP, Verdict::Failure, evidence, mend);
    }
    match host.root.line(format!("{folder}/.kvmad/stamp")) {
        Some(stamp) => {
            Finding::ok(id, GROUP, format!("{folder} belongs to {}, stamp {}", host.user, short(&stamp)))
        }
        None => {
            Finding::ok(id, GROUP, format!("{folder} belongs to {}; its files are not kvmad's", host.user))
        }
    }
}

/// As much of a stamp as tells two apart.
#[must_use]
pub fn short(stamp: &str) -> &str {
    stamp.get(..12).unwrap_or(stamp)
}

fn kill_user_processes(host: &Host) -> Finding {
    let id = "kill-user-processes";
    if !host.root.exists("/run/systemd/seats") {
        return Finding::skipped(id, GROUP, "logind does not run");
    }
    let mut files = vec!["/usr/lib/systemd/logind.conf".to_owned(), "/etc/systemd/logind.conf".to_owned()];
    // Files of all folders count in the order of their names; one in /etc hides those of the same name.
    let mut more: Vec<(String, String)> = Vec::new();
    for folder in ["/etc", "/run", "/usr/local/lib", "/usr/lib"] {
        let folder = format!("{folder}/systemd/logind.conf.d");
        for name in host.root.names(&folder).into_iter().filter(|name| name.ends_with(".conf")) {
            if !more.iter().any(|(known, _)| *known == name) {
                more.push((name.clone(), format!("{folder}/{name}")));
            }
        }
    }
    more.sort();
    files.extend(more.into_iter().map(|(_, file)| file));
    let mut last: Option<(String, bool)> = None;
    for file in files {
        for line in host.root.read(&file).unwrap_or_default().lines() {
            if let Some(("KillUserProcesses", value)) =
                line.trim().split_once('=').map(|(k, v)| (k.trim(), v.trim()))
            {
                let on = ["yes", "true", "1", "on"].iter().any(|word| value.eq_ignore_ascii_case(word));
                last = Some((file.clone(), on));
            }
        }
    }
    let Some((file, true)) = last else {
        return Finding::ok(id, GROUP, "KillUserProcesses is off");
    };
    if host.root.exists(format!("/var/lib/systemd/linger/{}", host.user)) {
        return Finding::ok(id, GROUP, format!("KillUserProcesses=yes in {file}, but {} lingers", host.user));
    }
    let mend = format!(
        "loginctl enable-linger {} (or KillUserProcesses=no in {file})",
        shell_words::quote(&host.user)
    );
    let evidence = format!("KillUserProcesses=yes in {file}, and {} does not linger", host.user);
    Finding::bad(id, GROUP, Verdict::Failure, evidence, mend)
}

async fn quiet_shell(host: &Host) -> Finding {
    let id = "quiet-shell";
    let Ok(Some(account)) = &host.account else {
        return Finding::unchecked(id, GROUP, format!("{} is not known", host.user), "see the check user");
    };
    let shell = account.shell.as_str();
    if ["nologin", "false"].contains(&shell.rsplit('/').next().unwrap_or_default()) {
        let mend = format!("chsh -s /bin/bash {}", shell_words::quote(&host.user));
        let evidence = format!("the login shell of {} is {shell}: no session over ssh", host.user);
        return Finding::bad(id, GROUP, Verdict::Failure, evidence, mend);
    }
    let limit = Duration::from_secs(10);
    // bash reads .bashrc when it believes that sshd started it for a command.
    let ssh = "192.0.2.1 1024 22";
    let env = [("SSH_CLIENT", ssh), ("SSH2_CLIENT", ssh), ("SHLVL", "0"), ("HOME", &account.home)];
    let ask = Ask {
        env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        stdin: Bytes::new(),
        cap: 1 << 20,
        ..Ask::new(shell, ["-c", "exit 0"], limit)
    };
    let answer = match host.as_account.ask(ask).await {
        Ok(answer) => answer,
        Err(reason) => return Finding::unchecked(id, GROUP, reason, format!("is {shell} there?")),
    };
    if answer.ended == crate::node::tools::Ended::TimedOut {
        let evidence =
            format!("{shell} takes more than {} s for a command that does nothing", limit.as_secs());
        return Finding::bad(id, GROUP, Verdict::Failure, evidence, "look into its start-up files");
    }
    let bytes = answer.stdout.len() as u64 + answer.dropped;
    let first = answer.stdout.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mend = format!(
        "at the top of the start-up file of {shell} (~/.bashrc: `case $- in *i*) ;; *) return ;; esac`; \
         ~/.config/fish/config.fish: inside `if status is-interactive`)"
    );
    let evidence = format!("{shell} prints {bytes} bytes before a command: {first:?}");
    match bytes {
        0 => Finding::ok(id, GROUP, format!("{shell} prints nothing")),
        1..=65_535 => Finding::bad(id, GROUP, Verdict::Warning, evidence, mend),
        _ => Finding::bad(id, GROUP, Verdict::Failure, evidence, mend),
    }
}

async fn ssh_sessions(host: &Host) -> Finding {
    let id = "ssh-sessions";
    let limit = Duration::from_secs(10);
    let user = format!("user={},host=localhost,addr=127.0.0.1", host.user);
    let told = match super::kvm::find(&host.root, "sshd") {
        // sshd itself knows best, but reads its keys first, which only root may.
        Some(sshd) if host.root_rights => {
            let ask = Ask::new(sshd.to_string_lossy(), ["-T", "-C", &user], limit);
            host.tools.ask(ask).await.and_then(|answer| answer.good("sshd -T", limit)).ok()
        }
        _ => None,
    };
    let (text, how) = match told {
        Some(text) => (text, "sshd -T"),
        None => match sshd_config(host) {
            Ok(text) => (text, "/etc/ssh/sshd_config"),
            Err(reason) => {
                let (evidence, mend) = host.denied("/etc/ssh/sshd_config", &reason);
                return Finding::unchecked(id, GROUP, evidence, mend);
            }
        },
    };
    let first = |key: &str| {
        let mut lines =
            text.lines().map(str::trim).take_while(|line| !line.to_ascii_lowercase().starts_with("match "));
        lines.find_map(|line| {
            let (word, rest) = line.split_once(|c: char| c.is_whitespace() || c == '=')?;
            word.eq_ignore_ascii_case(key).then(|| rest.trim().trim_matches('"').to_owned())
        })
    };
    let sessions: u32 = first("MaxSessions").and_then(|word| word.parse().ok()).unwrap_or(10);
    let startups = first("MaxStartups").unwrap_or_else(|| "10:30:100".to_owned());
    let begin: u32 = startups.split(':').next().and_then(|word| word.parse().ok()).unwrap_or(10);
    let evidence = format!("{how}: MaxSessions {sessions}, MaxStartups {startups}");
    if sessions >= 10 && begin >= 10 {
        return Finding::ok(id, GROUP, evidence);
    }
    let mend = "MaxSessions 64 and MaxStartups 64:30:256 in /etc/ssh/sshd_config (above any Match), then systemctl reload ssh (sshd)";
    Finding::bad(id, GROUP, Verdict::Warning, evidence, mend)
}

/// The text of sshd_config with the files that it includes at its top level, in place of the line that does.
fn sshd_config(host: &Host) -> Result<String, String> {
    let main =
        std::fs::read_to_string(host.root.path("/etc/ssh/sshd_config")).map_err(|error| error.to_string())?;
    let mut text = String::new();
    for line in main.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some(word), Some("/etc/ssh/sshd_config.d/*.conf")) if word.eq_ignore_ascii_case("include") => {
                for name in
                    host.root.names("/etc/ssh/sshd_config.d").iter().filter(|name| name.ends_with(".conf"))
                {
                    text.push_str(
                        &host.root.read(format!("/etc/ssh/sshd_config.d/{name}")).unwrap_or_default(),
                    );
                    text.push('\n');
                }
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    Ok(text)
}

async fn sudo(host: &Host) -> Finding {
    let id = "sudo";
    if matches!(&host.account, Ok(Some(account)) if account.who.uid == 0) {
        return Finding::skipped(id, GROUP, "root needs no sudo");
    }
    let Some(ip) = super::kvm::find(&host.root, "ip") else {
        return Finding::bad(id, GROUP, Verdict::Warning, "ip is not there", "apt-get install iproute2");
    };
    let limit = Duration::from_secs(15);
    // Asks whether it would be allowed; runs nothing.
    let words = ["-n", "-l", &ip.to_string_lossy(), "link", "set", "up", "dev", "lo"].map(str::to_owned);
    match host.as_account.ask(Ask::new("sudo", words, limit)).await {
        Ok(answer) if answer.ended == crate::node::tools::Ended::Exited(0) => {
            Finding::ok(id, GROUP, format!("{} may run {} link", host.user, ip.display()))
        }
        Ok(answer) => {
            let said = answer.good("sudo", limit).err().unwrap_or_default();
            let evidence =
                format!("{} may not run {} link by sudo without a password: {said}", host.user, ip.display());
            let mend = "install opennebula-node-kvm, which brings /etc/sudoers.d/opennebula-node-kvm; not needed for networks of the driver dummy";
            Finding::bad(id, GROUP, Verdict::Warning, evidence, mend)
        }
        Err(reason) => Finding::bad(
            id,
            GROUP,
            Verdict::Warning,
            reason,
            "apt-get install sudo, and the rules of opennebula-node-kvm",
        ),
    }
}

fn limits(host: &Host) -> Finding {
    let id = "limits";
    if host.root_rights && host.user != "root" {
        let evidence =
            "these are the limits of a session of the user itself; checked when it runs as that user";
        return Finding::skipped(id, GROUP, evidence);
    }
    let text = host.root.read("/proc/self/limits").unwrap_or_default();
    let hard = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().nth(1).map(|word| word.parse::<u64>().unwrap_or(u64::MAX))
    };
    let (Some(files), Some(processes)) = (hard("Max open files"), hard("Max processes")) else {
        return Finding::unchecked(id, GROUP, "/proc/self/limits can't be read", "");
    };
    let word = |number: u64| if number == u64::MAX { "unlimited".to_owned() } else { number.to_string() };
    let evidence = format!("hard limits: {} open files, {} processes", word(files), word(processes));
    if files >= 4096 && processes >= 1024 {
        return Finding::ok(id, GROUP, evidence);
    }
    let user = &host.user;
    let mend = format!(
        "in /etc/security/limits.d/one.conf: `{user} hard nofile 65536` and `{user} hard nproc 65536`"
    );
    Finding::bad(id, GROUP, Verdict::Warning, evidence, mend)
}

fn hugepages(host: &Host) -> Finding {
    let id = "hugepages";
    let folder = "/sys/kernel/mm/hugepages";
    let mut kinds = Vec::new();
    for name in host.root.names(folder) {
        let number = |file: &str| host.root.number::<u64>(format!("{folder}/{name}/{file}")).unwrap_or(0);
        let (all, free) = (number("nr_hugepages"), number("free_hugepages"));
        if all > 0 {
            let size = name.trim_start_matches("hugepages-");
            kinds.push(format!("{all} of {size}, {free} free"));
        }
    }
    if kinds.is_empty() {
        return Finding::skipped(id, GROUP, "none are reserved; only VMs with HUGEPAGE_SIZE need them");
    }
    Finding::ok(id, GROUP, kinds.join("; "))
}
