//! What a driver wrote: lines taken apart as oned does it, with the time of each.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// One line from the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// When its newline came.
    pub at: Instant,
    /// All of it, without the newline.
    pub raw: String,
    /// First word: a verb, INIT or LOG.
    pub kind: String,
    /// Second word: SUCCESS, FAILURE, or a severity letter.
    pub status: String,
    /// Third word.
    pub id: String,
    /// The rest.
    pub info: String,
}

impl Line {
    /// Takes a line apart: `TYPE STATUS ID INFO`, one blank between the fields.
    pub fn parse(raw: &str, at: Instant) -> Self {
        let mut fields = raw.splitn(4, ' ').map(str::to_owned);
        let mut field = || fields.next().unwrap_or_default();
        Self { at, raw: raw.to_owned(), kind: field(), status: field(), id: field(), info: field() }
    }

    /// Whether oned would take it for a success.
    pub fn succeeded(&self) -> bool {
        self.status == "SUCCESS"
    }

    fn answers(&self, verb: &str, id: u32) -> bool {
        self.kind == verb && self.id == id.to_string()
    }
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<Line>,
    ended: bool,
    partial: Option<String>,
}

/// All that a driver wrote so far; filled by a thread of its own.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Conversation {
    /// Reads lines from `stdout` until its end.
    pub fn of(stdout: impl Read + Send + 'static) -> Self {
        let conversation = Self::default();
        let filled = conversation.clone();
        std::thread::spawn(move || filled.fill(BufReader::new(stdout)));
        conversation
    }

    fn fill(&self, mut stdout: impl BufRead) {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = stdout.read_until(b'\n', &mut bytes).unwrap_or(0);
            let mut state = self.lock();
            if read == 0 {
                state.ended = true;
            } else {
                let text = String::from_utf8_lossy(&bytes);
                match text.strip_suffix('\n') {
                    Some(line) => state.lines.push(Line::parse(line, Instant::now())),
                    None => state.partial = Some(text.into_owned()),
                }
            }
            self.state.1.notify_all();
            if state.ended {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().expect("no thread panics with it")
    }

    /// Waits until `found` gives something from the lines; `None` when `limit` has passed or the driver is silent for good.
    pub fn wait<T>(&self, limit: Duration, mut found: impl FnMut(&[Line]) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(value) = found(&state.lines) {
                return Some(value);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || state.ended {
                return None;
            }
            state = self.state.1.wait_timeout(state, left).expect("no thread panics with it").0;
        }
    }

    /// The `n`th (from 0) result line of this verb and id; panics with the whole conversation when it does not come.
    pub fn reply(&self, verb: &str, id: u32, n: usize, limit: Duration) -> Line {
        self.wait(limit, |lines| lines.iter().filter(|line| line.answers(verb, id)).nth(n).cloned())
            .unwrap_or_else(|| {
                panic!("no {verb} reply for {id} within {limit:?}; the driver wrote:\n{}", self.text())
            })
    }

    /// How many result lines of this verb and id there are so far.
    pub fn replies(&self, verb: &str, id: u32) -> usize {
        self.lock().lines.iter().filter(|line| line.answers(verb, id)).count()
    }

    /// Waits for a LOG line of this id that contains `text`.
    pub fn log(&self, id: u32, text: &str, limit: Duration) -> Line {
        let id = id.to_string();
        let wanted = |line: &&Line| line.kind == "LOG" && line.id == id && line.info.contains(text);
        self.wait(limit, |lines| lines.iter().find(wanted).cloned()).unwrap_or_else(|| {
            panic!("no LOG line of {id} with {text:?}; the driver wrote:\n{}", self.text())
        })
    }

    /// Every line so far.
    pub fn lines(&self) -> Vec<Line> {
        self.lock().lines.clone()
    }

    /// Forgets the lines so far and gives them: for long runs.
    pub fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.lock().lines)
    }

    /// Whether the driver's stdout has ended, after at most `limit`.
    pub fn ended(&self, limit: Duration) -> bool {
        super::wait_for(limit, || self.lock().ended.then_some(())).is_some()
    }

    /// What stood behind the last newline when stdout ended.
    pub fn partial(&self) -> Option<String> {
        self.lock().partial.clone()
    }

    /// Every line so far, for a message.
    pub fn text(&self) -> String {
        self.lock().lines.iter().map(|line| format!("  {}\n", line.raw)).collect()
    }
}
