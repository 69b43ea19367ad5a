//! Looks at two hosts at once, each of which holds something ready for the other one to find.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::host::job::{HostName, Job, Outcome, Place, Program, Runner, Watch};
use crate::node::check::Finding;
use crate::node::check::migration::about::About;
use crate::node::check::migration::domain::Domain;
use crate::node::check::migration::hold::Held;
use crate::node::check::migration::hosts::{self, Pair};
use crate::node::check::migration::side::{Request, Side};
use crate::node::check::migration::vm;
use crate::script::failure;

const SCRIPT: &str = "kvmad/migration";
/// Time limit of what runs on a host.
const LIMIT: Duration = Duration::from_secs(90);
/// Until the other host may look, whatever it is that this one can't hold ready.
const READY: Duration = Duration::from_secs(30);

/// The domain that is to go.
#[derive(Debug, Clone)]
pub struct Going {
    /// Its XML, as the source printed it.
    pub xml: String,
    /// The same, read.
    pub domain: Domain,
    /// What OpenNebula says of it.
    pub about: About,
}

fn job(words: &[&str], stdin: Vec<u8>) -> Job {
    Job {
        args: words.iter().map(|word| (*word).to_owned()).collect(),
        stdin: stdin.into(),
        limit: Some(LIMIT),
        grace: Duration::from_secs(5),
        ..Job::new(Program::Script(SCRIPT.to_owned()))
    }
}

fn at(host: &HostName, agent: bool) -> Place {
    Place::Host { name: host.clone(), agent }
}

fn reason(host: &HostName, outcome: &Outcome, place: &Place) -> String {
    let text = failure(outcome, SCRIPT, place);
    // What is wrong with a connection names its host already.
    if text.starts_with(&format!("{host}: ")) { text } else { format!("{host}: {text}") }
}

/// XML of a domain on a host; `None` when libvirt there says that there is no such domain.
///
/// # Errors
/// Why it can't be had, with the host's name.
pub async fn domain_xml(
    runner: &dyn Runner,
    host: &HostName,
    domain: &str,
) -> Result<Option<String>, String> {
    let place = at(host, false);
    let outcome = runner.run(&place, job(&["domain", "--", domain], Vec::new()), Watch::nothing()).await;
    if outcome.succeeded() {
        let xml = String::from_utf8_lossy(&outcome.stdout).into_owned();
        return Ok(Some(xml).filter(|xml| !xml.trim().is_empty()));
    }
    Err(reason(host, &outcome, &place))
}

/// All checks of a pair of hosts, and of the domain that is to go from `source` to `target`, if one is given.
///
/// # Errors
/// Why one of the hosts could not be looked at, with its name.
pub async fn check(
    runner: &dyn Runner,
    source: &HostName,
    target: &HostName,
    going: Option<&Going>,
) -> Result<Vec<Finding>, String> {
    let end = CancellationToken::new();
    let folders = going.map(|going| folders(&going.domain)).unwrap_or_default();
    let (from_source, source_held) = oneshot::channel();
    let (from_target, target_held) = oneshot::channel();
    let looking = async {
        // Dropped on every way out: then both let go.
        let _end = end.clone().drop_guard();
        let (source_held, target_held) = tokio::join!(ready(source_held), ready(target_held));
        let ask = |host, peer: &HostName, theirs: &Held| side(runner, host, request(peer, theirs, going));
        let began = Instant::now();
        let (one, other) = tokio::join!(ask(source, target, &target_held), ask(target, source, &source_held));
        Ok::<_, String>((one?, other?, began.elapsed()))
    };
    let (looked, (), ()) = tokio::join!(
        looking,
        hold(runner, source, &folders, from_source, end.clone()),
        hold(runner, target, &[], from_target, end.clone())
    );
    let (one, other, took) = looked?;
    let pair = Pair { source: (source.as_str(), &one), target: (target.as_str(), &other) };
    let mut all = hosts::findings(pair, u64::try_from(took.as_millis()).unwrap_or(u64::MAX / 2));
    if let Some(going) = going {
        all.extend(vm::findings(pair, &going.domain, &going.about));
    }
    Ok(all)
}

/// Folders of disks in which a marker can be made.
fn folders(domain: &Domain) -> Vec<String> {
    let all: BTreeSet<&str> = domain.disks.iter().filter_map(|disk| disk.folder()).collect();
    all.into_iter().filter(|folder| !folder.starts_with("/dev")).map(str::to_owned).collect()
}

fn request(peer: &HostName, theirs: &Held, going: Option<&Going>) -> Request {
    Request {
        peer: peer.as_str().to_owned(),
        peer_hostname: theirs.hostname.clone(),
        port: theirs.port.as_ref().and_then(|port| port.as_ref().ok().copied()),
        domain: going.map(|going| going.xml.clone()),
        markers: theirs.markers.clone(),
    }
}

/// What the other host holds; nothing when it told nothing (its own look then says why).
async fn ready(held: oneshot::Receiver<Held>) -> Held {
    match tokio::time::timeout(READY, held).await {
        Ok(Ok(held)) => held,
        Ok(Err(_)) | Err(_) => Held::default(),
    }
}

