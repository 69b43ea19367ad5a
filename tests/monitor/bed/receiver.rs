//! A receiver of messages in the front-end's network, as `onemonitord` is one: UDP and TCP on one port. It is this program
//! again, started in that network; each message comes back as a line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kvmad::node::monitor::message::{Kind, Message, MessageError};
use rsa::pkcs1::DecodeRsaPrivateKey as _;
use rsa::traits::PublicKeyParts as _;

use crate::harness::{bed, wait_for};

/// Set for the part that runs in the other network.
const INSIDE: &str = "KVMAD_TEST_RECEIVER";
/// In front of its lines, because the test program prints lines of its own.
const MARK: &str = "kvmad-message ";

/// A message that came.
#[derive(Debug, Clone)]
pub struct Came {
    /// UDP or TCP.
    pub by: String,
    /// When.
    pub at: Instant,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The receiver. It ends with this.
#[derive(Debug)]
pub struct Receiver {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Its port.
    pub port: u16,
    came: Arc<Mutex<Vec<Came>>>,
    key: Option<rsa::PrivateKey>,
}

impl Receiver {
    /// One that reads what is encrypted for `key` (PEM), if there is one.
    pub fn start(key: Option<&str>) -> Self {
        let network = format!("/run/netns/{}", bed::namespace(bed::FRONT_END));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={network}")).arg(std::env::current_exe().expect("this program"));
        command.args([
            "bed::receiver::in_the_network_of_the_front_end",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        command.env(INSIDE, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("nsenter");
        let stdin = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let port = lines.find_map(|line| line.split_once("kvmad-port ")?.1.parse().ok()).expect("its port");
        let came = Arc::new(Mutex::new(Vec::new()));
        let filled = Arc::clone(&came);
        std::thread::spawn(move || {
            for line in lines {
                let Some((by, packed)) = line.strip_prefix(MARK).and_then(|rest| rest.split_once(' ')) else {
                    continue;
                };
                let bytes = STANDARD.decode(packed).expect("written by us");
                let message = Came { by: by.to_owned(), at: Instant::now(), bytes };
                filled.lock().expect("free").push(message);
            }
        });
        let key = key.map(|pem| rsa::PrivateKey::from_pkcs1_pem(pem).expect("a key"));
        Self { child, stdin, port, came, key }
    }

    /// All that came, as it came.
    pub fn raw(&self) -> Vec<Came> {
        self.came.lock().expect("free").clone()
    }

    /// How many messages came so far.
    pub fn count(&self) -> usize {
        self.came.lock().expect("free").len()
    }

    /// Reads one message, as `onemonitord` does.
    pub fn read(&self, bytes: &[u8]) -> Result<Message, MessageError> {
        let Some(key) = &self.key else { return Message::decode(bytes) };
        Message::decode_with(bytes, |sealed| {
            let blocks = sealed.chunks(key.size());
            blocks.flat_map(|block| key.pkcs1v15_decrypt(block).expect("sealed with our key")).collect()
        })
    }

    /// All messages from the `from`th on, with the way they came; panics when one can't be read.
    pub fn messages(&self, from: usize) -> Vec<(Came, Message)> {
        let all = self.raw().into_iter().skip(from);
        all.map(|came| {
            let message = self.read(&came.bytes).unwrap_or_else(|e| panic!("{e}: {came:?}"));
            (came, message)
        })
        .collect()
    }

    /// The first message from the `from`th on that is `wanted`.
    pub fn wait(&self, from: usize, limit: Duration, wanted: impl Fn(&Message) -> bool) -> (Came, Message) {
        let found = wait_for(limit, || self.messages(from).into_iter().find(|(_, message)| wanted(message)));
        found.unwrap_or_else(|| {
            let all: Vec<_> = self.messages(from).into_iter().map(|(_, message)| message).collect();
            panic!("the message does not come within {limit:?}; there came {all:#?}")
        })
    }

    /// The first message of `kind` from the `from`th on whose text contains `part`.
    pub fn text(&self, from: usize, kind: Kind, part: &str, limit: Duration) -> Message {
        self.wait(from, limit, |message| message.kind == kind && message.text.contains(part)).1
    }

    /// What was told of a VM's state from the `from`th message on, in order, complete lists left out.
    pub fn states(&self, from: usize, vm: u32) -> Vec<String> {
        let all = self.messages(from).into_iter().map(|(_, message)| message);
        let news = all.filter(|message| message.kind == Kind::State && !message.text.contains("SYNC_STATE"));
        news.filter_map(|message| state_of(&message.text, vm)).collect()
    }
}

/// STATE of a VM in the text of a STATE_VM message.
pub fn state_of(text: &str, vm: u32) -> Option<String> {
    let line = text.lines().find(|line| line.contains(&format!("ID=\"{vm}\",")))?;
    Some(line.split("STATE=\"").nth(1)?.split('"').next()?.to_owned())
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the receiver of other tests; by itself it does nothing"]
fn in_the_network_of_the_front_end() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let tcp = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = tcp.local_addr().expect("bound").port();
    let udp = UdpSocket::bind(("0.0.0.0", port)).expect("the same port");
    say(&format!("\nkvmad-port {port}"));
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while let Ok(length) = udp.recv(&mut buffer) {
            say(&format!("{MARK}UDP {}", STANDARD.encode(&buffer[..length])));
        }
    });
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            let mut all = Vec::new();
            let _ = stream.read_to_end(&mut all);
            say(&format!("{MARK}TCP {}", STANDARD.encode(&all)));
        }
    });
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0);
}

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
