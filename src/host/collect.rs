//! Collects what a command prints: both outputs up to a cap, lines of stderr handed on as they come.

use super::lines::Lines;

/// Output of one command.
#[derive(Debug)]
pub struct Collector {
    /// Its stdout, up to the cap.
    pub stdout: Vec<u8>,
    /// Its stderr, up to the cap.
    pub stderr: Vec<u8>,
    /// Bytes beyond the caps.
    pub dropped: u64,
    cap: usize,
    lines: Lines,
}

impl Collector {
    /// Keeps at most `cap` bytes of each output.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self { stdout: Vec::new(), stderr: Vec::new(), dropped: 0, cap, lines: Lines::default() }
    }

    /// Most bytes of each output that are kept.
    #[must_use]
    pub fn cap(&self) -> usize {
        self.cap
    }

    /// Takes bytes of stdout.
    pub fn stdout(&mut self, bytes: &[u8]) {
        self.dropped += keep(&mut self.stdout, bytes, self.cap);
    }

    /// Takes bytes of stderr and gives each line that is complete now to `on_line`.
    pub fn stderr(&mut self, bytes: &[u8], on_line: &(dyn Fn(&str) + Send + Sync)) {
        self.dropped += keep(&mut self.stderr, bytes, self.cap);
        self.lines.push(bytes, on_line);
    }

    /// The command has ended: gives out a last line without newline.
    pub fn finish(&mut self, on_line: &(dyn Fn(&str) + Send + Sync)) {
        self.lines.finish(on_line);
    }
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8], cap: usize) -> u64 {
    let room = cap.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..room]);
    (bytes.len() - room) as u64
}
