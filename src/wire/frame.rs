//! Frames: a length, a kind, the number of the command, a body.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::parts::{Parts, put_count, put_text};

/// Longest frame, its length not counted. Arguments and environment of one command must fit: the kernel allows
/// 128 KiB an argument and about 2 MiB in all.
pub const LONGEST_FRAME: usize = 4 << 20;

/// A stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// From the driver.
    Stdin,
    /// From the helper.
    Stdout,
    /// From the helper.
    Stderr,
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Program and arguments; at least the program.
    pub argv: Vec<String>,
    /// Added to the environment of the helper.
    pub env: Vec<(String, String)>,
    /// After this time the helper ends it. In whole milliseconds; `None`: no limit.
    pub limit: Option<Duration>,
    /// From TERM to KILL. In whole milliseconds.
    pub grace: Duration,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

/// Who ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// Itself.
    Itself,
    /// The helper, because its limit passed.
    Limit,
    /// The helper, because it was asked to.
    Request,
}

/// The end of a command; nothing follows for its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// How.
    pub how: How,
    /// By whom.
    pub by: EndedBy,
}

/// Why a command was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyRefused {
    /// There is no such program, or it may not be executed: pushing the remotes may help.
    Missing,
    /// The system has no room, or the number was used before.
    Other,
}

/// A command was not started; nothing follows for its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub why: WhyRefused,
    /// For people.
    pub text: String,
}

/// A command of a helper that is gone, which still runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Number of its process and of its group.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// How long ago it was started, in whole seconds.
    pub age: u64,
}

/// One message, in either direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Driver: start a command under this number.
    Open(u32, Open),
    /// Driver: bytes for its stdin. Helper: bytes of its stdout or stderr.
    Data(u32, Stream, Bytes),
    /// Driver: its stdin ends here.
    StdinEnd(u32),
    /// The receiver of a stream lets its sender send this many bytes more.
    Credit(u32, Stream, u32),
    /// Driver: end it (TERM, its grace, KILL). An [`Frame::Exit`] follows.
    End(u32),
    /// Helper: it ended.
    Exit(u32, Exit),
    /// Helper: it was not started.
    Refused(u32, Refusal),
    /// Either: are you there? Answered with the same number.
    Ping(u64),
    /// Either: yes.
    Pong(u64),
    /// Driver: what still runs that was started by a helper that is gone?
    AskOrphans,
    /// Helper: this, and it is being ended.
    Orphans(Vec<Orphan>),
}

/// Bytes that are no frame. The connection can't be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame of {0} bytes: at most 4 MiB are allowed
    #[error("a frame of {0} bytes: at most 4 MiB are allowed")]
    TooLong(usize),
    /// A frame of an unknown kind {0}
    #[error("a frame of an unknown kind {0}")]
    Kind(u8),
    /// A frame ends too early
    #[error("a frame ends too early")]
    Short,
    /// A frame has bytes behind its end
    #[error("a frame has bytes behind its end")]
    Long,
    /// A word in a frame is not UTF-8
    #[error("a word in a frame is not UTF-8")]
    NotText,
    /// A field of a frame has a value without meaning
    #[error("a field of a frame has a value without meaning")]
    Value,
}

/// What decoding has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// More bytes are needed.
    Incomplete,
    /// One frame, taken off the buffer.
    Complete(Frame),
}

const NO_LIMIT: u64 = u64::MAX;

