//! The driver's end of a helper channel: many commands at once over one pair of pipes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::collect::Collector;
use super::gate::Gate;
use super::job::Watch;
use super::stdin::Stdin;
use crate::wire::{
    Decoded, Exit, Frame, Hello, HelloScan, Open, Orphan, PROTOCOL, Refusal, Scanned, Stream, WhyRefused,
    Window,
};

/// Times and sizes of a helper channel.
#[derive(Debug, Clone)]
pub struct HelperLimits {
    /// From the start to the first line.
    pub hello_wait: Duration,
    /// Bytes of other output that are skipped before it.
    pub hello_noise: usize,
    /// How often the helper is asked whether it is there.
    pub ping: Duration,
    /// Without a sign of life for this long it is lost.
    pub dead: Duration,
}

/// Why no helper speaks at the other end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoHelper {
    /// No first line came in time
    #[error("the helper said nothing for {0:?}")]
    Silent(Duration),
    /// The channel ended, or something else was said: {0}
    #[error("no helper answers there{}", said(.0))]
    Absent(String),
    /// Its protocol is another one
    #[error("the helper {version} speaks protocol {protocol}, not {}", PROTOCOL)]
    Other {
        /// Its program's version.
        version: String,
        /// Its protocol.
        protocol: u32,
    },
}

fn said(noise: &str) -> String {
    if noise.is_empty() { String::new() } else { format!(": {noise}") }
}

/// How a command on the channel ended.
#[derive(Debug)]
pub enum Ended {
    /// It ran, and ended so.
    Exit(Exit),
    /// It was not started.
    Refused(Refusal),
    /// The channel was lost while it ran.
    Lost,
}

enum Event {
    Data(Stream, Bytes),
    Exit(Exit),
    Refused(Refusal),
}

struct Slot {
    events: UnboundedSender<Event>,
    stdin: Arc<Gate>,
}

#[derive(Default)]
struct Table {
    slots: HashMap<u32, Slot>,
    last: u32,
    orphans: Option<Vec<Orphan>>,
    heard: Option<Instant>,
    lost: Option<String>,
    silent: bool,
}

type Shared = Arc<Mutex<Table>>;

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A live helper channel. When the last owner drops it the channel is closed, and the helper ends what runs.
pub struct Helper {
    /// What the helper said of itself.
    pub hello: Hello,
    out: UnboundedSender<Frame>,
    table: Shared,
    gone: CancellationToken,
    _end: DropGuard,
}

