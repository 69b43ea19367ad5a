//! What needs both sides: the front-end asks, the host answers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::host::pool::Seen;
use crate::host::{HostName, Job, Outcome, Place, Program, Runner, Watch};
use crate::node::check::session::short;
use crate::node::check::{Check, Finding, Group, Verdict, mounts};
use crate::node::tools::{Ask, Ended, Real, Tools as _};
use crate::script::failure;

const GROUP: Group = Group::Opennebula;

/// What is checked here.
pub const CHECKS: &[Check] = &[
    Check {
        id: "ssh",
        group: GROUP,
        what: "The front-end's user reaches the host by ssh without a password, and knows its key.",
        why: "The drivers do nothing on a host otherwise.",
        mend: "ssh-keyscan HOST >> ~oneadmin/.ssh/known_hosts (compare the key); ssh-copy-id HOST as oneadmin",
    },
    Check {
        id: "helper",
        group: GROUP,
        what: "The helper kvmad-node answers on the host.",
        why: "Without it each command takes a channel of its own (slower, bounded by MaxSessions), and there is no monitoring agent of kvmad.",
        mend: "kvmad sync HOST; a file system without noexec; see the checks noexec, fapolicyd and quiet-shell.",
    },
    Check {
        id: "remotes-version",
        group: GROUP,
        what: "The host's remotes are those of the front-end.",
        why: "Old scripts and an old helper do what they did before the upgrade. The next action of a driver brings them up to date.",
        mend: "kvmad sync HOST",
    },
    Check {
        id: "host",
        group: GROUP,
        what: "The host answers with its checks.",
        why: "Nothing else is known of it otherwise.",
        mend: "See the other findings; kvmad sync HOST",
    },
    Check {
        id: "clock",
        group: GROUP,
        what: "The host's clock agrees with the front-end's within 1 s.",
        why: "Monitoring reports carry times, and a guest's clock jumps when it migrates between hosts that differ.",
        mend: "chrony or systemd-timesyncd on both: timedatectl set-ntp true",
    },
    Check {
        id: "names",
        group: GROUP,
        what: "The front-end resolves the host's name, and the host the front-end's.",
        why: "Transfer drivers copy between them by name; logs and certificates name them.",
        mend: "/etc/hosts or DNS on the side that is named",
    },
];

/// Nothing can be asked.
pub fn no_connection(host: &HostName, reason: &str) -> Finding {
    // ssh has no other form than its words.
    let mend = if reason.contains("Host key verification failed") {
        format!(
            "as the drivers' user: ssh-keyscan {host} >> ~/.ssh/known_hosts, after comparing the key; a changed key: ssh-keygen -R {host}"
        )
    } else if reason.contains("Permission denied") {
        format!(
            "as the drivers' user: ssh-copy-id {host} (its public key into ~/.ssh/authorized_keys of the host's user)"
        )
    } else if reason.contains("Could not resolve") {
        format!("{host} in DNS or /etc/hosts of the front-end")
    } else {
        format!("is {host} up, sshd running, port 22 open? as the drivers' user: ssh -v {host} true")
    };
    Finding::bad("ssh", GROUP, Verdict::Failure, reason.to_owned(), mend)
}

/// A session was had.
pub fn connected(host: &HostName) -> Finding {
    Finding::ok("ssh", GROUP, format!("{host} lets the user in without a password"))
}

/// Whether the host has this front-end's remotes, with their helper.
pub fn is_fresh(seen: &Seen) -> bool {
    matches!((&seen.helper, &seen.wanted), (Ok((_, Some(stamp))), Ok(wanted)) if stamp == wanted)
}

