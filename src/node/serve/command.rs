//! One command: its streams under credit, its end.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::records::{COMMAND_VARIABLE, Records};
use crate::host::gate::Gate;
use crate::host::process::{End, Pipes, Process, Start, StartError};
use crate::host::supervise::{Cause, collect, supervise};
use crate::wire::{EndedBy, Exit, Frame, How, Open, Overrun, Refusal, Stream, WhyRefused, Window};

/// Bytes that are read from a pipe at once.
const PIECE: usize = 32 << 10;

/// The dispatcher's hold on a command.
pub(super) struct Handle {
    stdin: Option<UnboundedSender<Bytes>>,
    window: Arc<Mutex<Window>>,
    gates: Arc<Gates>,
    end: CancellationToken,
}

#[derive(Default)]
struct Gates {
    stdout: Gate,
    stderr: Gate,
}

impl Handle {
    /// Bytes for its stdin.
    pub(super) fn stdin(&self, bytes: Bytes) -> Result<(), Overrun> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner).take(bytes.len())?;
        if let Some(stdin) = &self.stdin {
            let _ = stdin.send(bytes);
        }
        Ok(())
    }

    pub(super) fn stdin_end(&mut self) {
        self.stdin = None;
    }

    pub(super) fn credit(&self, stream: Stream, count: u32) {
        match stream {
            Stream::Stdout => self.gates.stdout.grant(count),
            Stream::Stderr => self.gates.stderr.grant(count),
            Stream::Stdin => {}
        }
    }

    pub(super) fn end(&self) {
        self.end.cancel();
    }

    /// Ends it, and lets go what it still prints.
    pub(super) fn driver_is_gone(&self) {
        self.end.cancel();
        self.gates.stdout.open_wide();
        self.gates.stderr.open_wide();
    }
}

/// A command that is about to run.
pub(super) struct Command {
    id: u32,
    open: Open,
    out: UnboundedSender<Frame>,
    stdin: UnboundedReceiver<Bytes>,
    window: Arc<Mutex<Window>>,
    gates: Arc<Gates>,
    end: CancellationToken,
}

/// Makes the two ends of a command.
pub(super) fn new(id: u32, open: Open, out: UnboundedSender<Frame>) -> (Handle, Command) {
    let (sender, stdin) = unbounded_channel();
    let window = Arc::<Mutex<Window>>::default();
    let gates = Arc::<Gates>::default();
    let end = CancellationToken::new();
    let handle =
        Handle { stdin: Some(sender), window: window.clone(), gates: gates.clone(), end: end.clone() };
    (handle, Command { id, open, out, stdin, window, gates, end })
}

impl Command {
    /// Starts it, serves its streams, and tells its end as the last frame of its number.
    pub(super) async fn run(mut self, records: &Arc<Records>) {
        let name = records.name(self.id);
        let mut start = Start::new(&self.open.argv[0]).args(&self.open.argv[1..]);
        for (key, value) in &self.open.env {
            start = start.env(key, value);
        }
        if self.end.is_cancelled() {
            return self.tell(Frame::Exit(self.id, Exit { how: How::Signaled(15), by: EndedBy::Request }));
        }
        let (process, mut pipes) = match Process::start(&start.env(COMMAND_VARIABLE, &name)).await {
            Ok(started) => started,
            Err(error) => return self.tell(Frame::Refused(self.id, refusal(&error))),
        };
        let record = records.add(self.id, &process, &self.open);
        let cause = self.serve(&process, &mut pipes).await;
        tokio::select! {
            () = self.rest(&mut pipes) => {}
            // Ended while the driver takes nothing: what is left in the pipes is not waited for.
            () = self.end.cancelled(), if cause == Cause::Itself => {}
        }
        let how = match collect(process).await {
            End::Exited(status) => How::Exited(status),
            End::Signaled(signal) => How::Signaled(signal),
        };
        drop(record);
        let by = match cause {
            Cause::Itself => EndedBy::Itself,
            Cause::Limit => EndedBy::Limit,
            Cause::Cancel => EndedBy::Request,
        };
        self.tell(Frame::Exit(self.id, Exit { how, by }));
    }

    async fn serve(&mut self, process: &Process, pipes: &mut Pipes) -> Cause {
        let Self { id, open, out, stdin, window, gates, end } = self;
        let streams = async {
            tokio::join!(
                feed(*id, pipes.stdin.take(), stdin, window, out),
                pump(*id, Stream::Stdout, &mut pipes.stdout, &gates.stdout, out),
                pump(*id, Stream::Stderr, &mut pipes.stderr, &gates.stderr, out),
            );
            std::future::pending::<()>().await
        };
        tokio::select! {
            cause = supervise(process, open.limit, open.grace, end) => cause,
            () = streams => Cause::Itself,
        }
    }

    /// Sends what the program itself has left in its pipes, not what a child of it writes on.
    async fn rest(&self, pipes: &mut Pipes) {
        let left = |pipe: &pipe::Receiver| rustix::io::ioctl_fionread(pipe).unwrap_or(0);
        let (mut stdout, mut stderr) = (left(&pipes.stdout), left(&pipes.stderr));
        while stdout > 0 {
            let got = piece(self.id, Stream::Stdout, &mut pipes.stdout, &self.gates.stdout, &self.out).await;
            stdout = got.map_or(0, |count| stdout.saturating_sub(count as u64));
        }
        while stderr > 0 {
            let got = piece(self.id, Stream::Stderr, &mut pipes.stderr, &self.gates.stderr, &self.out).await;
            stderr = got.map_or(0, |count| stderr.saturating_sub(count as u64));
        }
    }

    fn tell(&self, frame: Frame) {
        let _ = self.out.send(frame);
    }
}

fn refusal(error: &StartError) -> Refusal {
    let missing = matches!(error, StartError::NotFound { .. } | StartError::NotExecutable { .. });
    let why = if missing { WhyRefused::Missing } else { WhyRefused::Other };
    Refusal { why, text: error.to_string() }
}

/// Writes what comes to its stdin. When the program does not want it, it is thrown away, and the driver gets
/// its credit all the same.
async fn feed(
    id: u32,
    mut pipe: Option<pipe::Sender>,
    stdin: &mut UnboundedReceiver<Bytes>,
    window: &Mutex<Window>,
    out: &UnboundedSender<Frame>,
) {
    while let Some(bytes) = stdin.recv().await {
        if let Some(open) = &mut pipe
            && open.write_all(&bytes).await.is_err()
        {
            pipe = None;
        }
        let grant = window.lock().unwrap_or_else(PoisonError::into_inner).consumed(bytes.len());
        if let Some(count) = grant {
            let _ = out.send(Frame::Credit(id, Stream::Stdin, count));
        }
    }
}

async fn pump(id: u32, stream: Stream, pipe: &mut pipe::Receiver, gate: &Gate, out: &UnboundedSender<Frame>) {
    while piece(id, stream, pipe, gate, out).await.is_some() {}
}

/// Reads once and sends it. Nothing is lost when it is dropped while it waits.
async fn piece(
    id: u32,
    stream: Stream,
    pipe: &mut pipe::Receiver,
    gate: &Gate,
    out: &UnboundedSender<Frame>,
) -> Option<usize> {
    let room = gate.room(PIECE).await;
    let mut buffer = vec![0; room];
    let count = pipe.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
    gate.take(count);
    buffer.truncate(count);
    let _ = out.send(Frame::Data(id, stream, buffer.into()));
    Some(count)
}