impl Frame {
    /// Takes one frame off the front of `buffer`.
    ///
    /// # Errors
    /// [`FrameError`] when the bytes are none.
    pub fn decode(buffer: &mut BytesMut) -> Result<Decoded, FrameError> {
        let Some(head) = buffer.first_chunk::<4>() else { return Ok(Decoded::Incomplete) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > LONGEST_FRAME {
            return Err(FrameError::TooLong(length));
        }
        if buffer.len() < 4 + length {
            return Ok(Decoded::Incomplete);
        }
        let mut frame = buffer.split_to(4 + length).freeze();
        Self::body(Parts(frame.split_off(4))).map(Decoded::Complete)
    }

    fn body(mut parts: Parts) -> Result<Self, FrameError> {
        let kind = parts.u8()?;
        let frame = match kind {
            1 => Self::Open(parts.u32()?, Open::take(&mut parts)?),
            2..=4 => {
                let stream = Stream::from_number(kind - 2)?;
                return Ok(Self::Data(parts.u32()?, stream, parts.0));
            }
            5 => Self::StdinEnd(parts.u32()?),
            6 => Self::Credit(parts.u32()?, Stream::from_number(parts.u8()?)?, parts.u32()?),
            7 => Self::End(parts.u32()?),
            8 => Self::Exit(parts.u32()?, Exit::take(&mut parts)?),
            9 => Self::Refused(parts.u32()?, Refusal::take(&mut parts)?),
            10 => Self::Ping(parts.u64()?),
            11 => Self::Pong(parts.u64()?),
            12 => Self::AskOrphans,
            13 => Self::Orphans(
                (0..parts.count()?).map(|_| Orphan::take(&mut parts)).collect::<Result<_, _>>()?,
            ),
            other => return Err(FrameError::Kind(other)),
        };
        parts.end()?;
        Ok(frame)
    }

    /// Appends the frame to `into`.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] when it is longer than the other side takes; nothing is appended then.
    pub fn encode(&self, into: &mut BytesMut) -> Result<(), FrameError> {
        let begin = into.len();
        into.put_u32(0);
        self.put(into);
        let length = into.len() - begin - 4;
        if length > LONGEST_FRAME {
            into.truncate(begin);
            return Err(FrameError::TooLong(length));
        }
        into[begin..begin + 4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        Ok(())
    }

    fn put(&self, into: &mut BytesMut) {
        match self {
            Self::Open(id, open) => {
                put_head(into, 1, *id);
                open.put(into);
            }
            Self::Data(id, stream, bytes) => {
                put_head(into, 2 + stream.number(), *id);
                into.put_slice(bytes);
            }
            Self::StdinEnd(id) => put_head(into, 5, *id),
            Self::Credit(id, stream, count) => {
                put_head(into, 6, *id);
                into.put_u8(stream.number());
                into.put_u32(*count);
            }
            Self::End(id) => put_head(into, 7, *id),
            Self::Exit(id, exit) => {
                put_head(into, 8, *id);
                exit.put(into);
            }
            Self::Refused(id, refusal) => {
                put_head(into, 9, *id);
                into.put_u8(u8::from(refusal.why == WhyRefused::Other));
                put_text(into, &refusal.text);
            }
            Self::Ping(number) => put_number(into, 10, *number),
            Self::Pong(number) => put_number(into, 11, *number),
            Self::AskOrphans => into.put_u8(12),
            Self::Orphans(orphans) => {
                into.put_u8(13);
                put_count(into, orphans.len());
                orphans.iter().for_each(|orphan| orphan.put(into));
            }
        }
    }
}

fn put_head(into: &mut BytesMut, kind: u8, id: u32) {
    into.put_u8(kind);
    into.put_u32(id);
}

fn put_number(into: &mut BytesMut, kind: u8, number: u64) {
    into.put_u8(kind);
    into.put_u64(number);
}

impl Stream {
    fn number(self) -> u8 {
        match self {
            Self::Stdin => 0,
            Self::Stdout => 1,
            Self::Stderr => 2,
        }
    }

    fn from_number(number: u8) -> Result<Self, FrameError> {
        [Self::Stdin, Self::Stdout, Self::Stderr].get(usize::from(number)).copied().ok_or(FrameError::Value)
    }
}

impl Open {
    fn take(parts: &mut Parts) -> Result<Self, FrameError> {
        let argv: Vec<String> = (0..parts.count()?).map(|_| parts.text()).collect::<Result<_, _>>()?;
        let env =
            (0..parts.count()?).map(|_| Ok((parts.text()?, parts.text()?))).collect::<Result<_, _>>()?;
        let limit = parts.u64()?;
        let limit = (limit != NO_LIMIT).then(|| Duration::from_millis(limit));
        let grace = Duration::from_millis(parts.u64()?);
        if argv.is_empty() { Err(FrameError::Value) } else { Ok(Self { argv, env, limit, grace }) }
    }

    fn put(&self, into: &mut BytesMut) {
        put_count(into, self.argv.len());
        self.argv.iter().for_each(|word| put_text(into, word));
        put_count(into, self.env.len());
        for (key, value) in &self.env {
            put_text(into, key);
            put_text(into, value);
        }
        into.put_u64(self.limit.map_or(NO_LIMIT, millis));
        into.put_u64(millis(self.grace));
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NO_LIMIT - 1).min(NO_LIMIT - 1)
}

impl Exit {
    fn take(parts: &mut Parts) -> Result<Self, FrameError> {
        let (how, by, value) = (parts.u8()?, parts.u8()?, parts.i32()?);
        let how = match how {
            0 => How::Exited(value),
            1 => How::Signaled(value),
            _ => return Err(FrameError::Value),
        };
        let by = [EndedBy::Itself, EndedBy::Limit, EndedBy::Request].get(usize::from(by)).copied();
        Ok(Self { how, by: by.ok_or(FrameError::Value)? })
    }

    fn put(&self, into: &mut BytesMut) {
        let (how, value) = match self.how {
            How::Exited(status) => (0, status),
            How::Signaled(signal) => (1, signal),
        };
        into.put_u8(how);
        into.put_u8(match self.by {
            EndedBy::Itself => 0,
            EndedBy::Limit => 1,
            EndedBy::Request => 2,
        });
        into.put_i32(value);
    }
}

impl Refusal {
    fn take(parts: &mut Parts) -> Result<Self, FrameError> {
        let why = match parts.u8()? {
            0 => WhyRefused::Missing,
            1 => WhyRefused::Other,
            _ => return Err(FrameError::Value),
        };
        Ok(Self { why, text: parts.text()? })
    }
}

impl Orphan {
    fn take(parts: &mut Parts) -> Result<Self, FrameError> {
        Ok(Self { pid: parts.u32()?, program: parts.text()?, age: parts.u64()? })
    }

    fn put(&self, into: &mut BytesMut) {
        into.put_u32(self.pid);
        put_text(into, &self.program);
        into.put_u64(self.age);
    }
}

#[cfg(test)]
mod tests;
