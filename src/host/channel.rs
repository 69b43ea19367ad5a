//! A channel to a place: three pipes and an end, whatever carries them.

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};

use super::job::Boxed;
use super::process::{End, Pipes, Process};

/// Bytes to the other end.
pub type Writing = Box<dyn AsyncWrite + Send + Unpin>;
/// Bytes from the other end.
pub type Reading = Box<dyn AsyncRead + Send + Unpin>;

/// A command that runs at the other end with these pipes. Dropping it closes them; what runs there has to see
/// the end of its stdin and go.
pub struct Channel {
    /// Its stdin.
    pub stdin: Writing,
    /// Its stdout.
    pub stdout: Reading,
    /// Its stderr.
    pub stderr: Reading,
    /// Resolves when the command has ended or the channel was lost, with what is known of it.
    pub end: Boxed<'static, ChannelEnd>,
}

/// How a channel ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelEnd {
    /// The command ended with this status.
    Status(i32),
    /// It was lost, or the command was killed: why, as far as it is known.
    Lost(String),
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel")
    }
}

/// The channel to a program that was started here. Dropping it kills the program's group.
#[must_use]
pub fn of_process(process: Process, pipes: Pipes) -> Channel {
    let stdin: Writing = match pipes.stdin {
        Some(stdin) => Box::new(stdin),
        None => Box::new(tokio::io::sink()),
    };
    let end = async move {
        let ended = match process.ended().await {
            Ok(_) => process.reap().await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(End::Exited(status)) => ChannelEnd::Status(status),
            Ok(End::Signaled(signal)) => ChannelEnd::Lost(format!(
                "the process that holds the connection was killed by signal {signal}"
            )),
            Err(error) => ChannelEnd::Lost(error.to_string()),
        }
    };
    Channel { stdin, stdout: Box::new(pipes.stdout), stderr: Box::new(pipes.stderr), end: Box::pin(end) }
}
