//! Carries a [`Storage`] to where it is to go: talks to a `kvmad-node receive`, over ssh on another host, else one of our
//! own. What that made is remembered, and taken away when the VM stays where it was.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::SeekFrom;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::job::bytes;
use super::receive::{Answer, GREETING, Made, PIECE, Request};
use super::storage::Storage;
use super::voice::Voice;
use crate::host::job::HostName;
use crate::host::process::{Process, Start};

/// Bytes of noise in front of the greeting (what a shell prints at login) that are skipped.
const NOISE: usize = 64 << 10;
/// For the connection.
const CONNECT: Duration = Duration::from_secs(30);
/// For one answer: a repair of a large image is the longest.
const ANSWER: Duration = Duration::from_secs(1900);

/// Where the other end is.
#[derive(Debug, Clone)]
pub enum Where {
    /// On this host.
    Here,
    /// On another, with this folder of remotes.
    Host(HostName, String),
}

/// What a copy needs besides.
pub struct Around<'a> {
    /// Cancelled when the driver wants an end.
    pub term: &'a CancellationToken,
    /// Where it is told.
    pub voice: &'a Voice,
    /// Between two lines that tell it.
    pub progress: Option<Duration>,
    /// For so long nothing may move.
    pub stall: Duration,
}

/// Does all that `storage` asks for; what was made. When it fails, nothing of it is left.
///
/// # Errors
/// What failed, for people.
pub async fn carry(storage: &Storage, at: &Where, around: &Around<'_>) -> Result<Vec<Made>, String> {
    let mut session = Session::open(at, around.stall).await?;
    let work = send_all(&mut session, storage, around);
    let result = tokio::select! {
        result = work => result,
        () = around.term.cancelled() => Err("the driver ended it while the storage was copied".to_owned()),
    };
    session.close().await;
    result
}

async fn send_all(
    session: &mut Session,
    storage: &Storage,
    around: &Around<'_>,
) -> Result<Vec<Made>, String> {
    let mut made = Vec::new();
    let missing = session.ask(&Request::Need { paths: storage.need.clone() }).await?.1;
    if !missing.is_empty() {
        return Err(format!("{} is not there on {}", missing.join(", "), session.name));
    }
    let home = Request::Home { path: storage.to.clone(), bytes: storage.bytes };
    made.extend(session.ask(&home).await?.0);
    let mut told = Told { at: Instant::now(), done: 0, all: storage.copied };
    for (request, data) in &storage.requests {
        if let (Request::File { size, .. }, Some(path)) = (request, data) {
            session.say(request).await?;
            session.data(path, *size, &mut told, around).await?;
            made.extend(session.hear().await?.0);
        } else {
            made.extend(session.ask(request).await?.0);
        }
    }
    session.ask(&Request::Done).await?;
    Ok(made)
}

/// Takes away what was made.
///
/// # Errors
/// What is left, and why.
pub async fn undo(made: Vec<Made>, at: &Where, limit: Duration) -> Result<(), String> {
    if made.is_empty() {
        return Ok(());
    }
    let work = async {
        let mut session = Session::open(at, limit).await?;
        let result = session.ask(&Request::Undo { made }).await.map(|_| ());
        session.close().await;
        result
    };
    timeout(limit, work).await.unwrap_or_else(|_| Err("the host did not answer".to_owned()))
}

struct Told {
    at: Instant,
    done: u64,
    all: u64,
}

impl Told {
    fn more(&mut self, count: usize, around: &Around<'_>) {
        self.done += count as u64;
        if around.progress.is_some_and(|every| self.at.elapsed() >= every) {
            self.at = Instant::now();
            around.voice.info(&format!(
                "{} of {} of files copied",
                bytes(self.done),
                bytes(self.all.max(self.done))
            ));
        }
    }
}

struct Session {
    name: String,
    process: Process,
    input: Option<pipe::Sender>,
    output: BufReader<pipe::Receiver>,
    errors: pipe::Receiver,
    stall: Duration,
}

impl Session {
    async fn open(at: &Where, stall: Duration) -> Result<Self, String> {
        let (start, name) = start(at)?;
        let (process, pipes) = Process::start(&start).await.map_err(|error| error.to_string())?;
        let output = BufReader::new(pipes.stdout);
        let mut session = Self { name, process, input: pipes.stdin, output, errors: pipes.stderr, stall };
        match timeout(CONNECT, session.greeted()).await {
            Ok(Ok(())) => Ok(session),
            Ok(Err(why)) => Err(format!(
                "{} can't take files: {why} (what that needs comes there with kvmad's remotes: kvmad sync)",
                session.name
            )),
            Err(_) => Err(format!("{} did not answer within {} s", session.name, CONNECT.as_secs())),
        }
    }

