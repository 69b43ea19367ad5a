//! One command over a channel of its own, for hosts without a helper.
//!
//! The channel runs `bash -s`. It reads a fixed script, then everything else as data: nothing of a command is
//! ever shell text. A nonce that is made for each command marks where its output begins and ends, so neither a
//! message of the day nor the output itself can be taken for a status. A status of 129 to 192 is taken as death
//! by signal: bash does not tell the two apart.

mod markers;

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use rand::RngExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, interval, sleep_until};

use super::channel::{Channel, ChannelEnd};
use super::collect::Collector;
use super::job::Watch;
use super::stdin::Stdin;
use crate::wire::{EndedBy, Exit, How, Open, Refusal, WhyRefused};
use markers::Marked;

/// The words of the command that a channel for [`run`] is opened with.
pub const COMMAND: &str = "bash --norc --noprofile -s";

const BOOTSTRAP: &str = include_str!("bootstrap.sh");

/// How a command ended.
#[derive(Debug)]
pub enum Ended {
    /// It ran, and ended so.
    Exit(Exit),
    /// It was not started.
    Refused(Refusal),
    /// The channel was lost: why.
    Lost(String),
}

/// After its limit and its grace, a command gets this long until its host is taken as lost.
const SLACK: Duration = Duration::from_secs(10);

/// Times of a channel.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// How long its shell may take to come up.
    pub begin: Duration,
    /// How often the other end gets a sign of life.
    pub ping: Duration,
    /// Without one for this long the other end ends the command. In whole seconds, rounded up.
    pub dead: Duration,
}

/// Runs one command over `channel`.
pub async fn run(
    channel: Channel,
    open: &Open,
    mut stdin: Stdin,
    output: &mut Collector,
    watch: &Watch,
    times: Times,
) -> Ended {
    let nonce = format!("@kvmad:{:032x}", rand::rng().random::<u128>());
    let Channel { stdin: mut to, stdout, stderr, end } = channel;
    let mut streams = Streams { stdout, stderr, out: Marked::new(&nonce), err: Marked::new(&nonce) };
    let head = header(&nonce, open, times.dead, stdin.left());
    let started = Instant::now();
    // Counts from when the shell is up. The one over there is for when we are gone.
    let mut limit_at = None;
    let (mut by, mut give_up) = (EndedBy::Itself, None::<Instant>);
    let mut sending = Some(Box::pin(async move {
        let _ = to.write_all(&head).await;
        while stdin.left() > 0 {
            // What can't be read, or is not taken, ends the life line: the other end ends the command.
            let piece = stdin.take(64 << 10).ok()?;
            to.write_all(&piece).await.ok()?;
        }
        let _ = to.flush().await;
        Some(to)
    }));
    let mut line = None;
    let mut beats = interval(times.ping.max(Duration::from_millis(100)));
    let mut buffers = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let lost = loop {
        if let Some(ended) = streams.ended(by, &open.argv[0]) {
            output.finish(&*watch.on_stderr);
            return ended;
        }
        if limit_at.is_none() && streams.err.began() {
            limit_at = open.limit.map(|limit| Instant::now() + limit);
        }
        tokio::select! {
            to = async { sending.as_mut().expect("guarded").await }, if sending.is_some() => {
                sending = None;
                line = to;
            }
            count = streams.read(&mut buffers, output, watch) => if !count {
                break match end.await {
                    ChannelEnd::Status(status) => streams.strange(status),
                    ChannelEnd::Lost(reason) => reason,
                };
            },
            () = at(limit_at), if by == EndedBy::Itself => by = EndedBy::Limit,
            () = watch.cancel.cancelled(), if by == EndedBy::Itself => by = EndedBy::Request,
            () = sleep_until(started + times.begin), if !streams.err.began() => {
                break streams.silent(times.begin);
            }
            _ = beats.tick(), if line.is_some() => beat(&mut line).await,
            () = at(give_up) => break "its end was not told in time".to_owned(),
        }
        if by != EndedBy::Itself && give_up.is_none() {
            // The life line ends: also one whose data was not taken yet.
            (sending, line) = (None, None);
            give_up = Some(Instant::now() + open.grace + SLACK);
        }
    };
    drop(line);
    output.finish(&*watch.on_stderr);
    Ended::Lost(lost)
}

