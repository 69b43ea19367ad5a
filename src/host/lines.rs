//! Cuts a stream of bytes into lines for people.

/// Bytes of one line; a longer one is handed out in pieces of this size.
const LONGEST: usize = 64 << 10;

/// Collects bytes and hands out complete lines, without newline (and carriage return), made valid UTF-8.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes bytes as they come and gives each line that is complete now to `sink`.
    pub fn push(&mut self, mut bytes: &[u8], sink: &(dyn Fn(&str) + Send + Sync)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.rest.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            self.finish_line(sink);
        }
        self.rest.extend_from_slice(bytes);
        while self.rest.len() >= LONGEST {
            let tail = self.rest.split_off(LONGEST);
            self.finish_line(sink);
            self.rest = tail;
        }
    }

    /// Gives out what came after the last newline, if anything.
    pub fn finish(&mut self, sink: &(dyn Fn(&str) + Send + Sync)) {
        if !self.rest.is_empty() {
            self.finish_line(sink);
        }
    }

    fn finish_line(&mut self, sink: &(dyn Fn(&str) + Send + Sync)) {
        let line = self.rest.strip_suffix(b"\r").unwrap_or(&self.rest);
        for piece in pieces(line) {
            sink(&String::from_utf8_lossy(piece));
        }
        self.rest.clear();
    }
}

fn pieces(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = line.len().div_ceil(LONGEST).max(1);
    (0..count).map(move |nr| &line[nr * LONGEST..line.len().min((nr + 1) * LONGEST)])
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn cut(parts: &[&[u8]]) -> Vec<String> {
        let seen = Mutex::new(Vec::new());
        let sink = |line: &str| seen.lock().unwrap().push(line.to_owned());
        let mut lines = Lines::default();
        for part in parts {
            lines.push(part, &sink);
        }
        lines.finish(&sink);
        seen.into_inner().unwrap()
    }

    #[test]
    fn lines_are_cut_wherever_the_bytes_are_cut() {
        assert_eq!(cut(&[b"one\ntw", b"o\n\nthree"]), ["one", "two", "", "three"]);
        assert_eq!(cut(&[b"a\r", b"\nb\r\n"]), ["a", "b"]);
        assert_eq!(cut(&[b"", b""]), Vec::<String>::new());
    }

    #[test]
    fn bytes_that_are_no_utf8_are_replaced() {
        assert_eq!(cut(&[b"a\xffb\n"]), ["a\u{fffd}b"]);
    }

    #[test]
    fn a_line_without_end_comes_in_pieces() {
        let long = vec![b'x'; LONGEST * 2 + 5];
        let seen = cut(&[&long, b"\n"]);
        assert_eq!(seen.iter().map(String::len).sum::<usize>(), long.len());
        assert!(seen.iter().all(|line| line.len() <= LONGEST));
        let seen = cut(&[&[&long[..], b"\n"].concat()]);
        assert_eq!(seen.iter().map(String::len).collect::<Vec<_>>(), [LONGEST, LONGEST, 5]);
    }
}
