//! Drains stdin. This thread does nothing else, whatever the rest of the driver waits for: `oned` writes with one
//! blocking call a message and stands still, with all its drivers, while a pipe is full.

use std::io::{ErrorKind, Read};

/// How much is read at once.
const CHUNK: usize = 64 << 10;
/// How much of a line beyond the limit is kept: enough for its verb and id.
const HEAD: usize = 256;

/// What comes from stdin.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// A line, without its newline.
    Line(Vec<u8>),
    /// A line beyond the limit: its beginning, and how many bytes it had.
    TooLong(Vec<u8>, usize),
    /// The end: oned closed the pipe, or it can't be read (the reason).
    End(Option<String>),
}

/// Reads until the end and hands everything to `take`, which must not block; ends early when it returns false. A last
/// line without newline is a line.
pub fn drain(mut source: impl Read, limit: usize, mut take: impl FnMut(Input) -> bool) {
    let mut lines = Lines { line: Vec::new(), length: 0, limit };
    let mut chunk = vec![0; CHUNK];
    let fault = loop {
        match source.read(&mut chunk) {
            Ok(0) => break None,
            Ok(count) => {
                if !lines.split(&chunk[..count], &mut take) {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => break Some(error.to_string()),
        }
    };
    if lines.length > 0 && !take(lines.end()) {
        return;
    }
    take(Input::End(fault));
}

struct Lines {
    line: Vec<u8>,
    length: usize,
    limit: usize,
}

impl Lines {
    fn split(&mut self, mut bytes: &[u8], take: &mut impl FnMut(Input) -> bool) -> bool {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.push(&bytes[..end]);
            bytes = &bytes[end + 1..];
            if !take(self.end()) {
                return false;
            }
        }
        self.push(bytes);
        true
    }

    fn push(&mut self, bytes: &[u8]) {
        self.length = self.length.saturating_add(bytes.len());
        if self.length <= self.limit {
            self.line.extend_from_slice(bytes);
        } else if self.line.len() < HEAD {
            let more = bytes.len().min(HEAD - self.line.len());
            self.line.extend_from_slice(&bytes[..more]);
        } else if self.line.len() > HEAD {
            self.line.truncate(HEAD);
            self.line.shrink_to_fit();
        }
    }

    fn end(&mut self) -> Input {
        let line = std::mem::take(&mut self.line);
        let length = std::mem::take(&mut self.length);
        if length <= self.limit { Input::Line(line) } else { Input::TooLong(line, length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of `step`.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn inputs(bytes: &[u8], step: usize, limit: usize) -> Vec<Input> {
        let mut all = Vec::new();
        drain(Pieces(bytes, step), limit, |input| {
            all.push(input);
            true
        });
        all
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let text = b"INIT\n\nDEPLOY 1 abc\r\nlast";
        let line = |text: &str| Input::Line(text.as_bytes().to_vec());
        let expected = [line("INIT"), line(""), line("DEPLOY 1 abc\r"), line("last"), Input::End(None)];
        for step in [1, 2, 3, 7, 1000] {
            assert_eq!(inputs(text, step, 100), expected, "{step}");
        }
    }

    #[test]
    fn a_line_beyond_the_limit_keeps_its_head_only_and_the_next_is_served() {
        let mut text = b"DEPLOY 1 ".to_vec();
        text.resize(100_000, b'x');
        text.extend_from_slice(b"\nINIT\n");
        for step in [1, 100, 70_000, 1_000_000] {
            let all = inputs(&text, step, 1000);
            let Input::TooLong(head, 100_000) = &all[0] else { panic!("{step}: {:?}", all[0]) };
            assert!(head.starts_with(b"DEPLOY 1 xxx") && head.len() <= 1000, "{step}: {}", head.len());
            assert_eq!(all[1..], [Input::Line(b"INIT".to_vec()), Input::End(None)]);
        }
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_served() {
        assert_eq!(inputs(b"12345\n123456\n", 4, 5)[0], Input::Line(b"12345".to_vec()));
        assert!(matches!(inputs(b"12345\n123456\n", 4, 5)[1], Input::TooLong(_, 6)));
    }
}