/// The helper and the version of the remotes.
pub async fn helper(runner: &dyn Runner, host: &HostName, seen: &Seen, remotes: &str) -> Vec<Finding> {
    let reason = match &seen.helper {
        Ok((version, stamp)) => {
            let helper = Finding::ok("helper", GROUP, format!("kvmad-node {version} answers"));
            return vec![helper, version_of(host, stamp.as_deref(), seen)];
        }
        Err(reason) => reason,
    };
    let mut found = Vec::new();
    // Why not? The mounts tell, and whether there is anything at all.
    if let Ok(text) = asked(runner, host, "cat", &["/proc/self/mountinfo"]).await {
        let mounts = mounts::noexec(&text, remotes);
        if mounts.verdict == Verdict::Failure {
            let evidence = format!("no helper: {}", mounts.evidence);
            found.push(Finding::bad("helper", GROUP, Verdict::Failure, evidence, mounts.mend.clone()));
            found.push(mounts);
            return found;
        }
    }
    let there = asked(runner, host, "ls", &["-d", "--", &format!("{remotes}/kvmad/serve")]).await;
    let (evidence, mend) = match there {
        Ok(_) => (
            format!("the helper in {remotes}/kvmad does not answer: {reason}"),
            "see the checks noexec, fapolicyd, selinux and quiet-shell; kvmad sync HOST"
                .replace("HOST", host.as_str()),
        ),
        Err(_) => (
            format!("{remotes} on the host has no helper yet"),
            format!("kvmad sync {host}, or let the first action of a driver do it"),
        ),
    };
    found.push(Finding::bad("helper", GROUP, Verdict::Warning, evidence, mend));
    found
}

