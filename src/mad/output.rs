//! The only writer of stdout, and the lock under which it is decided whether a request is answered.
//!
//! Lines are whole, clean, and written with one call each by a thread of their own, so that a reader that does not
//! read keeps nothing else waiting. Replies are never dropped; LOG lines beyond a size are, and counted.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::actions::{Answer, LineForm, Severity};
use super::clean;
use super::form::{Form, ReplyTo};

/// Handle to the writer; clones share it.
#[derive(Clone)]
pub struct Output {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    form: Arc<dyn Form>,
    log_buffer: usize,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Entry>,
    /// LOG lines from before the first request. oned from 6.0 reads the answer to INIT in one piece and loses what
    /// directly follows it.
    held: Vec<(Severity, Option<i64>, String)>,
    opened: bool,
    log_bytes: usize,
    dropped: u64,
    writing: bool,
    broken: bool,
    /// Nothing more will come: the writer ends when all is written.
    closed: bool,
    form: LineForm,
    /// Requests that are not answered yet.
    tickets: HashMap<u64, Standing>,
}

struct Standing {
    to: ReplyTo,
    subject: i64,
    cancelled: bool,
    spared: bool,
}

struct Entry {
    line: Vec<u8>,
    /// `None` for a LOG line and the answer to INIT.
    reply: Option<Reply>,
    log: bool,
}

struct Reply {
    subject: i64,
    spared: bool,
}