impl Helper {
    /// Waits for the first line on `input` and takes the channel over.
    ///
    /// # Errors
    /// [`NoHelper`]: the other way of running commands is to be used.
    pub async fn start<R, W>(mut input: R, output: W, limits: &HelperLimits) -> Result<Self, NoHelper>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let hello = timeout(limits.hello_wait, read_hello(&mut input, limits.hello_noise)).await;
        let (hello, rest) = hello.map_err(|_| NoHelper::Silent(limits.hello_wait))??;
        if hello.protocol != PROTOCOL {
            return Err(NoHelper::Other { version: hello.version, protocol: hello.protocol });
        }
        let (out, frames) = unbounded_channel();
        let table = Shared::default();
        lock(&table).heard = Some(Instant::now());
        let gone = CancellationToken::new();
        let reading = read_frames(input, rest, table.clone(), out.clone());
        let pinging = ping(table.clone(), out.clone(), limits.ping, limits.dead);
        let (ended, shared) = (gone.clone(), table.clone());
        let answers_within = limits.ping * 2;
        tokio::spawn(async move {
            let reason = tokio::select! {
                reason = reading => reason,
                reason = write_frames(output, frames) => reason,
                reason = pinging => reason,
                () = ended.cancelled() => "the channel was closed".to_owned(),
            };
            let mut table = lock(&shared);
            table.lost = Some(reason);
            // ssh may have seen it first.
            table.silent |= table.heard.is_some_and(|heard| heard.elapsed() > answers_within);
            table.slots.clear();
            ended.cancel();
        });
        let _end = gone.clone().drop_guard();
        Ok(Self { hello, out, table, gone, _end })
    }

    /// Whether the channel is gone: new commands need another one.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.gone.is_cancelled()
    }

    /// Resolves when the channel is gone.
    pub async fn lost(&self) {
        self.gone.cancelled().await;
    }

    /// Whether the channel is gone because the other end gave no sign of life.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        lock(&self.table).silent
    }

    /// Why the channel is gone.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        lock(&self.table).lost.clone()
    }

    /// Closes the channel also for other owners; the helper ends what runs.
    pub fn close(&self) {
        self.gone.cancel();
    }

    /// Number of commands that run.
    #[must_use]
    pub fn running(&self) -> usize {
        lock(&self.table).slots.len()
    }

    /// Asks what still runs there that was started over a channel whose helper is gone.
    pub async fn orphans(&self, wait: Duration) -> Vec<Orphan> {
        if self.out.send(Frame::AskOrphans).is_err() {
            return Vec::new();
        }
        let answer = async {
            loop {
                if let Some(orphans) = lock(&self.table).orphans.take() {
                    return orphans;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(wait, answer).await.unwrap_or_default()
    }

    /// Numbers must come to the helper in their order, so they are taken and sent under one lock.
    fn open(&self, open: Open, slot: Slot) -> Option<u32> {
        let mut table = lock(&self.table);
        if table.lost.is_some() {
            return None;
        }
        table.last += 1;
        let id = table.last;
        table.slots.insert(id, slot);
        self.out.send(Frame::Open(id, open)).ok()?;
        Some(id)
    }

    /// Runs a command to its end. Cancelling the watch makes the helper end it; dropping this future too.
    pub async fn run(&self, open: Open, stdin: Stdin, output: &mut Collector, watch: &Watch) -> Ended {
        if let Err(error) = Frame::Open(0, open.clone()).encode(&mut BytesMut::new()) {
            let text = format!("its arguments and environment are too long: {error}");
            return Ended::Refused(Refusal { why: WhyRefused::Other, text });
        }
        let (events, mut incoming) = unbounded_channel();
        let gate = Arc::new(Gate::default());
        let Some(id) = self.open(open, Slot { events, stdin: gate.clone() }) else { return Ended::Lost };
        let _leave = Leave { helper: self, id };
        let feeding = feed(&self.out, id, &gate, stdin);
        let taking = take(&self.out, id, &mut incoming, output, watch);
        let asking = async {
            watch.cancel.cancelled().await;
            let _ = self.out.send(Frame::End(id));
            std::future::pending::<()>().await
        };
        tokio::select! {
            ended = taking => ended,
            () = feeding => Ended::Lost,
            () = asking => Ended::Lost,
        }
    }
}

/// Takes a command off the table; one that has not ended is ended.
struct Leave<'a> {
    helper: &'a Helper,
    id: u32,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if lock(&self.helper.table).slots.remove(&self.id).is_some() {
            let _ = self.helper.out.send(Frame::End(self.id));
        }
    }
}

async fn feed(out: &UnboundedSender<Frame>, id: u32, gate: &Gate, mut stdin: Stdin) {
    while stdin.left() > 0 {
        let count = gate.room(stdin.left().min(64 << 10)).await;
        let piece = match stdin.take(count) {
            Ok(piece) => piece,
            Err(error) => {
                tracing::error!(%error, "stdin of a command can't be read: it is ended");
                let _ = out.send(Frame::End(id));
                return std::future::pending().await;
            }
        };
        gate.take(count);
        let _ = out.send(Frame::Data(id, Stream::Stdin, piece));
    }
    let _ = out.send(Frame::StdinEnd(id));
    std::future::pending().await
}

async fn take(
    out: &UnboundedSender<Frame>,
    id: u32,
    events: &mut UnboundedReceiver<Event>,
    output: &mut Collector,
    watch: &Watch,
) -> Ended {
    let mut windows = (Window::default(), Window::default());
    let on_stderr = &*watch.on_stderr;
    let ended = loop {
        let (stream, bytes) = match events.recv().await {
            Some(Event::Data(stream, bytes)) => (stream, bytes),
            Some(Event::Exit(exit)) => break Ended::Exit(exit),
            Some(Event::Refused(refusal)) => break Ended::Refused(refusal),
            None => break Ended::Lost,
        };
        let window = match stream {
            Stream::Stdout => {
                output.stdout(&bytes);
                &mut windows.0
            }
            _ => {
                output.stderr(&bytes, on_stderr);
                &mut windows.1
            }
        };
        let Ok(()) = window.take(bytes.len()) else { break Ended::Lost };
        if let Some(count) = window.consumed(bytes.len()) {
            let _ = out.send(Frame::Credit(id, stream, count));
        }
    };
    output.finish(on_stderr);
    ended
}

