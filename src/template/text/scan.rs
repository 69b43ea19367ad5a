//! The scanner: two modes, in each the longest match wins, among equally long ones the earlier rule.
//!
//! NAME mode knows comments, names, `=`, `,` and `]`; VALUE mode, entered by `=`, knows `[`, quoted and bare
//! texts. A byte that starts nothing is dropped without a word by `oned`; here it is dropped too, and noted.

use std::ops::Range;

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Name of an attribute or of a member.
    Name,
    /// `=` with a value behind it.
    Equals,
    /// `=` at the end of a line: the value is empty.
    EqualsEmpty,
    /// A value. `content` is what counts of it: without the outer quotes, nothing unescaped yet.
    Text {
        /// Where the content stands.
        content: Range<usize>,
        /// Whether it stood in quotes.
        quoted: bool,
    },
    /// `[`
    Open,
    /// `]`
    Close,
    /// `,`
    Comma,
    /// The rest of a line that holds `]]>`: no rule of the grammar takes it.
    Forbidden,
}

/// A token and where it stands, surrounding blanks included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) range: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Name,
    Value,
}

/// A byte that was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dropped {
    /// Where.
    pub(super) at: usize,
    /// Whether it stood where a value was expected.
    pub(super) in_value: bool,
}

/// What is known of the line in which a value begins.
#[derive(Debug, Clone, Copy)]
struct Line {
    end: usize,
    /// Start of the last `]]>` in it.
    forbidden: Option<usize>,
}

/// Cuts a text into tokens.
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    mode: Mode,
    line: Option<Line>,
    dropped: Vec<Dropped>,
}

/// Most dropped bytes that are remembered: a binary file should not cost memory.
const DROPPED_KEPT: usize = 64;

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn is_space(byte: u8) -> bool {
    is_blank(byte) || byte == b'\n'
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn ends_bare(byte: u8) -> bool {
    matches!(byte, b'=' | b'#' | b' ' | b'\t' | b'\n' | b',' | b'[' | b']')
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at: 0, mode: Mode::Name, line: None, dropped: Vec::new() }
    }

    /// The bytes dropped so far, the first ones of them.
    pub(super) fn dropped(&self) -> &[Dropped] {
        &self.dropped
    }

    /// The next token; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Token> {
        while self.at < self.bytes.len() {
            let token = match self.mode {
                Mode::Name => self.in_name(),
                Mode::Value => self.in_value(),
            };
            if token.is_some() {
                return token;
            }
        }
        None
    }

    fn peek(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// First position from `at` on whose byte is not `wanted`.
    fn skip(&self, at: usize, wanted: impl Fn(u8) -> bool) -> usize {
        self.bytes[at..].iter().position(|byte| !wanted(*byte)).map_or(self.bytes.len(), |n| at + n)
    }

    fn token(&mut self, kind: Kind, end: usize) -> Token {
        let range = self.at..end;
        self.at = end;
        Token { kind, range }
    }

    fn drop_byte(&mut self) {
        if self.dropped.len() < DROPPED_KEPT {
            self.dropped.push(Dropped { at: self.at, in_value: self.mode == Mode::Value });
        }
        self.at += 1;
    }

    /// One step in NAME mode; `None` when something was skipped.
    fn in_name(&mut self) -> Option<Token> {
        let blanks = self.skip(self.at, is_blank);
        match self.peek(blanks) {
            Some(b'=') => return Some(self.equals(blanks)),
            Some(b'#') => {
                if let Some(end) = memchr::memchr(b'\n', &self.bytes[blanks..]) {
                    self.at = blanks + end + 1;
                    return None;
                }
            }
            _ => {}
        }
        let space = self.skip(self.at, is_space);
        match self.peek(space) {
            Some(b',') => {
                let end = self.skip(space + 1, is_space);
                return Some(self.token(Kind::Comma, end));
            }
            Some(b']') => {
                let end = self.skip(space + 1, is_space);
                return Some(self.token(Kind::Close, end));
            }
            _ if space > self.at => self.at = space,
            Some(byte) if is_name(byte) => {
                let end = self.skip(self.at, is_name);
                return Some(self.token(Kind::Name, end));
            }
            _ => self.drop_byte(),
        }
        None
    }

    fn equals(&mut self, sign: usize) -> Token {
        let end = self.skip(sign + 1, is_blank);
        if self.peek(end) == Some(b'\n') {
            return self.token(Kind::EqualsEmpty, end + 1);
        }
        self.mode = Mode::Value;
        self.token(Kind::Equals, end)
    }

    /// One step in VALUE mode; `None` when something was skipped.
    fn in_value(&mut self) -> Option<Token> {
        let quoted = self.quoted_end();
        if let Some(end) = self.forbidden_end()
            && quoted.is_none_or(|quoted| quoted <= end)
        {
            return Some(self.token(Kind::Forbidden, end));
        }
        let blanks = self.skip(self.at, is_blank);
        if self.peek(blanks) == Some(b'[') {
            self.mode = Mode::Name;
            let end = self.skip(blanks + 1, is_space);
            return Some(self.token(Kind::Open, end));
        }
        let bare = self.skip(self.at, |byte| !ends_bare(byte));
        if let Some(end) = quoted
            && end >= bare
        {
            self.mode = Mode::Name;
            let content = self.at + 1..end - 1;
            return Some(self.token(Kind::Text { content, quoted: true }, end));
        }
        if bare > self.at {
            self.mode = Mode::Name;
            return Some(self.token(Kind::Text { content: self.at..bare, quoted: false }, bare));
        }
        if blanks > self.at {
            self.at = blanks;
        } else {
            self.drop_byte();
        }
        None
    }

    /// End of the quoted text that begins here. It closes at the first `"` without a backslash directly
    /// before it; when there is none up to the end of the text, at the last `"` that has one.
    fn quoted_end(&self) -> Option<usize> {
        if self.peek(self.at) != Some(b'"') {
            return None;
        }
        let start = self.at + 1;
        let mut last = None;
        for found in memchr::memchr_iter(b'"', &self.bytes[start..]) {
            let at = start + found;
            last = Some(at + 1);
            if found == 0 || self.bytes[at - 1] != b'\\' {
                break;
            }
        }
        last
    }

    /// End of the line when `]]>` stands in the rest of it.
    fn forbidden_end(&mut self) -> Option<usize> {
        let line = match self.line {
            Some(line) if self.at <= line.end => line,
            _ => self.measure_line(),
        };
        self.line = Some(line);
        line.forbidden.filter(|start| *start >= self.at).map(|_| line.end)
    }

    fn measure_line(&self) -> Line {
        let rest = &self.bytes[self.at..];
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let forbidden = memchr::memmem::rfind(&rest[..end], b"]]>").map(|n| self.at + n);
        Line { end: self.at + end, forbidden }
    }
}
