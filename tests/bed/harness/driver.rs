//! A driver, started in the way oned starts it, and the core's side of the conversation.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::conversation::{Conversation, Line};
use super::front_end::FrontEnd;
use super::{bed, processes, wait_for};

/// Which core speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// 3.8 to 5.12: one blank between verb and id.
    Old,
    /// 6.0 and later: an empty status word, so two blanks.
    New,
}

/// A running driver.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    stdin: Option<ChildStdin>,
    /// What it wrote.
    pub conversation: Conversation,
    /// Which core we are for it.
    pub form: Form,
    sent: Vec<(Instant, String)>,
    pid: u32,
}

impl Driver {
    /// Starts `lib/mads/NAME` of `front` as oneadmin on the front-end, with all of `arguments` as one word.
    pub fn start(front: &FrontEnd, name: &str, arguments: &str) -> Self {
        Self::start_with(front, name, arguments, &[])
    }

    /// The same with more environment (`NAME=value`).
    pub fn start_with(front: &FrontEnd, name: &str, arguments: &str, environment: &[String]) -> Self {
        let program: PathBuf = front.folder().join("lib/mads").join(name);
        let mut command = bed::as_oneadmin(bed::FRONT_END);
        command.arg("env").args(["--chdir=/", "-i"]).args(front.environment()).args(environment);
        command.arg(bed::programs().join("as-oned")).arg(&program).arg(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let stdout = child.stdout.take().expect("it is piped");
        let stdin = child.stdin.take();
        let outer = child.id();
        // `on` waits for one child, which becomes the driver
        let pid = wait_for(Duration::from_secs(10), || {
            let pid = processes::children(outer).first().copied()?;
            let arguments = processes::arguments(pid);
            arguments
                .iter()
                .any(|word| word.ends_with(name))
                .then_some(pid)
                .filter(|_| !arguments[0].contains("setpriv"))
        })
        .unwrap_or_else(|| panic!("{} was not started", program.display()));
        let conversation = Conversation::of(stdout);
        Self { child, stdin, conversation, form: Form::New, sent: Vec::new(), pid }
    }

    /// The same, and through its INIT: it must be the first line, right, and within oned's 10 s.
    pub fn ready(front: &FrontEnd, arguments: &str) -> Self {
        let mut driver = Self::start(front, "one_vmm_exec", arguments);
        driver.init();
        driver
    }

    /// Sends INIT and takes the reply as oned 6.0 and later do: at most 31 bytes, first of all.
    pub fn init(&mut self) {
        self.line("INIT");
        let first = self.conversation.wait(Duration::from_secs(10), |lines| lines.first().cloned());
        let first = first.unwrap_or_else(|| panic!("no reply to INIT within 10 s"));
        assert_eq!(first.raw, "INIT SUCCESS - -");
    }

    /// Number of the driver's process, as the machine sees it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What was sent, with its time.
    pub fn sent(&self) -> &[(Instant, String)] {
        &self.sent
    }

    /// Writes bytes; an error when the driver does not take them.
    pub fn raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes)
    }

    /// Writes one line.
    pub fn line(&mut self, text: &str) {
        self.sent.push((Instant::now(), text.to_owned()));
        self.raw(format!("{text}\n").as_bytes())
            .unwrap_or_else(|e| panic!("the driver does not take {text:.40}: {e}"));
    }

    /// Sends a request.
    pub fn send(&mut self, verb: &str, id: u32, payload: &str) {
        let blanks = match self.form {
            Form::Old => " ",
            Form::New => "  ",
        };
        self.line(&format!("{verb}{blanks}{id} {payload}"));
    }

    /// Sends DRIVER_CANCEL.
    pub fn cancel(&mut self, id: u32) {
        match self.form {
            Form::Old => self.line(&format!("DRIVER_CANCEL {id}")),
            Form::New => self.line(&format!("DRIVER_CANCEL  {id} ")),
        }
    }

    /// Sends a request and waits for its reply.
    pub fn ask(&mut self, verb: &str, id: u32, payload: &str, limit: Duration) -> Line {
        let before = self.conversation.replies(verb, id);
        self.send(verb, id, payload);
        self.conversation.reply(verb, id, before, limit)
    }

    /// Closes its stdin, as a core that goes away does.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        processes::signal(self.pid, "KILL");
    }

    /// How it ended, if it does within `limit`.
    pub fn exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_for(limit, || self.child.try_wait().expect("it is our child"))
    }

    /// FINALIZE, and the end within `limit`; panics when it does not end.
    pub fn finalize(&mut self, limit: Duration) -> ExitStatus {
        self.line("FINALIZE");
        self.close_stdin();
        self.exit(limit).unwrap_or_else(|| panic!("the driver does not end within {limit:?} of FINALIZE"))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stdin = None;
        if self.exit(Duration::from_secs(3)).is_none() {
            self.kill();
            self.exit(Duration::from_secs(3));
        }
    }
}