fn version_of(host: &HostName, stamp: Option<&str>, seen: &Seen) -> Finding {
    let id = "remotes-version";
    match (&seen.wanted, stamp) {
        (Err(reason), _) => Finding::unchecked(id, GROUP, format!("the front-end's remotes: {reason}"), ""),
        (Ok(wanted), Some(stamp)) if wanted == stamp => {
            Finding::ok(id, GROUP, format!("the host has those of the front-end ({})", short(stamp)))
        }
        (Ok(wanted), stamp) => {
            let has = stamp.map_or("none", short);
            let evidence = format!("the host has {has}, the front-end {}", short(wanted));
            Finding::bad(id, GROUP, Verdict::Warning, evidence, format!("kvmad sync {host}"))
        }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// How far the host's clock is from ours. The way there and back is the uncertainty.
pub async fn clock(runner: &dyn Runner, host: &HostName) -> Finding {
    let id = "clock";
    let before = now();
    let told = asked(runner, host, "date", &["+%s.%N"]).await;
    let after = now();
    match told.and_then(|text| text.trim().parse::<f64>().map_err(|_| format!("date printed {text:?}"))) {
        Ok(theirs) => judge_clock(host, before, theirs, after),
        Err(reason) => Finding::unchecked(id, GROUP, reason, ""),
    }
}

fn judge_clock(host: &HostName, before: f64, theirs: f64, after: f64) -> Finding {
    let id = "clock";
    let off = theirs - f64::midpoint(before, after);
    let unsure = (after - before) / 2.0;
    let word = if off < 0.0 { "behind" } else { "ahead" };
    let evidence =
        format!("{host} is {:.1} s {word} of the front-end (measured within {unsure:.1} s)", off.abs());
    if off.abs() - unsure > 1.0 {
        let mend = "chrony or systemd-timesyncd on both sides: timedatectl set-ntp true";
        return Finding::bad(id, GROUP, Verdict::Warning, evidence, mend);
    }
    if unsure > 1.0 {
        return Finding::unchecked(id, GROUP, evidence, "the host answered too slowly: try again");
    }
    Finding::ok(id, GROUP, format!("within {:.1} s of the front-end's", off.abs() + unsure))
}

/// Whether the names resolve both ways.
pub async fn names(runner: &dyn Runner, host: &HostName) -> Finding {
    let id = "names";
    let name = host.as_str().rsplit('@').next().unwrap_or_default();
    let limit = Duration::from_secs(15);
    let ours = Real::default().ask(Ask::new("getent", ["--", "ahosts", name], limit)).await;
    match ours.map(|answer| answer.ended) {
        Ok(Ended::Exited(0)) => {}
        Ok(Ended::Exited(2)) => {
            let evidence =
                format!("the front-end does not resolve {name} (ssh knows it from its own configuration)");
            return Finding::bad(
                id,
                GROUP,
                Verdict::Warning,
                evidence,
                format!("{name} in /etc/hosts or DNS of the front-end"),
            );
        }
        other => return Finding::unchecked(id, GROUP, format!("getent: {other:?}"), ""),
    }
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let outcome = run(runner, host, "getent", &["--", "ahosts", &own]).await;
    match &outcome.ending {
        crate::host::Ending::Exited(0) => {
            Finding::ok(id, GROUP, format!("the front-end resolves {name}, {name} resolves {own}"))
        }
        crate::host::Ending::Exited(2) => {
            let evidence = format!("{name} does not resolve {own}, the front-end's name");
            Finding::bad(
                id,
                GROUP,
                Verdict::Warning,
                evidence,
                format!("{own} in /etc/hosts or DNS of {name}"),
            )
        }
        _ => Finding::unchecked(id, GROUP, failure(&outcome, "getent", &place(host)), ""),
    }
}

fn place(host: &HostName) -> Place {
    Place::Host { name: host.clone(), agent: false }
}

async fn run(runner: &dyn Runner, host: &HostName, program: &str, args: &[&str]) -> Outcome {
    let job = Job {
        args: args.iter().map(|word| (*word).to_owned()).collect(),
        limit: Some(Duration::from_secs(20)),
        grace: Duration::from_secs(2),
        ..Job::new(Program::Path(program.to_owned()))
    };
    runner.run(&place(host), job, Watch::nothing()).await
}

async fn asked(runner: &dyn Runner, host: &HostName, program: &str, args: &[&str]) -> Result<String, String> {
    let outcome = run(runner, host, program, args).await;
    if outcome.succeeded() {
        return Ok(String::from_utf8_lossy(&outcome.stdout).into_owned());
    }
    Err(failure(&outcome, program, &place(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostName {
        HostName::new("node1").expect("a name")
    }

    #[test]
    fn a_clock_counts_as_wrong_only_beyond_what_the_way_explains() {
        let verdict = |before, theirs, after| judge_clock(&host(), before, theirs, after).verdict;
        assert_eq!(verdict(100.0, 100.1, 100.2), Verdict::Ok);
        assert_eq!(verdict(100.0, 101.0, 100.2), Verdict::Ok);
        assert_eq!(verdict(100.0, 101.5, 100.2), Verdict::Warning);
        assert_eq!(verdict(100.0, 98.0, 100.2), Verdict::Warning);
        assert_eq!(verdict(100.0, 101.0, 104.0), Verdict::CouldNotCheck);
        assert!(judge_clock(&host(), 100.0, 40.0, 100.2).evidence.contains("60.1 s behind"));
    }

    #[test]
    fn the_mend_of_a_connection_fits_what_ssh_says() {
        for (said, mend) in [
            ("node1: Host key verification failed.", "ssh-keyscan node1"),
            ("node1: oneadmin@node1: Permission denied (publickey).", "ssh-copy-id node1"),
            ("ssh: Could not resolve hostname node1: Name or service not known", "/etc/hosts"),
            ("connect to host node1 port 22: No route to host", "ssh -v node1"),
        ] {
            let found = no_connection(&host(), said);
            assert!(found.mend.contains(mend), "{said}: {}", found.mend);
            assert_eq!((found.verdict, found.evidence.as_str()), (Verdict::Failure, said));
        }
    }

    #[test]
    fn remotes_are_compared_by_their_stamps() {
        let seen = |stamp: Option<&str>| Seen {
            helper: Ok(("0.1.0".into(), stamp.map(str::to_owned))),
            wanted: Ok("abcdef0123456789".into()),
        };
        let judged = |stamp: Option<&str>| version_of(&host(), stamp, &seen(stamp));
        assert_eq!(judged(Some("abcdef0123456789")).verdict, Verdict::Ok);
        assert!(is_fresh(&seen(Some("abcdef0123456789"))) && !is_fresh(&seen(None)));
        for stale in [Some("x"), None] {
            let found = judged(stale);
            assert_eq!((found.verdict, found.mend.as_str()), (Verdict::Warning, "kvmad sync node1"));
        }
    }
}