    async fn greeted(&mut self) -> Result<(), String> {
        let mut seen = 0;
        while seen < NOISE {
            let mut line = Vec::new();
            match self.output.read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => break,
                Ok(count) => seen += count,
            }
            if line.trim_ascii_end().ends_with(GREETING.as_bytes()) {
                return Ok(());
            }
        }
        Err(self.complaint().await)
    }

    /// What it says on stderr.
    async fn complaint(&mut self) -> String {
        let mut text = vec![0; 4096];
        let count = timeout(Duration::from_secs(2), self.errors.read(&mut text)).await;
        let count = count.ok().and_then(Result::ok).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..count]).trim().replace('\n', "; ");
        if text.is_empty() { "the connection ended".to_owned() } else { text }
    }

    async fn ask(&mut self, request: &Request) -> Result<(Vec<Made>, Vec<String>), String> {
        self.say(request).await?;
        self.hear().await
    }

    async fn say(&mut self, request: &Request) -> Result<(), String> {
        let mut line = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        line.push(b'\n');
        self.write(&line).await
    }

    async fn hear(&mut self) -> Result<(Vec<Made>, Vec<String>), String> {
        let mut line = String::new();
        let read = timeout(ANSWER, self.output.read_line(&mut line)).await;
        if !matches!(read, Ok(Ok(1..))) {
            let why = self.complaint().await;
            return Err(format!("{}: {why}", self.name));
        }
        match serde_json::from_str(&line) {
            Ok(Answer::Done { made, missing }) => Ok((made, missing)),
            Ok(Answer::Failed { why }) => Err(format!("{}: {why}", self.name)),
            Err(error) => Err(format!("{} gave no answer that can be read: {error}", self.name)),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(input) = &mut self.input else { return Err(format!("{} is gone", self.name)) };
        match timeout(self.stall, input.write_all(bytes)).await {
            Ok(Ok(())) => Ok(()),
            // It ended because something failed, and may have said what.
            Ok(Err(_)) => Err(self.hear().await.err().unwrap_or_else(|| format!("{} is gone", self.name))),
            Err(_) => Err(format!("{} took nothing for {} s", self.name, self.stall.as_secs())),
        }
    }

    /// The data of a file; holes and zeros are left out.
    async fn data(
        &mut self,
        path: &Path,
        size: u64,
        told: &mut Told,
        around: &Around<'_>,
    ) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(failed)?;
        let mut buffer = vec![0; PIECE];
        let mut at = 0;
        while at < size {
            at = next_data(&file, at);
            let most = usize::try_from(size.saturating_sub(at)).unwrap_or(PIECE).min(PIECE);
            let count = file.read_at(&mut buffer[..most], at).map_err(failed)?;
            if count == 0 {
                break;
            }
            if buffer[..count].iter().any(|byte| *byte != 0) {
                let mut head = at.to_be_bytes().to_vec();
                head.extend(u32::try_from(count).unwrap_or_default().to_be_bytes());
                self.write(&head).await?;
                self.write(&buffer[..count]).await?;
            }
            told.more(count, around);
            at += count as u64;
        }
        self.write(&[0; 12]).await
    }

    /// Ends it; what it does at the end is waited for a moment.
    async fn close(mut self) {
        self.input = None;
        let _ = timeout(Duration::from_secs(8), self.process.ended()).await;
    }
}

/// Where the next data begin; `at` itself where the file system can't tell.
fn next_data(file: &File, at: u64) -> u64 {
    rustix::fs::seek(file, SeekFrom::Data(at)).unwrap_or(at).max(at)
}

fn start(at: &Where) -> Result<(Start, String), String> {
    match at {
        Where::Here => {
            let own = std::env::current_exe().map_err(|error| format!("this program is nowhere: {error}"))?;
            Ok((Start::new(own).arg("receive"), "this host".to_owned()))
        }
        Where::Host(host, remote) => {
            // The words behind the host come before a shell there, whichever it is.
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            if !remote.starts_with('/') || !remote.chars().all(plain) {
                return Err(format!("{remote:?} can't be the folder of remotes on another host"));
            }
            let program = PathBuf::from(remote).join("kvmad/receive");
            let start = Start::new("ssh")
                .args([
                    "-T",
                    "-o",
                    "BatchMode=yes",
                    "-o",
                    "ConnectTimeout=15",
                    "-o",
                    "ServerAliveInterval=10",
                ])
                .args(["-o", "ServerAliveCountMax=3", "-o", "ForwardAgent=no", "--", host.as_str()])
                .arg(program);
            Ok((start, format!("host {host}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fixed_words_go_to_the_shell_of_another_host() {
        let at =
            |remote: &str| start(&Where::Host(HostName::new("node2").expect("a host"), remote.to_owned()));
        assert!(at("/var/tmp/one").is_ok());
        for bad in ["", "var", "/var/tmp/o ne", "/x;y", "/x$y", "/x'y"] {
            assert!(at(bad).is_err(), "{bad}");
        }
    }
}