async fn read_hello<R: AsyncRead + Unpin>(input: &mut R, noise: usize) -> Result<(Hello, Vec<u8>), NoHelper> {
    let mut scan = HelloScan::new(noise);
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = input.read(&mut buffer).await {
        match scan.push(&buffer[..count]) {
            Scanned::Incomplete => {}
            Scanned::Complete(hello, rest) => return Ok((hello, rest)),
            Scanned::NoHelper => break,
        }
    }
    Err(NoHelper::Absent(scan.noise()))
}

/// Room for one read: small frames come many at a time.
const READ: usize = 16 << 10;

async fn read_frames<R: AsyncRead + Unpin>(
    mut input: R,
    rest: Vec<u8>,
    table: Shared,
    out: UnboundedSender<Frame>,
) -> String {
    let mut buffer = BytesMut::from(&rest[..]);
    loop {
        loop {
            match Frame::decode(&mut buffer) {
                Ok(Decoded::Complete(frame)) => dispatch(frame, &table, &out),
                Ok(Decoded::Incomplete) => break,
                Err(error) => return format!("the helper does not keep to the protocol: {error}"),
            }
        }
        buffer.reserve(READ);
        match input.read_buf(&mut buffer).await {
            Ok(1..) => lock(&table).heard = Some(Instant::now()),
            Ok(0) => return "the helper has ended".to_owned(),
            Err(error) => return format!("the channel broke: {error}"),
        }
    }
}

fn dispatch(frame: Frame, table: &Mutex<Table>, out: &UnboundedSender<Frame>) {
    let mut table = lock(table);
    // Frames of a number that is not there belong to a command that nobody waits for any more.
    match frame {
        Frame::Data(id, stream, bytes) => {
            if let Some(slot) = table.slots.get(&id) {
                let _ = slot.events.send(Event::Data(stream, bytes));
            } else {
                // Thrown away; the command must not be stuck on it.
                let _ = out.send(Frame::Credit(id, stream, u32::try_from(bytes.len()).unwrap_or(u32::MAX)));
            }
        }
        Frame::Credit(id, _, count) => {
            if let Some(slot) = table.slots.get(&id) {
                slot.stdin.grant(count);
            }
        }
        Frame::Exit(id, exit) => {
            if let Some(slot) = table.slots.remove(&id) {
                let _ = slot.events.send(Event::Exit(exit));
            }
        }
        Frame::Refused(id, refusal) => {
            if let Some(slot) = table.slots.remove(&id) {
                let _ = slot.events.send(Event::Refused(refusal));
            }
        }
        Frame::Ping(number) => {
            let _ = out.send(Frame::Pong(number));
        }
        Frame::Orphans(orphans) => table.orphans = Some(orphans),
        Frame::Pong(_) | Frame::Open(..) | Frame::StdinEnd(_) | Frame::End(_) | Frame::AskOrphans => {}
    }
}

async fn write_frames<W: AsyncWrite + Unpin>(mut output: W, mut frames: UnboundedReceiver<Frame>) -> String {
    let mut buffer = BytesMut::new();
    while let Some(frame) = frames.recv().await {
        let mut next = Some(frame);
        while let Some(frame) = next {
            if let Err(error) = frame.encode(&mut buffer) {
                return format!("a command can't be sent: {error}");
            }
            next = if buffer.len() < 256 << 10 { frames.try_recv().ok() } else { None };
        }
        if let Err(error) = output.write_all_buf(&mut buffer).await {
            return format!("the channel broke: {error}");
        }
    }
    "the channel was closed".to_owned()
}

/// Asks for a sign of life, and ends exactly when there was none for `dead`.
async fn ping(table: Shared, out: UnboundedSender<Frame>, every: Duration, dead: Duration) -> String {
    let mut number = 0;
    let mut asked = Instant::now();
    loop {
        let dead_at = lock(&table).heard.unwrap_or(asked) + dead;
        let ask_at = asked + every;
        sleep_until(dead_at.min(ask_at)).await;
        let now = Instant::now();
        if lock(&table).heard.is_none_or(|heard| now >= heard + dead) {
            break;
        }
        if now >= ask_at {
            let _ = out.send(Frame::Ping(number));
            number = number.wrapping_add(1);
            asked = now;
        }
    }
    lock(&table).silent = true;
    format!("no sign of life for {} s", dead.as_secs())
}
