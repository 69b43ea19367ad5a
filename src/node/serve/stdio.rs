//! Our stdin and stdout as streams that need no thread: they are pipes under sshd and under the driver.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

pub(super) type Input = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Output = Box<dyn AsyncWrite + Send + Unpin>;

pub(super) fn input() -> io::Result<Input> {
    let fd = std::io::stdin().as_fd().try_clone_to_owned()?;
    Ok(match kind(&fd)? {
        FileType::Fifo => Box::new(pipe::Receiver::from_owned_fd(fd)?),
        FileType::Socket => Box::new(socket(fd)?),
        _ => Box::new(tokio::io::stdin()),
    })
}

pub(super) fn output() -> io::Result<Output> {
    let fd = std::io::stdout().as_fd().try_clone_to_owned()?;
    Ok(match kind(&fd)? {
        FileType::Fifo => Box::new(pipe::Sender::from_owned_fd(fd)?),
        FileType::Socket => Box::new(socket(fd)?),
        _ => Box::new(tokio::io::stdout()),
    })
}

fn kind(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