/// A sign of life. It can't be stuck: the other end reads it.
async fn beat(line: &mut Option<super::channel::Writing>) {
    if let Some(to) = line {
        let _ = to.write_all(b".").await;
        let _ = to.flush().await;
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

struct Streams {
    stdout: super::channel::Reading,
    stderr: super::channel::Reading,
    out: Marked,
    err: Marked,
}

impl Streams {
    /// Reads from whichever has something; false when both have ended.
    async fn read(
        &mut self,
        buffers: &mut (Vec<u8>, Vec<u8>),
        output: &mut Collector,
        watch: &Watch,
    ) -> bool {
        tokio::select! {
            count = self.stdout.read(&mut buffers.0) => {
                let count = count.unwrap_or(0);
                self.out.push(&buffers.0[..count], |bytes| output.stdout(bytes));
                count > 0 || self.drain_err(buffers, output, watch).await
            }
            count = self.stderr.read(&mut buffers.1) => {
                let count = count.unwrap_or(0);
                self.err.push(&buffers.1[..count], |bytes| output.stderr(bytes, &*watch.on_stderr));
                count > 0 || self.drain_out(buffers, output).await
            }
        }
    }

    async fn drain_err(
        &mut self,
        buffers: &mut (Vec<u8>, Vec<u8>),
        output: &mut Collector,
        watch: &Watch,
    ) -> bool {
        let count = self.stderr.read(&mut buffers.1).await.unwrap_or(0);
        self.err.push(&buffers.1[..count], |bytes| output.stderr(bytes, &*watch.on_stderr));
        count > 0
    }

    async fn drain_out(&mut self, buffers: &mut (Vec<u8>, Vec<u8>), output: &mut Collector) -> bool {
        let count = self.stdout.read(&mut buffers.0).await.unwrap_or(0);
        self.out.push(&buffers.0[..count], |bytes| output.stdout(bytes));
        count > 0
    }

    /// The end, once both markers are there.
    fn ended(&self, by: EndedBy, program: &str) -> Option<Ended> {
        let (_, word) = (self.out.end()?, self.err.end()?);
        if by != EndedBy::Itself && !word.starts_with("exit ") {
            // It was ended before it was started.
            return Some(Ended::Exit(Exit { how: How::Signaled(15), by }));
        }
        let (kind, rest) = word.split_once(' ').unwrap_or((&word, ""));
        Some(match (kind, rest.parse()) {
            ("exit", Ok(status @ 129..=192)) => Ended::Exit(Exit { how: How::Signaled(status - 128), by }),
            ("exit", Ok(status)) => Ended::Exit(Exit { how: How::Exited(status), by }),
            ("missing", _) => {
                let text = format!("{program}: there is no such program, or it may not be executed");
                Ended::Refused(Refusal { why: WhyRefused::Missing, text })
            }
            _ => Ended::Refused(Refusal { why: WhyRefused::Other, text: rest.to_owned() }),
        })
    }

    fn strange(&self, status: i32) -> String {
        let said = self.said();
        match status {
            127 => format!("bash could not be started there{said}"),
            _ => format!("its shell ended with status {status} before the command did{said}"),
        }
    }

    fn silent(&self, wait: Duration) -> String {
        format!("its shell did not come up within {} s{}", wait.as_secs(), self.said())
    }

    fn said(&self) -> String {
        let noise = self.err.noise();
        if noise.is_empty() { String::new() } else { format!(" ({noise})") }
    }
}

/// The script and the data behind it, stdin excepted.
fn header(nonce: &str, open: &Open, dead: Duration, stdin: usize) -> Bytes {
    let mut bytes = BytesMut::from(BOOTSTRAP);
    let mut word = |text: &str| {
        bytes.put_slice(text.as_bytes());
        bytes.put_u8(0);
    };
    word(nonce);
    word(&open.argv.len().to_string());
    open.argv.iter().for_each(|arg| word(arg));
    word(&open.env.len().to_string());
    open.env.iter().for_each(|(key, value)| word(&format!("{key}={value}")));
    // A little later than ours, in whole seconds.
    word(&open.limit.map_or("none".to_owned(), |limit| (limit.as_secs() + 3).to_string()));
    word(&open.grace.as_millis().div_ceil(100).to_string());
    word(&dead.as_millis().div_ceil(1000).max(1).to_string());
    word(&stdin.to_string());
    bytes.freeze()
}

/// Whether `open` can go over this way: no NUL anywhere, names of variables that a shell takes.
///
/// # Errors
/// Says what can't be sent.
pub fn check(open: &Open) -> Result<(), String> {
    let good = |key: &str| {
        let mut chars = key.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if open.argv.iter().any(|arg| arg.contains('\0')) {
        return Err("an argument holds a NUL byte".to_owned());
    }
    match open.env.iter().find(|(key, value)| !good(key) || value.contains('\0')) {
        Some((key, _)) => Err(format!("the variable {key:?} can't be set")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
