//! Values on their way from templates into the tree: what they mean there, and what gave them.
//!
//! OpenNebula pastes values into text. Here they are read for what that text would mean (a well-formed `&lt;`
//! is a `<`, a line feed in an attribute is a blank) and never for markup.

use std::borrow::Cow;

use super::provenance::{Given, Provenance};
use crate::template::lookup::{At, Text, Typed};

/// A value and what gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced {
    /// The value, not escaped.
    pub value: String,
    /// What gave it.
    pub from: Provenance,
}

impl From<&'static str> for Sourced {
    fn from(value: &'static str) -> Self {
        Self { value: value.to_owned(), from: Provenance::BuiltIn }
    }
}

impl Sourced {
    /// A value that was worked out from `from`.
    pub fn computed(value: impl ToString, how: &'static str, from: impl IntoIterator<Item = Given>) -> Self {
        Self {
            value: value.to_string(),
            from: Provenance::Computed { how, from: from.into_iter().collect() },
        }
    }

    /// A number as a level gave it, or as worked out from what it gave when that was no good number.
    pub fn number<T: ToString>(typed: &Typed<'_, T>) -> Self {
        let from = match typed.at {
            Some(at) if typed.found => Provenance::Given(given(at)),
            Some(at) => {
                Provenance::Computed { how: "leading digits of what is no number", from: vec![given(at)] }
            }
            None => Provenance::BuiltIn,
        };
        Self { value: typed.value.to_string(), from }
    }

    /// A value that an option of the caller gave.
    pub fn option(value: impl ToString, how: &'static str) -> Self {
        Self::computed(value, how, [])
    }

    /// Whether it is the empty string.
    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }
}

/// `at` in words.
pub fn given(at: At<'_>) -> Given {
    let mut attribute = at.attribute.to_owned();
    if let Some(index) = at.index {
        attribute.push('[');
        attribute.push_str(&index.to_string());
        attribute.push(']');
    }
    if let Some(member) = at.member {
        attribute.push('.');
        attribute.push_str(member);
    }
    Given { attribute, origin: at.origin.clone() }
}

/// What decided a yes-or-no or a number.
pub fn because<T>(typed: &Typed<'_, T>) -> Provenance {
    typed.at.map_or(Provenance::BuiltIn, |at| Provenance::Given(given(at)))
}

/// `text` as the value of an attribute.
pub fn as_attribute(text: Text<'_>) -> Sourced {
    Sourced { value: attribute_meaning(text.value), from: Provenance::Given(given(text.at)) }
}

/// `text` as the text of an element that OpenNebula writes bare.
pub fn as_bare(text: Text<'_>) -> Sourced {
    Sourced { value: bare_meaning(text.value).into_owned(), from: Provenance::Given(given(text.at)) }
}

/// `text` as the text of an element that OpenNebula writes as CDATA.
pub fn as_cdata(text: Text<'_>) -> Sourced {
    Sourced { value: line_ends(text.value).into_owned(), from: Provenance::Given(given(text.at)) }
}

/// What `value` means between two apostrophes.
pub fn attribute_meaning(value: &str) -> String {
    let value = line_ends(value);
    if value.contains(['\n', '\t']) {
        return entities(&value.replace(['\n', '\t'], " ")).into_owned();
    }
    entities(&value).into_owned()
}

/// What `value` means as bare text.
pub fn bare_meaning(value: &str) -> Cow<'_, str> {
    match line_ends(value) {
        Cow::Borrowed(value) => entities(value),
        Cow::Owned(value) => Cow::Owned(entities(&value).into_owned()),
    }
}

/// What readers of XML make of line ends: CR LF and CR are LF.
pub fn line_ends(value: &str) -> Cow<'_, str> {
    if value.contains('\r') {
        return Cow::Owned(value.replace("\r\n", "\n").replace('\r', "\n"));
    }
    Cow::Borrowed(value)
}

/// Well-formed references become what they mean; any other `&` stays.
fn entities(value: &str) -> Cow<'_, str> {
    if !value.contains('&') {
        return Cow::Borrowed(value);
    }
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match reference(rest) {
            Some((meaning, length)) => {
                out.push(meaning);
                rest = &rest[length..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The character that the reference at the start of `text` means, and its length in bytes.
fn reference(text: &str) -> Option<(char, usize)> {
    // The longest well-formed one that is worth a look; leading zeros beyond it are not.
    let end = text.bytes().take(16).position(|byte| byte == b';')?;
    let name = &text[1..end];
    let meaning = match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let digits = name.strip_prefix('#')?;
            let code = match digits.strip_prefix('x') {
                Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u32::from_str_radix(hex, 16),
                None if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse(),
                _ => return None,
            };
            char::from_u32(code.ok()?).filter(|c| is_xml(*c))?
        }
    };
    Some((meaning, end + 1))
}

/// Whether XML 1.0 can hold `c` at all.
pub fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_references_keep_their_meaning_and_nothing_else_does() {
        for (written, meant) in [
            ("a&lt;b&gt;&amp;&quot;&apos;", "a<b>&\"'"),
            ("&#65;&#x42;&#x20AC;", "AB\u{20ac}"),
            ("a & b", "a & b"),
            ("&", "&"),
            ("&;", "&;"),
            ("&lt", "&lt"),
            ("&nbsp;", "&nbsp;"),
            ("&#0;&#xD800;&#x1;&#+65;&#x;&#;", "&#0;&#xD800;&#x1;&#+65;&#x;&#;"),
            ("&amp;lt;", "&lt;"),
            ("&é;&lt;", "&é;<"),
        ] {
            assert_eq!(attribute_meaning(written), meant, "{written}");
            assert_eq!(bare_meaning(written), meant, "{written}");
        }
    }

    #[test]
    fn line_ends_are_those_that_a_reader_would_see() {
        assert_eq!(attribute_meaning("a\r\nb\tc\rd"), "a b c d");
        assert_eq!(bare_meaning("a\r\nb\tc\rd"), "a\nb\tc\nd");
        assert_eq!(attribute_meaning("a&#10;b"), "a\nb");
    }
}
