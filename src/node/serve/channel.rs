//! The channel to the driver: frames in, to the commands; frames out, from the commands.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::command::{self, Handle};
use super::orphans::Orphans;
use super::records::Records;
use super::stdio::{Input, Output};
use crate::wire::{Decoded, Frame, Hello, Refusal, Stream, WhyRefused};

/// How often the driver is asked whether it is there, and when it is taken as gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) ping: Duration,
    pub(super) dead: Duration,
}

/// Room for one read: small frames come many at a time.
const READ: usize = 16 << 10;

/// Serves until the driver goes away or `stop` is cancelled, and then until nothing of it runs.
pub(super) async fn serve(
    input: Input,
    output: Output,
    hello: &Hello,
    records: Arc<Records>,
    times: Times,
    stop: CancellationToken,
) {
    let (out, frames) = unbounded_channel();
    let writing = tokio::spawn(write(output, hello.to_string(), frames, stop.clone()));
    let orphans = Orphans::end_all(records.clone());
    let mut dispatcher =
        Dispatcher { out, records, orphans, commands: HashMap::new(), tasks: JoinSet::new(), last: 0 };
    dispatcher.read(input, times, &stop).await;
    // Nobody listens any more: what the commands still print is thrown away, so that none is stuck on it.
    writing.abort();
    for handle in dispatcher.commands.values() {
        handle.driver_is_gone();
    }
    while dispatcher.tasks.join_next().await.is_some() {}
}

struct Dispatcher {
    out: UnboundedSender<Frame>,
    records: Arc<Records>,
    orphans: Orphans,
    commands: HashMap<u32, Handle>,
    tasks: JoinSet<u32>,
    last: u32,
}

/// The driver does not keep to the protocol.
struct Broken;

impl Dispatcher {
    async fn read(&mut self, mut input: Input, times: Times, stop: &CancellationToken) {
        let mut buffer = BytesMut::new();
        let mut heard = Instant::now();
        let mut ask = heard + times.ping;
        loop {
            buffer.reserve(READ);
            tokio::select! {
                got = input.read_buf(&mut buffer) => {
                    if !matches!(got, Ok(1..)) || self.take_all(&mut buffer).is_err() {
                        return;
                    }
                    heard = Instant::now();
                }
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(id) = ended {
                        self.commands.remove(&id);
                    }
                }
                () = sleep_until(ask.min(heard + times.dead)) => {
                    if heard.elapsed() >= times.dead {
                        return;
                    }
                    let _ = self.out.send(Frame::Ping(0));
                    ask = Instant::now() + times.ping;
                }
                () = stop.cancelled() => return,
            }
        }
    }

    fn take_all(&mut self, buffer: &mut BytesMut) -> Result<(), Broken> {
        loop {
            match Frame::decode(buffer) {
                Ok(Decoded::Complete(frame)) => self.take(frame)?,
                Ok(Decoded::Incomplete) => return Ok(()),
                Err(_) => return Err(Broken),
            }
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), Broken> {
        match frame {
            Frame::Open(id, open) => self.open(id, open),
            // Frames for a number that is not there crossed the end of that command.
            Frame::Data(id, Stream::Stdin, bytes) => {
                if let Some(handle) = self.commands.get(&id) {
                    handle.stdin(bytes).map_err(|_| Broken)?;
                }
            }
            Frame::StdinEnd(id) => {
                if let Some(handle) = self.commands.get_mut(&id) {
                    handle.stdin_end();
                }
            }
            Frame::Credit(id, stream, count) => {
                if let Some(handle) = self.commands.get(&id) {
                    handle.credit(stream, count);
                }
            }
            Frame::End(id) => {
                if let Some(handle) = self.commands.get(&id) {
                    handle.end();
                }
            }
            Frame::Ping(number) => self.send(Frame::Pong(number)),
            Frame::AskOrphans => self.send(Frame::Orphans(self.orphans.found())),
            Frame::Pong(_) => {}
            Frame::Data(..) | Frame::Exit(..) | Frame::Refused(..) | Frame::Orphans(_) => return Err(Broken),
        }
        Ok(())
    }

    fn open(&mut self, id: u32, open: crate::wire::Open) {
        if id <= self.last {
            let refusal = Refusal { why: WhyRefused::Other, text: format!("number {id} was used before") };
            return self.send(Frame::Refused(id, refusal));
        }
        self.last = id;
        let (handle, command) = command::new(id, open, self.out.clone());
        self.commands.insert(id, handle);
        let (records, gone) = (self.records.clone(), self.orphans.gone());
        self.tasks.spawn(async move {
            // Two commands must not meet on one VM: what a killed helper left ends first.
            gone.cancelled().await;
            command.run(&records).await;
            id
        });
    }

    fn send(&self, frame: Frame) {
        let _ = self.out.send(frame);
    }
}

/// Writes the first line, then frames; when that fails, the driver is gone.
async fn write(
    mut output: Output,
    hello: String,
    mut frames: UnboundedReceiver<Frame>,
    stop: CancellationToken,
) {
    let mut buffer = BytesMut::from(hello.as_bytes());
    loop {
        if output.write_all_buf(&mut buffer).await.is_err() || output.flush().await.is_err() {
            return stop.cancel();
        }
        let mut next = frames.recv().await;
        if next.is_none() {
            return;
        }
        while let Some(frame) = next {
            // The only frames that may be too long are lists of orphans; the driver can do without.
            let _ = frame.encode(&mut buffer);
            next = if buffer.len() < 256 << 10 { frames.try_recv().ok() } else { None };
        }
    }
}
