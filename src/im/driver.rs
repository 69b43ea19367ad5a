//! Serves the requests: one script on the host each, tried again within a bound, one answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::form::HOST_FAILURE;
use super::request::{Era, Work, read};
use crate::host::job::{Ending, Job, Outcome, Place, Program, Runner};
use crate::mad::actions::{Actions, Answer, Context, Keys, Overtake, Prepared, Request, Severity};
use crate::node::monitor::message::first_reply_is_complete;
use crate::script::{failure, watch};

/// Bounds of the tries.
#[derive(Debug, Clone, Copy)]
pub struct Tries {
    /// Further tries after the first (`-r`).
    pub retries: usize,
    /// Time limit of one.
    pub limit: Duration,
    /// Pause between two.
    pub wait: Duration,
    /// All of them together: onemonitord sends a second START after 300 s.
    pub total: Duration,
}

/// The IM driver's actions.
pub struct Driver {
    runner: Arc<dyn Runner>,
    era: Era,
    tries: Tries,
    local: bool,
    environment: Vec<(String, String)>,
}

impl Driver {
    /// A driver that runs its scripts by `runner`, on the front-end when `local`.
    #[must_use]
    pub fn new(runner: Arc<dyn Runner>, era: Era, tries: Tries, local: bool) -> Self {
        Self { runner, era, tries, local, environment: Vec::new() }
    }

    /// Adds variables for the scripts.
    #[must_use]
    pub fn with_environment(mut self, environment: Vec<(String, String)>) -> Self {
        self.environment = environment;
        self
    }

    fn job(&self, work: &Work, limit: Duration) -> Job {
        let stdin = if self.local { work.local_stdin() } else { work.stdin.clone() };
        Job {
            args: work.words.clone(),
            env: self.environment.clone(),
            stdin,
            limit: Some(limit),
            grace: Duration::from_secs(5),
            ..Job::new(Program::Script(work.script.to_owned()))
        }
    }

    /// Tries until it succeeds, the tries are used up, or too little time is left for another.
    async fn tried(&self, work: &Work, place: &Place, context: &Context) -> Outcome {
        let until = Instant::now() + self.tries.total;
        let mut left = self.tries.retries;
        loop {
            let limit = self.tries.limit.min(until.saturating_duration_since(Instant::now()));
            let outcome =
                self.runner.run(place, self.job(work, limit), watch(context, context.cancel.clone())).await;
            let over =
                outcome.succeeded() || outcome.ending == Ending::Cancelled || context.cancel.is_cancelled();
            let next = Instant::now() + self.tries.wait;
            if over || left == 0 || next >= until {
                return outcome;
            }
            left -= 1;
            let reason = failure(&outcome, work.script, place);
            (context.log)(Severity::Warning, &format!("{reason}; tried again"));
            tokio::select! {
                () = sleep(self.tries.wait) => {}
                () = context.cancel.cancelled() => return outcome,
            }
        }
    }
}

impl Actions for Driver {
    type Work = Box<Work>;

    fn prepare(&self, request: &Request) -> Result<Prepared<Self::Work>, String> {
        let work = read(request, &self.era)?;
        let places = if self.local { Vec::new() } else { vec![work.host.to_string()] };
        // The same request again while one runs joins it: a START takes as long as a round of probes.
        let keys = Keys { subject: work.id, places };
        Ok(Prepared { keys, overtake: Overtake::Wait, prefix: None, work: Box::new(work) })
    }

