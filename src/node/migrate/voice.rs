//! What a migration says: lines for the VM's log while it runs, one reason at its end.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Writes to stderr. Lines that begin with `INFO:`, `WARNING:` or `ERROR:` are for the VM's log; a line without such a
/// word is the reason that the user sees.
pub struct Voice {
    script: &'static str,
    out: Mutex<Box<dyn Write + Send>>,
}

impl Voice {
    /// Speaks as `script` to `out`.
    #[must_use]
    pub fn new(script: &'static str, out: Box<dyn Write + Send>) -> Self {
        Self { script, out: Mutex::new(out) }
    }

    /// What happens.
    pub fn info(&self, text: &str) {
        self.line("INFO: ", text);
    }

    /// What is not as it should be, without an end to the action.
    pub fn warning(&self, text: &str) {
        self.line("WARNING: ", text);
    }

    /// What somebody has to look at, without an end to the action.
    pub fn error(&self, text: &str) {
        self.line("ERROR: ", text);
    }

    /// Why the action failed.
    pub fn reason(&self, text: &str) {
        self.error(text);
        self.write(&format!("{}\n", one_line(text)));
    }

    fn line(&self, mark: &str, text: &str) {
        self.write(&format!("{mark}{}: {}\n", self.script, one_line(text)));
    }

    fn write(&self, text: &str) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever listened may be gone; what must be done is done all the same.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
pub mod heard {
    //! A voice whose words a test can read.

    use super::*;
    use std::sync::Arc;

    /// What was said.
    #[derive(Clone, Default)]
    pub struct Heard(Arc<Mutex<Vec<u8>>>);

    impl Heard {
        /// A voice that speaks into this.
        pub fn voice(&self) -> Voice {
            Voice::new("migrate", Box::new(self.clone()))
        }

        /// All of it so far.
        pub fn text(&self) -> String {
            String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
        }
    }

    impl Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::heard::Heard;

    #[test]
    fn every_text_is_one_line_and_only_the_reason_stands_unmarked() {
        let heard = Heard::default();
        let voice = heard.voice();
        voice.info("a\nb");
        voice.warning("c");
        voice.reason("d\n\n e\n");
        assert_eq!(heard.text(), "INFO: migrate: a; b\nWARNING: migrate: c\nERROR: migrate: d; e\nd; e\n");
    }
}
