//! A driver between two pipes, in this process.

use std::io::{BufRead, BufReader, PipeReader, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvmad::mad::{End, Setup, serve};
use kvmad::settings::Settings;

use crate::canned::Canned;

/// How long a test waits for something that must come.
pub const SOON: Duration = Duration::from_secs(20);
/// How long a test waits for something that must not come.
pub const MOMENT: Duration = Duration::from_millis(150);

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
});

pub struct Driver {
    pub input: Option<std::io::PipeWriter>,
    pub actions: Arc<Canned>,
    output: Option<PipeReader>,
    lines: Option<Receiver<String>>,
    serving: Option<JoinHandle<End>>,
}

pub fn setup(slots: usize, parallel: bool) -> Setup {
    let mut setup = Setup::new(&Settings::default().mad, slots, parallel);
    setup.signals = false;
    setup
}

impl Driver {
    /// A driver whose output nobody reads yet.
    pub fn unread(setup: Setup) -> Self {
        let (input, writer) = std::io::pipe().expect("a pipe");
        let (reader, output) = std::io::pipe().expect("a pipe");
        let actions = Arc::new(Canned::default());
        let theirs = actions.clone();
        let handle = RUNTIME.handle().clone();
        let serving =
            std::thread::spawn(move || serve(theirs, setup, &handle, input, output).expect("threads"));
        let input = Some(writer);
        Self { input, actions, output: Some(reader), lines: None, serving: Some(serving) }
    }

    /// A driver whose output is read all the time.
    pub fn start(setup: Setup) -> Self {
        let mut driver = Self::unread(setup);
        driver.read();
        driver
    }

    /// One with 15 slots, started and initialised.
    pub fn ready(parallel: bool) -> Self {
        let mut driver = Self::start(setup(15, parallel));
        driver.send("INIT");
        assert_eq!(driver.line(), "INIT SUCCESS - -");
        driver
    }

    /// From now on the output is read.
    pub fn read(&mut self) {
        let (sender, lines) = channel();
        let output = self.output.take().expect("not read yet");
        std::thread::spawn(move || {
            let mut reader = BufReader::new(output);
            loop {
                let mut line = Vec::new();
                match reader.read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                let line = String::from_utf8(line).expect("UTF-8");
                let line = line.strip_suffix('\n').expect("a whole line").to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        self.lines = Some(lines);
    }

    pub fn raw_output(&mut self) -> PipeReader {
        self.output.take().expect("not read yet")
    }

    pub fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.input.as_mut().expect("open").write_all(bytes).expect("the driver reads");
    }

    /// The next line.
    pub fn line(&mut self) -> String {
        self.lines.as_ref().expect("read").recv_timeout(SOON).expect("a line soon")
    }

    /// The next line that is no LOG line.
    pub fn reply(&mut self) -> String {
        loop {
            let line = self.line();
            if !line.starts_with("LOG ") {
                return line;
            }
        }
    }

    /// All lines until the driver has ended or nothing came for `quiet`.
    pub fn rest(&mut self, quiet: Duration) -> Vec<String> {
        let lines = self.lines.as_ref().expect("read");
        let mut all = Vec::new();
        loop {
            match lines.recv_timeout(quiet) {
                Ok(line) => all.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return all,
            }
        }
    }

    /// Replies that come within a moment: for saying that there is none.
    pub fn replies_now(&mut self) -> Vec<String> {
        self.rest(MOMENT).into_iter().filter(|line| !line.starts_with("LOG ")).collect()
    }

    /// Waits until the record of the actions holds `text`.
    pub fn until(&self, text: &str) {
        let start = Instant::now();
        while !self.record().iter().any(|entry| entry == text) {
            assert!(start.elapsed() < SOON, "{text} is not in {:?}", self.record());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn record(&self) -> Vec<String> {
        self.actions.record.lock().expect("no panic holds it").clone()
    }

    /// Waits for the end of the driver.
    pub fn end(&mut self) -> End {
        self.serving.take().expect("not ended").join().expect("no panic")
    }
}
