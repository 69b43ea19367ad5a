//! Runners for tests: one that gives canned outcomes, one that starts real local processes.

#![allow(clippy::disallowed_methods, reason = "tests start their own processes")]

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvmad::host::job::{Boxed, Ending, HostName, Job, Outcome, Place, Program, Purpose, Runner, Watch};
use kvmad::mad::actions::{Context, Severity};
use tokio::io::AsyncWriteExt;

/// One job as it was asked for: place, script, arguments, in short.
pub type Line = String;

/// What a canned run gives.
#[derive(Clone)]
pub struct Canned {
    pub ending: Ending,
    pub stdout: String,
    pub stderr: String,
}

pub fn good(stdout: &str) -> Canned {
    Canned { ending: Ending::Exited(0), stdout: stdout.to_owned(), stderr: String::new() }
}

pub fn bad(code: i32, stderr: &str) -> Canned {
    Canned { ending: Ending::Exited(code), stdout: String::new(), stderr: stderr.to_owned() }
}

pub fn ends(ending: Ending) -> Canned {
    Canned { ending, stdout: String::new(), stderr: String::new() }
}

type Decide = Box<dyn Fn(&str, &Job) -> Canned + Send + Sync>;

/// Gives what `decide` says for `place script arguments`, and remembers the jobs.
pub struct Fake {
    decide: Decide,
    pub seen: Mutex<Vec<Line>>,
    pub jobs: Mutex<Vec<(Place, Job)>>,
    /// Hosts that were to be brought up to date, each with the number of jobs that had begun by then.
    pub readied: Mutex<Vec<(String, usize)>>,
}

impl Fake {
    pub fn new(decide: impl Fn(&str, &Job) -> Canned + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            decide: Box::new(decide),
            seen: Mutex::default(),
            jobs: Mutex::default(),
            readied: Mutex::default(),
        })
    }

    /// What was run, in order; roll-back jobs begin with `~ `.
    pub fn lines(&self) -> Vec<Line> {
        self.seen.lock().expect("lock").clone()
    }
}

/// `host1 vmm/kvm/save a b`, `~ ` in front when it rolls back; base64 of documents is left out.
pub fn line(place: &Place, job: &Job) -> Line {
    let place = match place {
        Place::Local => "local".to_owned(),
        Place::Host { name, .. } => name.to_string(),
    };
    let program = match &job.program {
        Program::Script(path) | Program::Path(path) => path.clone(),
    };
    let mark = if job.purpose == Purpose::RollBack { "~ " } else { "" };
    let args = job.args.iter().filter(|arg| arg.len() < 300 && !arg.starts_with("set -eu"));
    let words: Vec<&str> = [place.as_str(), &program].into_iter().chain(args.map(String::as_str)).collect();
    format!("{mark}{}", words.join(" "))
}

impl Runner for Fake {
    fn run<'a>(&'a self, place: &'a Place, job: Job, watch: Watch) -> Boxed<'a, Outcome> {
        Box::pin(async move {
            let line = line(place, &job);
            self.seen.lock().expect("lock").push(line.clone());
            let canned = (self.decide)(&line, &job);
            self.jobs.lock().expect("lock").push((place.clone(), job));
            for line in canned.stderr.lines() {
                (watch.on_stderr)(line);
            }
            if canned.ending == Ending::Cancelled {
                watch.cancel.cancelled().await;
            }
            Outcome {
                ending: canned.ending,
                stdout: canned.stdout.into_bytes(),
                stderr: canned.stderr.into_bytes(),
                dropped: 0,
                took: Duration::ZERO,
            }
        })
    }

    fn ready<'a>(&'a self, host: &'a HostName, _watch: Watch) -> Boxed<'a, Result<(), String>> {
        let begun = self.seen.lock().expect("lock").len();
        self.readied.lock().expect("lock").push((host.to_string(), begun));
        Box::pin(async { Err("no way there".to_owned()) })
    }
}

/// Runs every job as a local process, scripts from a folder, whatever its place.
pub struct Processes {
    pub remotes: PathBuf,
}

impl Runner for Processes {
    fn run<'a>(&'a self, _place: &'a Place, job: Job, watch: Watch) -> Boxed<'a, Outcome> {
        Box::pin(async move {
            let program = match &job.program {
                Program::Script(path) => self.remotes.join(path),
                Program::Path(path) => PathBuf::from(path),
            };
            let started = tokio::process::Command::new(&program)
                .args(&job.args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let mut child = match started {
                Ok(child) => child,
                Err(error) => return outcome(Ending::NotStarted(format!("{}: {error}", program.display()))),
            };
            let mut stdin = child.stdin.take().expect("stdin");
            let feed = tokio::spawn(async move {
                let _ = stdin.write_all(&job.stdin).await;
            });
            let output = child.wait_with_output().await.expect("output");
            let _ = feed.await;
            for line in String::from_utf8_lossy(&output.stderr).lines() {
                (watch.on_stderr)(line);
            }
            let ending = output.status.code().map_or(Ending::Signaled(9), Ending::Exited);
            Outcome { stdout: output.stdout, stderr: output.stderr, ..outcome(ending) }
        })
    }
}

fn outcome(ending: Ending) -> Outcome {
    Outcome { ending, stdout: Vec::new(), stderr: Vec::new(), dropped: 0, took: Duration::ZERO }
}

/// The log of a request.
#[derive(Clone, Default)]
pub struct Logged(pub Arc<Mutex<Vec<(Severity, String)>>>);

impl Logged {
    pub fn context(&self) -> Context {
        let lines = Arc::clone(&self.0);
        Context::alone(Arc::new(move |severity, text: &str| {
            lines.lock().expect("lock").push((severity, text.to_owned()));
        }))
    }

    /// The texts, in order.
    pub fn texts(&self) -> Vec<String> {
        self.0.lock().expect("lock").iter().map(|(_, text)| text.clone()).collect()
    }

    pub fn has(&self, severity: Severity, text: &str) -> bool {
        self.0.lock().expect("lock").iter().any(|(s, t)| *s == severity && t == text)
    }
}
