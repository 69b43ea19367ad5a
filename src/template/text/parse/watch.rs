//! Noting what parses but was probably not meant.

use std::ops::Range;

use super::{NOTICES_KEPT, Parser};
use crate::template::text::notice::{Notice, NoticeKind};

impl Parser<'_> {
    pub(super) fn note(&mut self, kind: NoticeKind, key: &str, place: (usize, usize), span: Range<usize>) {
        if self.notices.len() < NOTICES_KEPT {
            let (line, column) = place;
            self.notices.push(Notice { kind, key: key.to_owned(), line, column, span });
        }
    }

    /// Looks at a value as it is written; `range` includes its quotes.
    pub(super) fn note_value(
        &mut self,
        raw: &str,
        quoted: bool,
        range: &Range<usize>,
        key: &str,
        name: (usize, usize),
    ) {
        let kind = if quoted { self.in_quotes(raw, range.end, name.0) } else { bare(raw) };
        if let Some(kind) = kind {
            self.note_at(kind, key, range.clone());
        }
        if raw.contains('\0') {
            self.note_at(NoticeKind::CutAtNul, key, range.clone());
        }
        if self.broken && raw.contains('\u{fffd}') {
            self.note_at(NoticeKind::NotUtf8, key, range.clone());
        }
        let hash = self.scanner.dropped().last().copied();
        if let Some(dropped) = hash.filter(|d| d.in_value && self.text.as_bytes()[d.at] == b'#')
            && self.text[dropped.at + 1..range.start].chars().all(|c| c.is_whitespace() || c == '#')
        {
            self.note_at(NoticeKind::HashInValue, key, dropped.at..range.end);
        }
    }

    fn note_at(&mut self, kind: NoticeKind, key: &str, span: Range<usize>) {
        let place = self.places.of(span.start);
        self.note(kind, key, place, span);
    }

    /// A quoted value that goes over lines of which one looks like an attribute: the quote was meant to close
    /// before it. `end` is behind the closing quote.
    fn in_quotes(&self, raw: &str, end: usize, line: usize) -> Option<NoticeKind> {
        let last = raw.matches('\n').count();
        let suspicious = |(n, text): &(usize, &str)| looks_like_attribute(text, *n == last);
        let swallowed = raw.split('\n').enumerate().skip(1).find(suspicious);
        if let Some((number, _)) = swallowed {
            return Some(NoticeKind::Swallowed(line + number));
        }
        // Closed by a quote that was meant to be one of the value's: nothing unescaped follows in the file.
        (self.text[..end].ends_with("\\\"")).then_some(NoticeKind::QuoteNotClosed)
    }

    /// Tells of dropped characters, and of CR LF line ends once.
    pub(super) fn note_dropped(&mut self) {
        let bytes = self.text.as_bytes();
        let mut carriage_return = false;
        for dropped in self.scanner.dropped().to_vec() {
            let Some(character) = self.text.get(dropped.at..).and_then(|rest| rest.chars().next()) else {
                continue; // a later byte of a character that is noted already
            };
            let span = dropped.at..dropped.at + character.len_utf8();
            if character == '\r' && bytes.get(dropped.at + 1) == Some(&b'\n') {
                if !carriage_return {
                    self.note_at(NoticeKind::CrLf, "", span);
                }
                carriage_return = true;
            } else if !matches!(character, '#' | '\n' | '\r') {
                self.note_at(NoticeKind::Dropped(character), "", span);
            }
        }
    }
}

/// What is odd about a value without quotes.
fn bare(raw: &str) -> Option<NoticeKind> {
    if let Some(rest) = raw.strip_prefix('"') {
        return Some(if rest.contains('"') { NoticeKind::QuotesKept } else { NoticeKind::QuoteNotClosed });
    }
    if raw.ends_with('\r') {
        return Some(NoticeKind::CarriageReturn);
    }
    raw.starts_with('\'').then_some(NoticeKind::SingleQuotes)
}

/// `NAME = "…`, `NAME = [` at the start of a line: a name in capitals, `=`, and a quote or bracket. The quote
/// that closes the value is not part of it, so in the last line nothing may follow the `=`.
fn looks_like_attribute(line: &str, last: bool) -> bool {
    let line = line.trim_start();
    let name = line.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).unwrap_or(0);
    if name < 2 {
        return false;
    }
    let rest = line[name..].trim_start();
    rest.strip_prefix('=')
        .map(str::trim_start)
        .is_some_and(|value| value.starts_with(['"', '[']) || (last && value.is_empty()))
}
