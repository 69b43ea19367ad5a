//! Changes to a document that leave every other byte of it as it came.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::escape::escape;
use quick_xml::events::Event;

use crate::template::xml::{Document, Element};

/// Changes collected against one document. At most one change an element.
#[derive(Debug)]
pub struct Edits<'a> {
    document: &'a Document,
    splices: Vec<(Range<usize>, String)>,
}

impl<'a> Edits<'a> {
    /// No changes yet.
    #[must_use]
    pub fn new(document: &'a Document) -> Self {
        Self { document, splices: Vec::new() }
    }

    /// Gives `element`, which must come from the document, the attributes `attributes` instead of its own.
    pub fn set_attributes(&mut self, element: &Element, attributes: &[(String, String)]) {
        let (tag, empty) = self.start_tag(element);
        let mut text = format!("<{}", element.name());
        for (name, value) in attributes {
            text.push_str(&format!(" {name}='{}'", attribute_text(value)));
        }
        text.push_str(if empty { "/>" } else { ">" });
        self.splices.push((tag, text));
    }

    /// Gives `element`, which must come from the document, the text `text` instead of all that stands inside.
    pub fn set_text(&mut self, element: &Element, text: &str) {
        let (tag, empty) = self.start_tag(element);
        let name = element.name();
        if empty {
            let open = self.opened(&tag);
            let text = format!("{open}>{}</{name}>", escape(text));
            self.splices.push((tag, text));
        } else {
            let end = self.document.source_of(element).rfind("</").unwrap_or_default();
            self.splices.push((tag.end..element.range().start + end, escape(text).into_owned()));
        }
    }

    /// Puts `<name>text</name>` in front of all that stands inside `parent`.
    pub fn add_first(&mut self, parent: &Element, name: &str, text: &str) {
        let (tag, empty) = self.start_tag(parent);
        if !empty {
            self.splices.push((tag.end..tag.end, format!("<{name}>{}</{name}>", escape(text))));
        }
    }

    /// Puts `markup`, which is XML, behind all that stands inside `parent`.
    pub fn add_last(&mut self, parent: &Element, markup: &str) {
        let (tag, empty) = self.start_tag(parent);
        if empty {
            let open = self.opened(&tag);
            let text = format!("{open}>{markup}</{}>", parent.name());
            self.splices.push((tag, text));
        } else {
            let end = self.document.source_of(parent).rfind("</").unwrap_or_default();
            let at = parent.range().start + end;
            self.splices.push((at..at, markup.to_owned()));
        }
    }

    /// Takes `element` out.
    pub fn remove(&mut self, element: &Element) {
        self.splices.push((element.range(), String::new()));
    }

    /// The document with the changes. A change inside of another (a removed or filled element) is dropped.
    #[must_use]
    pub fn apply(mut self) -> String {
        self.splices.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let source = self.document.source();
        let mut out = String::with_capacity(source.len() + 64);
        let mut at = 0;
        for (range, text) in self.splices {
            if range.start < at {
                continue;
            }
            out.push_str(source.get(at..range.start).unwrap_or_default());
            out.push_str(&text);
            at = range.end;
        }
        out.push_str(source.get(at..).unwrap_or_default());
        out
    }

    /// The empty element at `tag` without its `/>`.
    fn opened(&self, tag: &Range<usize>) -> &str {
        let text = self.document.source().get(tag.clone()).unwrap_or_default();
        text.trim_end_matches('>').trim_end_matches('/')
    }

    /// Where the start tag of `element` stands, and whether it is an empty element (`<a/>`).
    fn start_tag(&self, element: &Element) -> (Range<usize>, bool) {
        let source = self.document.source_of(element);
        let mut reader = Reader::from_str(source);
        let event = reader.read_event();
        let length = usize::try_from(reader.buffer_position()).unwrap_or(source.len());
        let start = element.range().start;
        (start..start + length, matches!(event, Ok(Event::Empty(_))))
    }
}

/// `value` for between two single quotes. Line ends are written as references: a parser makes blanks of raw ones.
pub fn attribute_text(value: &str) -> String {
    escape(value).replace('\n', "&#10;").replace('\r', "&#13;").replace('\t', "&#9;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Document {
        Document::parse(text).expect("a document")
    }

    #[test]
    fn only_the_changed_attribute_changes() {
        let document = parse("<a  b=\"1\" ><!-- x --><c d='1'   e=\"&lt;\"/>\n</a>");
        let mut edits = Edits::new(&document);
        let c = document.root().child("c").expect("c");
        edits.set_attributes(c, &[("d".into(), "it's <\n>".into()), ("e".into(), "<".into())]);
        let out = edits.apply();
        assert_eq!(out, "<a  b=\"1\" ><!-- x --><c d='it&apos;s &lt;&#10;&gt;' e='&lt;'/>\n</a>");
        assert_eq!(parse(&out).root().child("c").expect("c").attribute("d"), Some("it's <\n>"));
    }

    #[test]
    fn text_is_replaced_whatever_it_was() {
        for before in
            ["<a><b x='&gt;'>old</b></a>", "<a><b x='&gt;'><![CDATA[</b>]]></b></a>", "<a><b x='&gt;'/></a>"]
        {
            let document = parse(before);
            let mut edits = Edits::new(&document);
            edits.set_text(document.root().child("b").expect("b"), "a & b");
            assert_eq!(edits.apply(), "<a><b x='&gt;'>a &amp; b</b></a>", "{before}");
        }
    }

    #[test]
    fn elements_come_and_go() {
        let document = parse("<a><b/>t<c>x</c></a>");
        let mut edits = Edits::new(&document);
        edits.remove(document.root().child("c").expect("c"));
        edits.add_first(document.root(), "n", "<");
        assert_eq!(edits.apply(), "<a><n>&lt;</n><b/>t</a>");
    }
}
