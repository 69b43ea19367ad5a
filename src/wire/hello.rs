//! The first line of the helper, and how it is found behind what a login shell prints.

use std::fmt;

/// Version of the frames. Both sides must have the same.
pub const PROTOCOL: u32 = 1;

const MAGIC: &[u8] = b"@@kvmad-node-serve@@ ";

/// A line longer than this is no hello.
const LONGEST: usize = 512;

/// What the helper says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Version of its frames.
    pub protocol: u32,
    /// Version of its program.
    pub version: String,
    /// The stamp of the remotes it stands in; `None` when they have none.
    pub stamp: Option<String>,
}

impl fmt::Display for Hello {
    /// The line, with a newline before it (a login shell may have left one unfinished) and after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magic = String::from_utf8_lossy(MAGIC);
        let stamp = self.stamp.as_deref().unwrap_or("-");
        writeln!(f, "\n{magic}protocol={} version={} stamp={stamp}", self.protocol, self.version)
    }
}

impl Hello {
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.trim_end_matches('\r').split(' ');
        let protocol = words.next()?.strip_prefix("protocol=")?.parse().ok()?;
        let version = words.next()?.strip_prefix("version=")?.to_owned();
        let stamp = words.next()?.strip_prefix("stamp=")?;
        // Later protocols may say more.
        let stamp = (stamp != "-" && !stamp.is_empty()).then(|| stamp.to_owned());
        Some(Self { protocol, version, stamp })
    }
}

/// What a scan has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Scanned {
    /// More bytes are needed.
    Incomplete,
    /// The line is there, and these bytes came behind it.
    Complete(Hello, Vec<u8>),
    /// There is more noise than is allowed, or the line can't be read: no helper speaks here.
    NoHelper,
}

/// Looks for the hello in bytes as they come.
#[derive(Debug)]
pub struct HelloScan {
    seen: Vec<u8>,
    from: usize,
    limit: usize,
}

impl HelloScan {
    /// A scan that skips at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { seen: Vec::new(), from: 0, limit }
    }

    /// Takes bytes as they come.
    pub fn push(&mut self, bytes: &[u8]) -> Scanned {
        self.seen.extend_from_slice(bytes);
        let Some(at) = memchr::memmem::find(&self.seen[self.from..], MAGIC) else {
            self.from = self.seen.len().saturating_sub(MAGIC.len() - 1);
            return if self.from > self.limit { Scanned::NoHelper } else { Scanned::Incomplete };
        };
        self.from += at;
        if self.from > self.limit {
            return Scanned::NoHelper;
        }
        let begin = self.from + MAGIC.len();
        match memchr::memchr(b'\n', &self.seen[begin..]) {
            Some(length) => match Hello::parse(&self.seen[begin..begin + length]) {
                Some(hello) => Scanned::Complete(hello, self.seen.split_off(begin + length + 1)),
                None => Scanned::NoHelper,
            },
            None if self.seen.len() - begin > LONGEST => Scanned::NoHelper,
            None => Scanned::Incomplete,
        }
    }

    /// What came so far, for an error text.
    #[must_use]
    pub fn noise(&self) -> String {
        let shown = &self.seen[..self.seen.len().min(200)];
        String::from_utf8_lossy(shown).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        Hello { protocol: PROTOCOL, version: "0.1.0".into(), stamp: Some("ab12".into()) }
    }

    #[test]
    fn the_line_comes_back() {
        for hello in [hello(), Hello { stamp: None, ..hello() }] {
            let text = format!("{hello}rest");
            let seen = HelloScan::new(100).push(text.as_bytes());
            assert_eq!(seen, Scanned::Complete(hello, b"rest".to_vec()));
        }
    }

    #[test]
    fn a_later_helper_may_say_more() {
        let line = "@@kvmad-node-serve@@ protocol=9 version=3 stamp=- colour=blue\r\n";
        let expected = Hello { protocol: 9, version: "3".into(), stamp: None };
        assert_eq!(HelloScan::new(0).push(line.as_bytes()), Scanned::Complete(expected, vec![]));
    }

    #[test]
    fn noise_is_skipped_up_to_the_limit() {
        let noise = vec![b'x'; 1000];
        let mut scan = HelloScan::new(1001);
        assert_eq!(scan.push(&noise), Scanned::Incomplete);
        assert!(matches!(scan.push(hello().to_string().as_bytes()), Scanned::Complete(..)));
        let mut scan = HelloScan::new(999);
        scan.push(&noise);
        assert_eq!(scan.push(hello().to_string().as_bytes()), Scanned::NoHelper);
        assert_eq!(HelloScan::new(999).push(&vec![b'x'; 5000]), Scanned::NoHelper);
    }

    #[test]
    fn a_line_that_is_not_ours_is_no_helper() {
        for text in ["@@kvmad-node-serve@@ protocol=x version= stamp=\n", "@@kvmad-node-serve@@ \n"] {
            assert_eq!(HelloScan::new(100).push(text.as_bytes()), Scanned::NoHelper);
        }
        let endless = [MAGIC, &[b'a'; 600]].concat();
        assert_eq!(HelloScan::new(100).push(&endless), Scanned::NoHelper);
    }

    proptest! {
        #[test]
        fn it_is_found_however_the_bytes_are_cut(
            noise in proptest::collection::vec(any::<u8>(), 0..300),
            cuts in proptest::collection::vec(1usize..40, 1..100),
        ) {
            let text = [&noise[..], hello().to_string().as_bytes(), b"\x00\x01rest"].concat();
            let mut scan = HelloScan::new(400);
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            loop {
                let next = text.len().min(at + cuts.next().unwrap());
                match scan.push(&text[at..next]) {
                    Scanned::Incomplete => at = next,
                    Scanned::Complete(found, mut rest) => {
                        rest.extend_from_slice(&text[next..]);
                        prop_assert_eq!(found, hello());
                        prop_assert_eq!(rest, b"\x00\x01rest");
                        break;
                    }
                    Scanned::NoHelper => prop_assert!(false),
                }
                prop_assert!(at < text.len(), "not found");
            }
        }
    }
}
