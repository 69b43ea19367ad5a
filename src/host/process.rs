//! The one place that starts programs.
//!
//! Every program gets its own process group, pipes (or nothing) for stdin, stdout and stderr, no other file
//! descriptor of ours (all are close-on-exec, see [`settle`]), an empty signal mask and the default SIGPIPE.
//!
//! The end of a program is seen before it is reaped: as long as its number is taken by it, its group can be
//! signalled without the danger of hitting a stranger that got the same number.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

/// What to start: a program, its arguments, what is added to the environment.
#[derive(Debug, Clone)]
pub struct Start {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    dir: Option<PathBuf>,
    stdin: bool,
    group: bool,
}

impl Start {
    /// `program` is an absolute path or a name that is looked up in PATH.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            dir: None,
            stdin: true,
            group: true,
        }
    }

    /// Adds an argument; it is handed over exactly as it is.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of its environment; the rest is ours.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), Some(value.into())));
        self
    }

    /// Takes a variable out of its environment.
    #[must_use]
    pub fn env_remove(mut self, key: impl Into<OsString>) -> Self {
        self.env.push((key.into(), None));
        self
    }

    /// Sets its working directory.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Gives it /dev/null as stdin instead of a pipe.
    #[must_use]
    pub fn no_stdin(mut self) -> Self {
        self.stdin = false;
        self
    }

    /// Leaves it in our process group: for a program that makes a session of its own (`setsid` fails in the
    /// leader of a group). To be [detached](Process::detach); signals to its group do not reach it before that.
    #[must_use]
    pub fn makes_own_session(mut self) -> Self {
        self.group = false;
        self
    }

    /// Replaces this process by the program: same number, same stdin, stdout, stderr. Returns only on failure.
    #[must_use]
    pub fn exec(&self) -> StartError {
        StartError::new(self, self.plain().exec())
    }

    #[allow(clippy::disallowed_methods)] // This is the place.
    fn plain(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.args);
        for (key, value) in &self.env {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }

    /// With pipes of our own making: those of the standard libraries cost a dozen calls of the kernel more.
    fn command(&self) -> io::Result<(std::process::Command, Pipes)> {
        let mut command = self.plain();
        if self.group {
            command.process_group(0);
        }
        let mut to = None;
        if self.stdin {
            let (theirs, ours) = io::pipe()?;
            command.stdin(theirs);
            to = Some(pipe::Sender::from_owned_fd_unchecked(unblocked(ours)?)?);
        } else {
            command.stdin(Stdio::null());
        }
        let from = || -> io::Result<_> {
            let (ours, theirs) = io::pipe()?;
            Ok((pipe::Receiver::from_owned_fd_unchecked(unblocked(ours)?)?, theirs))
        };
        let (stdout, theirs) = from()?;
        command.stdout(theirs);
        let (stderr, theirs) = from()?;
        command.stderr(theirs);
        Ok((command, Pipes { stdin: to, stdout, stderr }))
    }

    /// The same through /bin/sh: a script without `#!` is run by the shell, as `execvp` does it.
    fn through_shell(&self) -> Self {
        let mut other = self.clone();
        other.args.insert(0, std::mem::replace(&mut other.program, "/bin/sh".into()));
        other
    }
}

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// {program}: there is no such program
    #[error("{program}: there is no such program")]
    NotFound {
        /// As it was asked for.
        program: String,
    },
    /// {program} can't be executed: {source}
    #[error("{program} can't be executed: {source}")]
    NotExecutable {
        /// As it was asked for.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// {program} could not be started: {source}
    #[error("{program} could not be started: {source}")]
    System {
        /// As it was asked for.
        program: String,
        /// What the system says (no memory, too many processes or files).
        source: io::Error,
    },
}

impl StartError {
    pub(crate) fn new(start: &Start, source: io::Error) -> Self {
        let program = start.program.to_string_lossy().into_owned();
        match source.kind() {
            io::ErrorKind::NotFound if program.contains('/') && Path::new(&start.program).is_file() => {
                let source = io::Error::other("the interpreter that its first line names is not there");
                Self::System { program, source }
            }
            io::ErrorKind::NotFound if start.dir.as_deref().is_none_or(Path::is_dir) => {
                Self::NotFound { program }
            }
            io::ErrorKind::PermissionDenied => Self::NotExecutable { program, source },
            _ if source.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
                Self::NotExecutable { program, source }
            }
            _ => Self::System { program, source },
        }
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this status, 0 to 255.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Signaled(signal),
            (None, None) => Self::Exited(255),
        }
    }
}

/// A program that runs. Dropped before it was reaped, its whole group is killed.
#[derive(Debug)]
pub struct Process {
    /// None when it was reaped.
    child: Option<std::process::Child>,
    group: Pid,
    /// Its pidfd, no pipe, but watched like one: readable at its end. None where the kernel (before 5.3) has no such thing.
    end: Option<pipe::Receiver>,
    /// Whether its group is ours to end: not when it was reaped or detached.
    ours: bool,
}