impl Output {
    /// Starts the writer on `sink`; `lost` is called once when it can't be written to any more.
    pub fn start(
        form: Arc<dyn Form>,
        log_buffer: usize,
        sink: impl Write + Send + 'static,
        lost: impl FnOnce(String) + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), form, log_buffer });
        let writer = shared.clone();
        std::thread::Builder::new().name("mad-write".to_owned()).spawn(move || {
            if let Err(error) = writer.write_all(sink) {
                lost(error.to_string());
            }
        })?;
        Ok(Self { shared })
    }

    /// From the first request on LOG lines are written, in the form of its sender.
    pub fn open(&self, form: LineForm) {
        let mut state = self.shared.lock();
        if !state.opened {
            state.opened = true;
            state.form = form;
            for (severity, subject, text) in std::mem::take(&mut state.held) {
                state.log_bytes -= text.len();
                self.shared.push_log(&mut state, severity, subject, &text);
            }
            self.shared.changed.notify_all();
        }
    }

    /// Writes the answer to INIT.
    pub fn init(&self, fault: Option<&str>) {
        let line = clean::message(&super::form::init(fault));
        self.shared.lock().push(Entry { line, reply: None, log: false });
        self.shared.changed.notify_all();
    }

    /// Writes a LOG line.
    pub fn log(&self, severity: Severity, subject: Option<i64>, text: &str) {
        let mut state = self.shared.lock();
        self.shared.push_log(&mut state, severity, subject, text);
        self.shared.changed.notify_all();
    }

    /// Takes note of a request that is to be answered; one that is spared is no target of [`Output::cancel`].
    pub fn expect(&self, serial: u64, subject: i64, spared: bool, to: ReplyTo) {
        self.shared.lock().tickets.insert(serial, Standing { to, subject, cancelled: false, spared });
    }

    /// From now on the request is answered also when it is ended.
    pub fn spare(&self, serial: u64) {
        if let Some(standing) = self.shared.lock().tickets.get_mut(&serial) {
            standing.spared = true;
        }
    }

    /// Whether a request is neither answered nor cancelled.
    #[must_use]
    pub fn is_open(&self, serial: u64) -> bool {
        self.shared.lock().tickets.get(&serial).is_some_and(|standing| !standing.cancelled)
    }

    /// Writes the reply to a request, unless it was cancelled or has been answered. Gives whether it was written.
    pub fn reply(&self, serial: u64, answer: &Answer) -> bool {
        let mut state = self.shared.lock();
        let written = match state.tickets.remove(&serial) {
            Some(standing) if !standing.cancelled => {
                self.shared.push_reply(&mut state, &standing, answer);
                true
            }
            _ => false,
        };
        self.shared.changed.notify_all();
        written
    }

    /// Answers all that is still open.
    pub fn fail_open(&self, reason: impl Fn(&ReplyTo) -> String) {
        let mut state = self.shared.lock();
        let mut tickets: Vec<_> = std::mem::take(&mut state.tickets).into_iter().collect();
        tickets.sort_by_key(|(serial, _)| *serial);
        for (_, standing) in tickets.iter().filter(|(_, standing)| !standing.cancelled) {
            let answer = Answer::Failure(reason(&standing.to));
            self.shared.push_reply(&mut state, standing, &answer);
        }
        self.shared.changed.notify_all();
    }

    /// Cancels requests: none of `serials` is answered from now on, and replies for `subject` that still wait
    /// here are taken back (but those that are spared). Writes `text` to the log of the subject when that hit any.
    pub fn cancel(&self, subject: i64, serials: &[u64], text: &str) {
        let mut state = self.shared.lock();
        let before = state.lines.len();
        state.lines.retain(|entry| {
            !entry.reply.as_ref().is_some_and(|reply| reply.subject == subject && !reply.spared)
        });
        let mut hit = state.lines.len() < before;
        for serial in serials {
            match state.tickets.get_mut(serial) {
                Some(standing) if !standing.spared => {
                    standing.cancelled = true;
                    hit = true;
                }
                _ => {}
            }
        }
        if hit {
            self.shared.push_log(&mut state, Severity::Info, Some(subject), text);
        }
        self.shared.changed.notify_all();
    }

    /// Nothing more will come: the writer ends, and drops its sink, when all is written.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }

    /// Waits until all is written or can't be (true), or the deadline has passed.
    #[must_use]
    pub fn drain(&self, deadline: Instant) -> bool {
        let mut state = self.shared.lock();
        while !(state.broken || state.lines.is_empty() && !state.writing) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let wait = left.min(Duration::from_secs(3600));
            state = self.shared.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl State {
    fn push(&mut self, entry: Entry) {
        if self.broken {
            return;
        }
        if entry.log {
            self.log_bytes += entry.line.len();
        }
        self.lines.push_back(entry);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_reply(&self, state: &mut State, standing: &Standing, answer: &Answer) {
        let line = clean::message(&self.form.reply(&standing.to, answer));
        let reply = Reply { subject: standing.subject, spared: standing.spared };
        state.push(Entry { line, reply: Some(reply), log: false });
    }

    fn push_log(&self, state: &mut State, severity: Severity, subject: Option<i64>, text: &str) {
        if !state.opened && state.log_bytes + text.len() <= self.log_buffer {
            // How it is to be written is known only with the first request.
            state.log_bytes += text.len();
            state.held.push((severity, subject, text.to_owned()));
            return;
        }
        let Some(line) = self.form.log(state.form, severity, subject, text) else { return };
        let line = clean::message(&line);
        if !state.opened || state.log_bytes + line.len() > self.log_buffer {
            state.dropped += 1;
            return;
        }
        state.push(Entry { line, reply: None, log: true });
    }

    fn write_all(&self, mut sink: impl Write) -> std::io::Result<()> {
        let mut state = self.lock();
        loop {
            let Some(entry) = state.lines.pop_front() else {
                if state.closed {
                    return Ok(());
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.writing = true;
            drop(state);
            let result = sink.write_all(&entry.line).and_then(|()| sink.flush());
            state = self.lock();
            state.writing = false;
            if let Err(error) = result {
                state.broken = true;
                state.lines.clear();
                self.changed.notify_all();
                return Err(error);
            }
            self.written(&mut state, &entry);
            self.changed.notify_all();
        }
    }

    fn written(&self, state: &mut State, entry: &Entry) {
        if entry.log {
            state.log_bytes -= entry.line.len();
        }
        if state.dropped > 0 && state.log_bytes <= self.log_buffer / 2 {
            let count = std::mem::take(&mut state.dropped);
            let text = format!("{count} log lines were dropped because they were not read");
            self.push_log(state, Severity::Warning, None, &text);
        }
    }
}
