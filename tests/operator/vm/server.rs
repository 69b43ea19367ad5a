//! A local https server: one file, with ranges and an ETag, which counts what it sends and can cut a transfer.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{bed, processes, wait_for};

/// What one request got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The path that was asked for.
    pub path: String,
    /// First byte that was asked for.
    pub from: u64,
    /// Bytes of the file that were sent.
    pub sent: u64,
}

#[derive(Debug, Default)]
struct State {
    served: Vec<Served>,
    /// Sizes after which the next transfers are cut.
    cuts: Vec<u64>,
    /// Whether the next transfer that is cut stands still instead.
    hangs: bool,
}

/// Serves every path with the same file.
#[derive(Debug)]
pub struct Server {
    state: Arc<Mutex<State>>,
    socat: Child,
    folder: PathBuf,
    port: u16,
}

/// Where a server listens.
pub struct Place<'a> {
    /// Starts a command there.
    pub enter: &'a dyn Fn() -> Command,
    /// Its address.
    pub address: &'a str,
    /// Its name in the certificate, as OpenSSL writes it (`DNS:NAME`).
    pub name: &'a str,
    /// A folder for its files.
    pub folder: PathBuf,
}

const ADDRESS: &str = "10.77.0.1";

impl Server {
    /// Serves `file` on `port` of the bed's front-end, with a certificate of its own.
    pub fn start(file: &Path, port: u16) -> Self {
        let place = Place {
            enter: &|| bed::on(bed::FRONT_END),
            address: ADDRESS,
            name: &format!("IP:{ADDRESS}"),
            folder: bed::folder().join(format!("https-{}-{port}", std::process::id())),
        };
        Self::at(file, port, place)
    }

    /// The same anywhere.
    pub fn at(file: &Path, port: u16, place: Place<'_>) -> Self {
        let Place { enter, address, name, folder } = place;
        fs::create_dir_all(&folder).expect("a folder");
        certificate(&folder, name);
        let state: Arc<Mutex<State>> = Arc::default();
        let socket = folder.join("http");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (shared, path) = (state.clone(), file.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, path) = (shared.clone(), path.clone());
                std::thread::spawn(move || serve(&stream, &path, &shared));
            }
        });
        let mut command = enter();
        command.arg("socat").arg(format!(
            "OPENSSL-LISTEN:{port},bind={address},fork,reuseaddr,verify=0,cert={0}/cert.pem,key={0}/key.pem",
            folder.display()
        ));
        command.arg(format!("UNIX-CONNECT:{}", socket.display()));
        let socat = command.stdin(Stdio::null()).spawn().expect("socat");
        let listens = || {
            let open = bed::run({
                let mut command = enter();
                command.args(["ss", "-Hltn", &format!("sport = :{port}")]);
                command
            });
            (!open.stdout.is_empty()).then_some(())
        };
        wait_for(Duration::from_secs(20), listens).expect("socat listens");
        Self { state, socat, folder, port }
    }

    /// The URL of a file called `name`.
    pub fn url(&self, name: &str) -> String {
        format!("https://{ADDRESS}:{}/images/{name}", self.port)
    }

    /// The certificate, as the hosts can read it.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("cert.pem")
    }

    /// The next transfer ends after `bytes`.
    pub fn cut_after(&self, bytes: u64) {
        self.state.lock().expect("a lock").cuts.push(bytes);
    }

    /// The next transfer stands still after `bytes`, until the peer goes.
    pub fn hang_after(&self, bytes: u64) {
        let mut state = self.state.lock().expect("a lock");
        state.cuts.push(bytes);
        state.hangs = true;
    }

    /// What was served so far.
    pub fn served(&self) -> Vec<Served> {
        self.state.lock().expect("a lock").served.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be a child of the program that entered the namespaces.
        for pid in processes::children(self.socat.id()) {
            processes::signal(pid, "TERM");
        }
        let _ = self.socat.kill();
        let _ = self.socat.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn certificate(folder: &Path, name: &str) {
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=kvmad-test",
        "-addext",
    ]);
    command.arg(format!("subjectAltName={name}"));
    command.arg("-keyout").arg(folder.join("key.pem")).arg("-out").arg(folder.join("cert.pem"));
    let output = bed::run(command);
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
}

/// One request. The peer may go at any time.
fn serve(stream: &UnixStream, file: &Path, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    let (mut path, mut from, mut line) = (String::new(), 0, String::new());
    loop {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(count) if count > 0 && !line.trim().is_empty() => {}
            _ => break,
        }
        let lower = line.to_ascii_lowercase();
        if lower.starts_with("get ") {
            path = line.split(' ').nth(1).unwrap_or("").to_owned();
        } else if let Some(range) = lower.strip_prefix("range: bytes=") {
            from = range.split('-').next().and_then(|first| first.parse().ok()).unwrap_or(0);
        }
    }
    if path.is_empty() {
        return;
    }
    let (cut, hangs) = {
        let mut state = state.lock().expect("a lock");
        let cut = if state.cuts.is_empty() { None } else { Some(state.cuts.remove(0)) };
        (cut, std::mem::take(&mut state.hangs))
    };
    let sent = send(stream, file, from, cut).unwrap_or(0);
    if hangs {
        // Nothing more comes from the peer, so this returns when it is gone.
        let _ = reader.read_line(&mut line);
    }
    state.lock().expect("a lock").served.push(Served { path, from, sent });
}

fn send(mut stream: &UnixStream, file: &Path, from: u64, cut: Option<u64>) -> std::io::Result<u64> {
    let mut file = File::open(file)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(from))?;
    let status = if from > 0 {
        format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{size}", size - 1)
    } else {
        "200 OK".to_owned()
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nETag: \"one\"\r\nAccept-Ranges: bytes\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        size - from
    )?;
    let most = cut.unwrap_or(u64::MAX).min(size - from);
    let mut left = file.take(most);
    let mut buffer = vec![0; 1 << 18];
    let mut sent = 0;
    loop {
        let count = left.read(&mut buffer)?;
        if count == 0 {
            return Ok(sent);
        }
        if stream.write_all(&buffer[..count]).is_err() {
            return Ok(sent);
        }
        sent += count as u64;
    }
}
