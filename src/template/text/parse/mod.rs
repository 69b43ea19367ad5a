//! The grammar: attributes with one value or with members, nothing between them.

mod faults;
mod watch;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::template::document::top_name;
use crate::template::text::error::SyntaxError;
use crate::template::text::notice::{Notice, NoticeKind};
use crate::template::text::place::Places;
use crate::template::text::scan::{Kind, Scanner, Token};
use crate::template::value::{Attribute, Level, Member, Origin, Template, Value};

/// What differs between the kinds of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// A repeated attribute replaces all earlier ones of its name; otherwise all are kept, in order.
    pub last_replaces: bool,
    /// White space around every value is cut away.
    pub trims: bool,
}

impl Rules {
    /// The defaults file: the last attribute of a name counts, values are kept as they are.
    pub const DEFAULTS: Self = Self { last_replaces: true, trims: false };
    /// Templates of VMs, hosts and clusters, as they come through the API: all attributes count, values are
    /// trimmed.
    pub const TEMPLATE: Self = Self { last_replaces: false, trims: true };
}

/// What became of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The attributes; with an error, those completed before it.
    pub template: Template,
    /// Why the rest could not be read.
    pub error: Option<SyntaxError>,
    /// What parses but probably means something else, in order of place.
    pub notices: Vec<Notice>,
}

/// Most notices that are kept for one text.
const NOTICES_KEPT: usize = 200;

/// Reads `bytes` as [`parse`] does. Bytes that are not UTF-8 become U+FFFD; in a value that is a notice.
#[must_use]
pub fn parse_bytes<'a>(bytes: &'a [u8], level: Level, file: &str, rules: Rules) -> (Cow<'a, str>, Parsed) {
    let text = String::from_utf8_lossy(bytes);
    let broken = matches!(text, Cow::Owned(_));
    let parsed = Parser::new(&text, level, file, rules, broken).run();
    (text, parsed)
}

/// Reads `text`, which came from `file` (a name for people), into the template of `level`. Never fails as a
/// whole: what was complete before an error is there.
#[must_use]
pub fn parse(text: &str, level: Level, file: &str, rules: Rules) -> Parsed {
    Parser::new(text, level, file, rules, false).run()
}

/// What is written at a place, with the place kept.
struct Word {
    text: String,
    span: Range<usize>,
    line: usize,
    column: usize,
}

struct Parser<'a> {
    text: &'a str,
    rules: Rules,
    broken: bool,
    level: Level,
    file: Arc<str>,
    scanner: Scanner<'a>,
    places: Places<'a>,
    attributes: Vec<Attribute>,
    /// Where the name of each attribute stands.
    spans: Vec<Range<usize>>,
    notices: Vec<Notice>,
}

type Step<T> = Result<T, SyntaxError>;

