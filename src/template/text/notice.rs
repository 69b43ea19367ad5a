//! What a text says that its writer probably did not mean: it parses, but not as it reads.

use std::ops::Range;

use super::place::{Gravity, Picture};

/// Something to tell the writer of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// What it is.
    pub kind: NoticeKind,
    /// The attribute or member, `OS/ARCH`; empty when it is none.
    pub key: String,
    /// Line from 1.
    pub line: usize,
    /// Column in characters from 1.
    pub column: usize,
    /// The bytes it is about.
    pub span: Range<usize>,
}

/// The kinds of [`Notice`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeKind {
    /// A character between attributes that starts nothing; `oned` drops it.
    Dropped(char),
    /// A `#` directly behind `=`: no comment begins there, the words behind it are the value.
    HashInValue,
    /// The closing quote is directly followed by more text, so the quotes are part of the value.
    QuotesKept,
    /// The quoted value is never closed.
    QuoteNotClosed,
    /// A value in single quotes: they do not quote, they are part of it.
    SingleQuotes,
    /// A quoted value over several lines that looks as if it swallowed the attribute in this line.
    Swallowed(usize),
    /// The value ends in a carriage return.
    CarriageReturn,
    /// The lines of the file end in CR LF.
    CrLf,
    /// The value is cut at a NUL byte.
    CutAtNul,
    /// The value holds bytes that are not UTF-8.
    NotUtf8,
    /// The name is not one that a document can carry; it becomes this one.
    Renamed(String),
    /// An attribute of this name stands in this earlier line and is lost.
    ReplacesLine(usize),
    /// The same member stands in this earlier line of the vector; this one is lost.
    MemberOfLine(usize),
}

impl NoticeKind {
    /// A word for it that stays the same between versions.
    #[must_use]
    pub fn id(&self) -> &'static str {
        match self {
            Self::Dropped(_) => "dropped-character",
            Self::HashInValue => "hash-in-value",
            Self::QuotesKept => "quotes-kept",
            Self::QuoteNotClosed => "quote-not-closed",
            Self::SingleQuotes => "single-quotes",
            Self::Swallowed(_) => "swallowed-lines",
            Self::CarriageReturn | Self::CrLf => "carriage-return",
            Self::CutAtNul => "nul-byte",
            Self::NotUtf8 => "not-utf8",
            Self::Renamed(_) => "renamed",
            Self::ReplacesLine(_) => "repeated-attribute",
            Self::MemberOfLine(_) => "repeated-member",
        }
    }

    /// Whether the value that results is certainly not the one that is written there.
    #[must_use]
    pub fn gravity(&self) -> Gravity {
        match self {
            Self::QuotesKept
            | Self::QuoteNotClosed
            | Self::CarriageReturn
            | Self::CutAtNul
            | Self::NotUtf8
            | Self::HashInValue
            | Self::Swallowed(_)
            | Self::MemberOfLine(_)
            | Self::ReplacesLine(_) => Gravity::Warning,
            Self::Dropped(_) | Self::SingleQuotes | Self::CrLf | Self::Renamed(_) => Gravity::Note,
        }
    }

    /// What is the case.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Dropped(c) => format!("{c:?} starts nothing here and is dropped"),
            Self::HashInValue => {
                "no comment begins directly behind `=`: the # is dropped, the words are the value".to_owned()
            }
            Self::QuotesKept => {
                "text follows the closing quote directly, so the quotes are part of the value".to_owned()
            }
            Self::QuoteNotClosed => "the quote is never closed, so it is part of the value".to_owned(),
            Self::SingleQuotes => "single quotes do not quote, they are part of the value".to_owned(),
            Self::Swallowed(line) => {
                format!("the quoted value goes on over line {line}, which looks like an attribute of its own")
            }
            Self::CarriageReturn => "the value ends in a carriage return (CR)".to_owned(),
            Self::CrLf => {
                "the lines end in CR LF: values without blanks then keep their quotes and the CR".to_owned()
            }
            Self::CutAtNul => "the value ends at a NUL byte; the rest of it is lost".to_owned(),
            Self::NotUtf8 => {
                "the value holds bytes that are not UTF-8; libvirt refuses such a domain".to_owned()
            }
            Self::Renamed(name) => format!("the name is not allowed and becomes {name}"),
            Self::ReplacesLine(line) => {
                format!("this replaces the attribute of the same name in line {line}; nothing is merged")
            }
            Self::MemberOfLine(line) => {
                format!("the member stands already in line {line}; the first one counts, this one is lost")
            }
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::Dropped(_) => "remove it",
            Self::HashInValue => "write the value in quotes, or `\"\"` for an empty one",
            Self::QuotesKept => {
                "put a blank, a comma or a new line behind the closing quote; quote quotes as \\\""
            }
            Self::QuoteNotClosed => "close it with \"",
            Self::SingleQuotes => "use double quotes",
            Self::Swallowed(_) => {
                "close the quote before that line; a value that ends in a backslash cannot stand in quotes"
            }
            Self::CarriageReturn | Self::CrLf => "convert the file to LF line ends",
            Self::CutAtNul => "remove the NUL byte",
            Self::NotUtf8 => "save the file as UTF-8",
            Self::Renamed(_) => "begin the name with a letter or `_`, and not with XML",
            Self::ReplacesLine(_) => "write one attribute that holds all members",
            Self::MemberOfLine(_) => "remove one of the two",
        }
    }
}

impl Notice {
    /// Draws it with its place in `text`, which was read from `file`.
    #[must_use]
    pub fn picture(&self, file: &str, text: &str, colours: bool) -> String {
        Picture {
            file,
            text,
            span: self.span.clone(),
            gravity: self.kind.gravity(),
            id: Some(self.kind.id()),
            title: &self.kind.message(),
            label: "here",
            help: Some(self.kind.help()),
        }
        .draw(colours)
    }
}