/// Our ends of a program's pipes.
#[derive(Debug)]
pub struct Pipes {
    /// Writes to its stdin; `None` with [`Start::no_stdin`]. Dropping it closes the pipe.
    pub stdin: Option<pipe::Sender>,
    /// Reads its stdout.
    pub stdout: pipe::Receiver,
    /// Reads its stderr.
    pub stderr: pipe::Receiver,
}

impl Process {
    /// Starts a program. Must be called inside a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// [`StartError`] says which program and why.
    pub async fn start(start: &Start) -> Result<(Self, Pipes), StartError> {
        let failed = |error| StartError::new(start, error);
        let started = match spawn(start).await {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
                spawn(&start.through_shell()).await
            }
            other => other,
        };
        let (child, pipes) = started.map_err(failed)?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| failed(io::Error::other("it has no process number")))?;
        let end = pidfd_open(group, PidfdFlags::empty()).ok();
        let end = end.and_then(|fd| pipe::Receiver::from_owned_fd_unchecked(fd).ok());
        Ok((Self { child: Some(child), group, end, ours: true }, pipes))
    }

    /// Its process number, which is also that of its group.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Returns when it has ended, and how. It stays unreaped, so its number stays its own.
    ///
    /// # Errors
    /// When the system can't tell; the program must then be taken as lost.
    pub async fn ended(&self) -> io::Result<End> {
        has_ended(self.group, self.end.as_ref()).await
    }

    /// Sends `signal` to every process of its group. No error when none is left.
    pub fn signal_group(&self, signal: Signal) {
        if self.ours {
            // The only failures are "none is left" and "not ours" (a setuid child); neither can be helped.
            let _ = rustix::process::kill_process_group(self.group, signal);
        }
    }

    /// Whether a process of its group lives, zombies not counted.
    #[must_use]
    pub fn group_lives(&self) -> bool {
        !group_members(self.id()).is_empty()
    }

    /// Lets it live on when this value is dropped; it is reaped whenever it ends.
    pub fn detach(mut self) {
        self.ours = false;
    }

    /// Takes its exit status. Call it after [`Process::ended`]; else it waits.
    ///
    /// # Errors
    /// When the system can't tell.
    pub async fn reap(mut self) -> io::Result<End> {
        self.ended().await?;
        let Some(mut child) = self.child.take() else { return Err(io::Error::other("it was reaped before")) };
        self.ours = false;
        // it has ended, so this does not wait
        child.wait().map(End::from)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal_group(Signal::KILL);
        let Some(mut child) = self.child.take() else { return };
        // Without a runtime this program is about to end, and somebody else reaps.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (group, end) = (self.group, self.end.take());
        runtime.spawn(async move {
            if has_ended(group, end.as_ref()).await.is_ok() {
                // Nobody wants to know how it ended.
                let _ = child.wait();
            }
        });
    }
}

async fn has_ended(process: Pid, pidfd: Option<&pipe::Receiver>) -> io::Result<End> {
    let how = || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::Pid(process), options)?;
        io::Result::Ok(status.map(|status| {
            let exited = || End::Exited(status.exit_status().unwrap_or(255));
            status.terminating_signal().map_or_else(exited, End::Signaled)
        }))
    };
    if let Some(pidfd) = pidfd {
        pidfd.readable().await?;
        if let Some(end) = how()? {
            return Ok(end);
        }
    }
    let mut children = signal(SignalKind::child())?;
    loop {
        if let Some(end) = how()? {
            return Ok(end);
        }
        children.recv().await;
    }
}

fn unblocked(fd: impl Into<OwnedFd>) -> io::Result<OwnedFd> {
    let fd = fd.into();
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

/// Forks and executes. A program file that somebody has just written and not yet closed is waited for a moment.
async fn spawn(start: &Start) -> io::Result<(std::process::Child, Pipes)> {
    let (mut command, pipes) = start.command()?;
    for wait in [5, 20, 80, 320] {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            other => return Ok((other?, pipes)),
        }
    }
    Ok((command.spawn()?, pipes))
}

/// The live processes of a group, zombies not counted. Looks through /proc.
#[must_use]
pub fn group_members(group: i32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| lives_in_group(*pid, group)).collect()
}

/// Reads `/proc/PID/stat`: number, name in parentheses (may hold anything), state, parent, group.
fn lives_in_group(pid: u32, group: i32) -> bool {
    let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { return false };
    let Some(end) = memchr::memrchr(b')', &stat) else { return false };
    let rest = String::from_utf8_lossy(&stat[end + 1..]);
    let mut words = rest.split_ascii_whitespace();
    let state = words.next();
    let own = words.nth(1).and_then(|word| word.parse::<i32>().ok());
    own == Some(group) && !matches!(state, Some("Z" | "X"))
}

/// Makes a program of ours a good parent: empties the signal mask (`oned` blocks every signal before it starts
/// its drivers), closes the descriptors above 2 that leaked into us, raises the soft limit of open files to the
/// hard one. The first thing in `main`, before any thread or file.
pub fn settle() {
    // Neither can fail in a way that would keep a driver from working.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    for fd in leaked() {
        let _ = nix::unistd::close(fd);
    }
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}

fn leaked() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // The descriptor of this very listing is among them; it is closed before the caller comes to it.
    numbers.filter(|fd| *fd > 2).collect()
}

#[cfg(test)]
mod tests;