/// Runs until `end`; what is held goes to `told` as soon as it is.
async fn hold(
    runner: &dyn Runner,
    host: &HostName,
    folders: &[String],
    told: oneshot::Sender<Held>,
    end: CancellationToken,
) {
    let told = Arc::new(Mutex::new(Some(told)));
    let teller = Arc::clone(&told);
    let on_line = move |line: &str| {
        let Ok(held) = serde_json::from_str::<Held>(line) else { return };
        if let Some(told) = teller.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Whoever waits may have given up.
            let _ = told.send(held);
        }
    };
    let mut words = vec!["hold"];
    for folder in folders {
        words.extend(["--marker", folder]);
    }
    let watch = Watch { on_stderr: Arc::new(on_line), cancel: end, ..Watch::nothing() };
    let outcome = runner.run(&at(host, false), job(&words, Vec::new()), watch).await;
    // The sender goes, so that nobody waits for what will not come.
    drop(told.lock().unwrap_or_else(PoisonError::into_inner).take());
    tracing::debug!(%host, ending = ?outcome.ending, "holding ended");
}

/// As a migration does it: with the agent forwarded.
async fn side(runner: &dyn Runner, host: &HostName, request: Request) -> Result<Side, String> {
    let text = serde_json::to_vec(&request).map_err(|error| format!("{host}: the request: {error}"))?;
    let place = at(host, true);
    let outcome = runner.run(&place, job(&["side"], text), Watch::nothing()).await;
    if !outcome.succeeded() {
        return Err(reason(host, &outcome, &place));
    }
    serde_json::from_slice(&outcome.stdout)
        .map_err(|error| format!("{host}: {SCRIPT} printed no answer ({error}); kvmad sync {host}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::job::{Boxed, Ending};

    /// Two hosts of one kind: each holds until it is cancelled, and tells what it was asked.
    struct Fake {
        hold_fails: bool,
        asked: Mutex<Vec<(String, Request)>>,
        ended: Mutex<usize>,
    }

    fn outcome(ending: Ending, stdout: Vec<u8>) -> Outcome {
        Outcome { ending, stdout, stderr: b"broken\n".to_vec(), dropped: 0, took: Duration::ZERO }
    }

    impl Runner for Fake {
        fn run<'a>(&'a self, place: &'a Place, job: Job, watch: Watch) -> Boxed<'a, Outcome> {
            Box::pin(async move {
                let Place::Host { name, .. } = place else { panic!("on a host") };
                match job.args[0].as_str() {
                    "hold" if self.hold_fails => outcome(Ending::Exited(1), Vec::new()),
                    "hold" => {
                        let held = Held {
                            hostname: Some(format!("{name}.x")),
                            port: Some(Ok(49_215)),
                            markers: vec![],
                        };
                        (watch.on_stderr)("a banner");
                        (watch.on_stderr)(&serde_json::to_string(&held).expect("JSON"));
                        watch.cancel.cancelled().await;
                        *self.ended.lock().expect("a lock") += 1;
                        outcome(Ending::Cancelled, Vec::new())
                    }
                    "side" if name.as_str() == "down" => {
                        outcome(Ending::Lost("down: no route".into()), Vec::new())
                    }
                    "side" => {
                        let request = serde_json::from_slice(&job.stdin).expect("a request");
                        self.asked.lock().expect("a lock").push((name.to_string(), request));
                        outcome(Ending::Exited(0), serde_json::to_vec(&Side::default()).expect("JSON"))
                    }
                    other => panic!("{other}"),
                }
            })
        }
    }

    fn fake(hold_fails: bool) -> Fake {
        Fake { hold_fails, asked: Mutex::default(), ended: Mutex::default() }
    }

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a name")
    }

    #[tokio::test]
    async fn each_side_learns_what_the_other_one_holds_and_both_let_go() {
        let fake = fake(false);
        let found = check(&fake, &host("a"), &host("b"), None).await.expect("looked");
        assert_eq!(found.len(), 9);
        let mut asked = fake.asked.lock().expect("a lock").clone();
        asked.sort_by(|one, other| one.0.cmp(&other.0));
        let told: Vec<_> = asked
            .iter()
            .map(|(host, r)| (host.as_str(), r.peer.as_str(), r.peer_hostname.as_deref(), r.port))
            .collect();
        assert_eq!(told, [("a", "b", Some("b.x"), Some(49_215)), ("b", "a", Some("a.x"), Some(49_215))]);
        assert_eq!(*fake.ended.lock().expect("a lock"), 2);
    }

    #[tokio::test]
    async fn a_host_that_can_hold_nothing_is_looked_at_all_the_same() {
        let fake = fake(true);
        let found = check(&fake, &host("a"), &host("b"), None).await.expect("looked");
        assert_eq!(found.len(), 9);
        assert!(fake.asked.lock().expect("a lock").iter().all(|(_, request)| request.port.is_none()));
    }

    #[tokio::test]
    async fn a_host_that_is_down_is_named_and_the_other_one_lets_go() {
        let fake = fake(false);
        let why = check(&fake, &host("a"), &host("down"), None).await.expect_err("down");
        assert!(why.contains("down: no route"), "{why}");
        assert_eq!(*fake.ended.lock().expect("a lock"), 2);
    }

    #[test]
    fn markers_go_beside_files_once_a_folder() {
        let disk = |path: &str| crate::node::check::migration::domain::Disk {
            path: path.into(),
            ..Default::default()
        };
        let domain = Domain {
            disks: ["/a/b/0", "/a/b/1", "/dev/vg/x", "", "/c/0"].map(disk).into(),
            ..Domain::default()
        };
        assert_eq!(folders(&domain), ["/a/b", "/c"]);
    }
}
