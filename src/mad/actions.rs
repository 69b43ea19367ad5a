//! The contract between the protocol and a driver: what a request is, by what the queue orders it, what a
//! running one can do, and what it answers.

use std::future::Future;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

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
}

/// By what the queue orders a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys {
    /// What it acts on (VM id, host id): one action per subject at a time, always.
    pub subject: i64,
    /// The hosts it works on, the main one first. Without parallel mode one action per host.
    pub places: Vec<String>,
}

/// What a request may do to earlier ones of the same subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overtake {
    /// Waits for them. The same verb again joins the first: one run, one result line.
    #[default]
    Wait,
    /// Ends them like a cancel (at most 15 s), then runs; has two slots beyond the limit (CANCEL, CLEANUP).
    End,
    /// Runs beside them and is no target of a cancel (UPDATESG, UPDATENIC wait for the subject but are not cancelled).
    Spared,
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

/// What a running request has at hand.
#[derive(Clone)]
pub struct Context {
    /// Writes a LOG line for the request's subject. Never blocks; lines beyond the buffer are dropped and counted.
    pub log: Arc<dyn Fn(Severity, &str) + Send + Sync>,
    /// Cancelled when the request is ended by DRIVER_CANCEL, by an overtaking one, or by the driver's end. The
    /// run must then end its work on the host, roll back, and return; its answer is not written (but for the
    /// verbs that the protocol says are answered).
    pub cancel: CancellationToken,
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