    async fn run(&self, work: Self::Work, context: Context) -> Answer {
        let place =
            if self.local { Place::Local } else { Place::Host { name: work.host.clone(), agent: false } };
        let outcome = self.tried(&work, &place, &context).await;
        let stdout = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let reason = if !outcome.succeeded() {
            failure(&outcome, work.script, &place)
        } else if work.starts && !first_reply_is_complete(&stdout) {
            format!("{} on {} gave no complete first reply", work.script, work.host)
        } else {
            // A START that gave nothing (a hypervisor without an agent) is a success to onemonitord, `-` is not.
            let nothing = if work.starts { "" } else { "-" };
            let text = if work.starts { stdout.trim().to_owned() } else { stdout };
            return Answer::Success(if text.is_empty() { nothing.to_owned() } else { text });
        };
        if work.starts && outcome.ending != Ending::Cancelled {
            (context.log)(Severity::Error, &format!("{HOST_FAILURE}{reason}"));
        }
        Answer::Failure(reason)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::host::job::{Boxed, HostName, Watch};
    use crate::mad::actions::{LineForm, LogFn};
    use crate::node::monitor::message::pack;

    const REPLY: &str =
        "<MONITOR_MESSAGES><SYSTEM_HOST>QT0x</SYSTEM_HOST>\n<TIMESTAMP>1</TIMESTAMP></MONITOR_MESSAGES>\n";

    /// Answers with the given endings and outputs one after another, and keeps the jobs.
    struct Canned {
        outcomes: Mutex<Vec<(Ending, &'static str, &'static str)>>,
        jobs: Mutex<Vec<(Place, Job)>>,
    }

    impl Runner for Canned {
        fn run<'a>(&'a self, place: &'a Place, job: Job, _watch: Watch) -> Boxed<'a, Outcome> {
            self.jobs.lock().expect("free").push((place.clone(), job));
            let (ending, stdout, stderr) = self.outcomes.lock().expect("free").remove(0);
            let (stdout, stderr) = (stdout.as_bytes().to_vec(), stderr.as_bytes().to_vec());
            Box::pin(async move { Outcome { ending, stdout, stderr, dropped: 0, took: Duration::ZERO } })
        }
    }

    fn canned(outcomes: &[(Ending, &'static str, &'static str)]) -> Arc<Canned> {
        Arc::new(Canned { outcomes: Mutex::new(outcomes.to_vec()), jobs: Mutex::default() })
    }

    fn driver(runner: &Arc<Canned>, local: bool) -> Driver {
        let tries = Tries {
            retries: 3,
            limit: Duration::from_secs(90),
            wait: Duration::from_millis(1),
            total: Duration::from_secs(280),
        };
        Driver::new(runner.clone(), Era::new("kvm", std::iter::empty()), tries, local)
    }

    async fn ask(driver: &Driver, verb: &str) -> (Answer, Vec<String>) {
        let document =
            "<X><HOST><ID>3</ID><NAME>node3</NAME><IM_MAD>kvm</IM_MAD></HOST><MONITOR_CONFIGURATION/></X>";
        let payload = format!("0 {}", pack(document.as_bytes()));
        let request =
            Request { verb: verb.into(), id: "3".into(), number: 3, payload, form: LineForm::Stamped };
        let prepared = driver.prepare(&request).expect("understood");
        assert_eq!(prepared.keys.subject, 3);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        let log: LogFn =
            Arc::new(move |_: Severity, line: &str| kept.lock().expect("free").push(line.to_owned()));
        let answer = driver.run(prepared.work, Context::alone(log)).await;
        let lines = lines.lock().expect("free").clone();
        (answer, lines)
    }

    #[tokio::test]
    async fn a_start_is_tried_again_and_its_reply_handed_on() {
        let runner = canned(&[(Ending::Exited(1), "", "libvirt is down"), (Ending::Exited(0), REPLY, "")]);
        let (answer, log) = ask(&driver(&runner, false), "START_MONITOR").await;
        assert_eq!(answer, Answer::Success(REPLY.trim().to_owned()));
        assert_eq!(log, ["libvirt is down (exit code 1); tried again"]);
        let jobs = runner.jobs.lock().expect("free");
        assert_eq!(jobs[0].1.program, Program::Script("im/run_monitord_client".into()));
        assert_eq!(jobs[0].1.args, ["kvm", "3", "node3"]);
        assert_eq!(jobs[0].0, Place::Host { name: HostName::new("node3").expect("a name"), agent: false });
    }

    #[tokio::test]
    async fn the_tries_end_and_the_reason_is_told_to_oned() {
        let down = (Ending::Exited(1), "", "libvirt is down");
        let runner = canned(&[down.clone(), down.clone(), down.clone(), down]);
        let (answer, log) = ask(&driver(&runner, false), "START_MONITOR").await;
        assert_eq!(answer, Answer::Failure("libvirt is down (exit code 1)".into()));
        assert_eq!(log.last().map(String::as_str), Some("\u{1}libvirt is down (exit code 1)"));
    }

    #[tokio::test]
    async fn an_incomplete_reply_is_a_failure() {
        let runner = canned(&[(Ending::Exited(0), "<MONITOR_MESSAGES><SYSTEM_HOST>", "")]);
        let (answer, _) = ask(&driver(&runner, false), "START_MONITOR").await;
        assert!(matches!(answer, Answer::Failure(reason) if reason.contains("no complete first reply")));
    }

    #[tokio::test]
    async fn all_tries_together_stay_below_the_daemons_patience() {
        struct Slow(Mutex<usize>);
        impl Runner for Slow {
            fn run<'a>(&'a self, _: &'a Place, job: Job, _: Watch) -> Boxed<'a, Outcome> {
                *self.0.lock().expect("free") += 1;
                let limit = job.limit.expect("a limit");
                Box::pin(async move {
                    sleep(limit).await;
                    let ending = Ending::TimedOut(limit);
                    Outcome { ending, stdout: Vec::new(), stderr: Vec::new(), dropped: 0, took: limit }
                })
            }
        }
        let tries = Tries {
            retries: 9,
            limit: Duration::from_millis(900),
            wait: Duration::from_millis(10),
            total: Duration::from_millis(2800),
        };
        let slow = Arc::new(Slow(Mutex::new(0)));
        let driver = Driver::new(slow.clone(), Era::new("kvm", std::iter::empty()), tries, false);
        let began = Instant::now();
        let (answer, _) = ask(&driver, "STOP_MONITOR").await;
        assert!(matches!(answer, Answer::Failure(_)));
        assert!(began.elapsed() <= Duration::from_millis(3800), "{:?}", began.elapsed());
        assert_eq!(*slow.0.lock().expect("free"), 4);
    }

    #[tokio::test]
    async fn local_scripts_get_base64_on_the_front_end() {
        let runner = canned(&[(Ending::Exited(0), REPLY, "")]);
        ask(&driver(&runner, true), "START_MONITOR").await;
        let jobs = runner.jobs.lock().expect("free");
        assert_eq!(jobs[0].0, Place::Local);
        assert!(jobs[0].1.stdin.starts_with(b"PE1PTklUT1Jf"));
    }
}