impl<'a> Parser<'a> {
    fn new(text: &'a str, level: Level, file: &str, rules: Rules, broken: bool) -> Self {
        Self {
            text,
            rules,
            broken,
            level,
            file: file.into(),
            scanner: Scanner::new(text),
            places: Places::new(text),
            attributes: Vec::new(),
            spans: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn run(mut self) -> Parsed {
        let error = self.attributes().err();
        self.note_dropped();
        if self.rules.last_replaces {
            self.drop_replaced();
        }
        self.notices.sort_by_key(|notice| notice.span.start);
        Parsed { template: self.attributes.into_iter().collect(), error, notices: self.notices }
    }

    fn token(&mut self) -> Option<Token> {
        self.scanner.next()
    }

    fn attributes(&mut self) -> Step<()> {
        while let Some(token) = self.token() {
            let name = match token.kind {
                Kind::Name => self.word(token.range),
                Kind::Comma => return Err(self.stray_comma(&token)),
                Kind::Close => return Err(self.stray_close(&token)),
                _ => return Err(self.wrong(&token, "the name of an attribute must stand before this", None)),
            };
            self.attribute(name)?;
        }
        Ok(())
    }

    fn attribute(&mut self, name: Word) -> Step<()> {
        let written = name.text.clone();
        let repaired = top_name(&written);
        let place = (name.line, name.column);
        if repaired != written.to_ascii_uppercase() {
            self.note(NoticeKind::Renamed(repaired.clone()), &written, place, name.span.clone());
        }
        let value = match self.sign(&name)? {
            Kind::EqualsEmpty => Value::Single(String::new()),
            _ => match self.token() {
                Some(Token { kind: Kind::Text { content, quoted }, range }) => {
                    Value::Single(self.value(content, quoted, range, &repaired, place))
                }
                Some(Token { kind: Kind::Open, range }) => Value::Vector(self.members(&repaired, &range)?),
                other => return Err(self.no_value(&name, other.as_ref())),
            },
        };
        let origin = self.origin(place);
        self.attributes.push(Attribute { name: repaired, value, origin });
        self.spans.push(name.span);
        Ok(())
    }

    /// The `=` behind a name.
    fn sign(&mut self, name: &Word) -> Step<Kind> {
        let dropped = self.scanner.dropped().len();
        match self.token() {
            Some(Token { kind: kind @ (Kind::Equals | Kind::EqualsEmpty), .. }) => Ok(kind),
            other => Err(self.no_sign(name, other.as_ref(), dropped)),
        }
    }

    /// The members behind `[`, up to and including `]`.
    fn members(&mut self, vector: &str, open: &Range<usize>) -> Step<Vec<Member>> {
        let mut members: Vec<Member> = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut first = true;
        loop {
            let name = match self.token() {
                Some(Token { kind: Kind::Name, range }) => self.word(range),
                Some(Token { kind: Kind::Close, .. }) if first => return Ok(members),
                other => return Err(self.no_member(open, other.as_ref(), first)),
            };
            first = false;
            let (place, span) = ((name.line, name.column), name.span.clone());
            let value = self.member(&name, vector)?;
            let upper = name.text.to_ascii_uppercase();
            let origin = self.origin(place);
            if let Some(line) = seen.get(&upper) {
                let kind = NoticeKind::MemberOfLine(*line);
                self.note(kind, &format!("{vector}/{upper}"), place, span);
            } else {
                seen.insert(upper.clone(), place.0);
                members.push(Member { name: upper, value, origin });
            }
            match self.token() {
                Some(Token { kind: Kind::Comma, .. }) => {}
                Some(Token { kind: Kind::Close, .. }) => return Ok(members),
                other => return Err(self.no_comma(open, other.as_ref())),
            }
        }
    }

    fn member(&mut self, name: &Word, vector: &str) -> Step<String> {
        if self.sign(name)? == Kind::EqualsEmpty {
            return Err(self.empty_member(name));
        }
        match self.token() {
            Some(Token { kind: Kind::Text { content, quoted }, range }) => {
                let key = format!("{vector}/{}", name.text.to_ascii_uppercase());
                Ok(self.value(content, quoted, range, &key, (name.line, name.column)))
            }
            Some(token @ Token { kind: Kind::Open, .. }) => {
                let help = "only one level of [ ] exists; give the inner values names of their own";
                Err(self.wrong(&token, "a vector cannot stand inside a vector", Some(help)))
            }
            other => Err(self.no_value(name, other.as_ref())),
        }
    }

    /// The value that counts, of the text in `content`.
    fn value(
        &mut self,
        content: Range<usize>,
        quoted: bool,
        range: Range<usize>,
        key: &str,
        place: (usize, usize),
    ) -> String {
        let raw = &self.text[content];
        self.note_value(raw, quoted, &range, key, place);
        let cut = raw.split('\0').next().unwrap_or("");
        let value = if quoted { cut.replace("\\\"", "\"") } else { cut.to_owned() };
        if self.rules.trims { trim(&value).to_owned() } else { value }
    }

    fn word(&mut self, range: Range<usize>) -> Word {
        let (line, column) = self.places.of(range.start);
        Word { text: self.text[range.clone()].to_owned(), span: range, line, column }
    }

    fn origin(&self, place: (usize, usize)) -> Origin {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Origin {
            level: self.level,
            file: Some(Arc::clone(&self.file)),
            line: small(place.0),
            column: small(place.1),
        }
    }

    /// Keeps the last attribute of each name, at its own position.
    fn drop_replaced(&mut self) {
        let attributes = std::mem::take(&mut self.attributes);
        let spans = std::mem::take(&mut self.spans);
        let last: HashMap<String, usize> =
            attributes.iter().enumerate().map(|(index, a)| (a.name.clone(), index)).collect();
        let mut lines: HashMap<String, usize> = HashMap::new();
        for (index, (attribute, span)) in attributes.into_iter().zip(spans).enumerate() {
            let place = (attribute.origin.line as usize, attribute.origin.column as usize);
            if let Some(earlier) = lines.insert(attribute.name.clone(), place.0) {
                self.note(NoticeKind::ReplacesLine(earlier), &attribute.name, place, span);
            }
            if last.get(&attribute.name) == Some(&index) {
                self.attributes.push(attribute);
            }
        }
    }
}

/// Cuts away what C calls white space, at both ends.
fn trim(value: &str) -> &str {
    value.trim_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r'])
}
