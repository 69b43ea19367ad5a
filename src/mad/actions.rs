//! The contract between the protocol and a driver: what a request is, by what the queue orders it, what a
//! running one can do, and what it answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

/// How a request line was written, which tells the kind of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineForm {
    /// `VERB ID PAYLOAD`: oned up to 5.12. A LOG line without a subject has the id `-`.
    #[default]
    Old,
    /// `VERB  ID PAYLOAD`, two blanks: oned from 6.0. A LOG line without a subject has the id `-1`.
    New,
    /// `VERB - ID TIME PAYLOAD`: onemonitord, from 5.12.
    Stamped,
}

/// One request line, taken apart but not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The verb, in upper case.
    pub verb: String,
    /// The id as it was written; echoed in the reply.
    pub id: String,
    /// The decimal prefix of the id, the key for cancel; -1 when there is none.
    pub number: i64,
    /// Everything behind the id, not decoded, without the newline. Words are separated by single blanks.
    pub payload: String,
    /// How the line was written.
    pub form: LineForm,
}

/// By what the queue orders a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys {
    /// What it acts on (VM id, host id): one action per subject at a time, always.
    pub subject: i64,
    /// The hosts it works on, the main one first. Without parallel mode one action per host.
    pub places: Vec<String>,
}

/// How a request stands to the other ones of the same subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overtake {
    /// Waits for earlier ones. When the newest one before it that is still unanswered has the same verb, it joins
    /// that one: one run, one result line.
    #[default]
    Wait,
    /// Waits for earlier ones and never joins: each is run and answered (EXEC, POLL).
    Each,
    /// Ends earlier ones like a cancel (at most 15 s), then runs; has two slots beyond the limit (CANCEL, CLEANUP).
    /// Joins one of the same verb.
    End,
    /// Waits for earlier ones, never joins, and is no target of a cancel or of [`Overtake::End`]
    /// (UPDATESG, UPDATENIC).
    Spared,
    /// Runs at once beside earlier ones, which may be the very thing it acts on. When it has ended, earlier ones
    /// of the verb named here that still run are ended, and queued ones are not begun; unlike after a cancel
    /// **they are answered** (BACKUPCANCEL and its BACKUP).
    Stop(&'static str),
}

/// A request that the driver understood.
#[derive(Debug)]
pub struct Prepared<W> {
    /// Its keys.
    pub keys: Keys,
    /// Its right over earlier ones.
    pub overtake: Overtake,
    /// Written in front of the info of every reply, failure included (`<sgid>` of UPDATESG).
    pub prefix: Option<String>,
    /// What the driver needs to run it.
    pub work: W,
}

/// What a request is answered with. `info` may hold anything: the writer makes one clean line of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// SUCCESS and its info; empty is written as `-`... only where the driver asks for it.
    Success(String),
    /// FAILURE and the reason, for people.
    Failure(String),
}

/// Severity of a LOG line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `D`
    Debug,
    /// `I`
    Info,
    /// `W`
    Warning,
    /// `E`
    Error,
}

/// Writes a LOG line.
pub type LogFn = Arc<dyn Fn(Severity, &str) + Send + Sync>;

/// What a running request has at hand.
#[derive(Clone)]
pub struct Context {
    /// Writes a LOG line for the request's subject. Never blocks; lines beyond the buffer are dropped and counted.
    pub log: LogFn,
    /// Cancelled when the request is ended by DRIVER_CANCEL, by an overtaking one, or by the driver's end. The
    /// run must then end its work on the host, roll back, and return; its answer is not written (but for the
    /// verbs that the protocol says are answered).
    pub cancel: CancellationToken,
    /// Its slot of the queue.
    pub slot: Slot,
}

impl Context {
    /// For running a request outside of a driver (tests, `kvmad run`): log lines go to `log`, nothing is queued.
    #[must_use]
    pub fn alone(log: LogFn) -> Self {
        Self { log, cancel: CancellationToken::new(), slot: Slot::none() }
    }
}

/// A future that a trait object can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What stands behind a [`Slot`]: the queue of the driver.
pub trait SlotKeeper: Send + Sync {
    /// See [`Slot::waiting`].
    fn waiting(&self, place: &str);
    /// See [`Slot::ready`].
    fn ready<'a>(&'a self, place: &'a str) -> Boxed<'a, ()>;
    /// See [`Slot::unreachable`].
    fn unreachable(&self, place: &str);
}

/// The slot that a running request holds. It is given back while the request only waits for a connection, so
/// that hosts that do not answer never keep the others waiting.
#[derive(Clone)]
pub struct Slot(Option<Arc<dyn SlotKeeper>>);

impl Slot {
    /// A slot of no queue: everything is granted at once.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// The slot that `keeper` grants.
    #[must_use]
    pub fn of(keeper: Arc<dyn SlotKeeper>) -> Self {
        Self(Some(keeper))
    }

    /// From now on the request waits for a connection to `place` and holds no slot.
    pub fn waiting(&self, place: &str) {
        if let Some(keeper) = &self.0 {
            keeper.waiting(place);
        }
    }

    /// `place` answers: waits until there is a slot again. Resolves at once when it was not given back, and when
    /// the request is cancelled.
    pub async fn ready(&self, place: &str) {
        if let Some(keeper) = &self.0 {
            keeper.ready(place).await;
        }
    }

    /// `place` could not be reached, or was lost: until it answers again only one request at a time tries it.
    pub fn unreachable(&self, place: &str) {
        if let Some(keeper) = &self.0 {
            keeper.unreachable(place);
        }
    }
}

/// A driver: what `oned`'s requests mean.
pub trait Actions: Send + Sync + 'static {
    /// What [`Actions::prepare`] hands to [`Actions::run`].
    type Work: Send + 'static;

    /// Understands a request. Runs on the reader's side for every request, so it must be quick and do no I/O
    /// beyond reading the payload.
    ///
    /// # Errors
    /// The reason why it can't be served; it becomes the FAILURE reply as it is (prefix included).
    fn prepare(&self, request: &Request) -> Result<Prepared<Self::Work>, String>;

    /// Does it. May panic: the request is then answered FAILURE and the driver goes on.
    fn run(&self, work: Self::Work, context: Context) -> impl Future<Output = Answer> + Send;
}
