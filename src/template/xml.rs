//! A small owned tree of an XML document, as the action documents of `oned` and the XML of libvirt need it.
//!
//! What it keeps that readers of events lose: the byte range of every element in the source (so that a part
//! can be handed on exactly as it came), and whether an element held character data at all (`<A></A>` and
//! `<A><![CDATA[]]></A>` differ for OpenNebula). What it refuses: document type definitions, entities other
//! than the five of XML and character references, and documents beyond [`Limits`].

use std::fmt;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Bounds on what [`Document::parse`] accepts. The defaults hold any document that `oned` writes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest source, in bytes.
    pub bytes: usize,
    /// Deepest nesting of elements.
    pub depth: usize,
    /// Most elements in one document.
    pub elements: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 128 << 20, depth: 128, elements: 4_000_000 }
    }
}

/// Why a text is no document, with the place (1-based line and column, the column in characters).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct XmlError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, for people.
    pub message: String,
}

/// A parsed document together with its source.
#[derive(Debug, Clone)]
pub struct Document {
    source: String,
    root: Element,
}

/// One element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Node>,
    range: Range<usize>,
}

/// What stands inside an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A child element.
    Element(Element),
    /// Text, references resolved; joined while nothing else stands between. Never empty.
    Text(String),
    /// CDATA sections, joined while nothing else stands between; empty for `<![CDATA[]]>`.
    CData(String),
    /// A comment or a processing instruction. What it says is not kept; that it is there counts, because
    /// OpenNebula tells `<A>x</A>` from `<A>x<!-- y --></A>`.
    Aside,
}

impl Document {
    /// Parses `source` within the default [`Limits`].
    ///
    /// # Errors
    /// [`XmlError`] with the place when the text is not one well-formed document, uses a DTD or an unknown
    /// entity, or exceeds a limit.
    pub fn parse(source: impl Into<String>) -> Result<Self, XmlError> {
        Self::parse_within(source, Limits::default())
    }

    /// Parses `source` within `limits`; errors as [`Document::parse`].
    ///
    /// # Errors
    /// See [`Document::parse`].
    pub fn parse_within(source: impl Into<String>, limits: Limits) -> Result<Self, XmlError> {
        let source = source.into();
        let root = parse_root(&source, limits).map_err(|(at, message)| locate(&source, at, message))?;
        Ok(Self { source, root })
    }

    /// The outermost element.
    #[must_use]
    pub fn root(&self) -> &Element {
        &self.root
    }

    /// The text that was parsed.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// `element` exactly as it stands in the source. It must come from this document.
    #[must_use]
    pub fn source_of(&self, element: &Element) -> &str {
        self.source.get(element.range.clone()).unwrap_or("")
    }

    /// 1-based line and column (in characters) of the start of `element`.
    #[must_use]
    pub fn position_of(&self, element: &Element) -> (usize, usize) {
        position(&self.source, element.range.start)
    }
}

impl Element {
    /// Name as written, prefix included.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Attributes in order, unescaped.
    #[must_use]
    pub fn attributes(&self) -> &[(String, String)] {
        &self.attributes
    }

    /// Value of the attribute `name`.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// All that stands inside, in order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.children
    }

    /// The child elements, in order.
    pub fn elements(&self) -> impl Iterator<Item = &Element> {
        self.children.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            _ => None,
        })
    }

    /// The child elements called `name`, in order.
    pub fn children<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.elements().filter(move |element| element.name == name)
    }

    /// The first child element called `name`.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.elements().find(|element| element.name == name)
    }

    /// The first element at `path`, names separated by `/`, relative to this one: `TEMPLATE/CONTEXT/TARGET`.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&Element> {
        path.split('/').try_fold(self, |element, name| element.child(name))
    }

    /// Text of the first element at `path`; `None` when there is none. Empty text is `Some("")`.
    #[must_use]
    pub fn text_at(&self, path: &str) -> Option<String> {
        self.at(path).map(Element::text)
    }

    /// Text of the first element at `path` when it is there and not empty.
    #[must_use]
    pub fn filled(&self, path: &str) -> Option<String> {
        self.text_at(path).filter(|text| !text.is_empty())
    }

    /// The character data directly inside, joined. Not trimmed.
    #[must_use]
    pub fn text(&self) -> String {
        let mut all = String::new();
        for node in &self.children {
            if let Node::Text(text) | Node::CData(text) = node {
                all.push_str(text);
            }
        }
        all
    }

    /// Whether there is character data at all, be it an empty CDATA section.
    #[must_use]
    pub fn has_text(&self) -> bool {
        self.children.iter().any(|node| matches!(node, Node::Text(_) | Node::CData(_)))
    }

    /// Byte range in the source, from `<` of the start tag to behind `>` of the end tag.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// A fault at a byte offset.
type Fault = (usize, String);

fn parse_root(source: &str, limits: Limits) -> Result<Element, Fault> {
    if source.len() > limits.bytes {
        let message =
            format!("the document has {} bytes; at most {} are accepted", source.len(), limits.bytes);
        return Err((0, message));
    }
    let mut builder = Builder { limits, open: Vec::new(), root: None, elements: 0 };
    let mut reader = Reader::from_str(source);
    reader.config_mut().check_end_names = true;
    loop {
        let before = offset(reader.buffer_position());
        let event =
            reader.read_event().map_err(|error| (offset(reader.error_position()), error.to_string()))?;
        let after = offset(reader.buffer_position());
        match event {
            Event::Start(start) => builder.start(&start, before)?,
            Event::Empty(start) => {
                builder.start(&start, before)?;
                builder.end(after);
            }
            Event::End(_) => builder.end(after),
            Event::Text(text) => builder.text(&text.xml10_content(), before)?,
            Event::CData(data) => builder.cdata(&data.xml10_content(), before)?,
            Event::GeneralRef(reference) => {
                let text = resolve(&reference).map_err(|message| (before, message))?;
                builder.text(&text, before)?;
            }
            Event::DocType(_) => {
                return Err((before, "document type definitions are not accepted".to_owned()));
            }
            Event::Comment(_) | Event::PI(_) => builder.aside(),
            Event::Decl(_) => {}
            Event::Eof => return builder.finish(source.len()),
        }
    }
}

struct Builder {
    limits: Limits,
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
}

impl Builder {
    fn start(&mut self, start: &BytesStart<'_>, at: usize) -> Result<(), Fault> {
        if self.root.is_some() {
            return Err((at, "a second element stands behind the outermost one".to_owned()));
        }
        if self.open.len() >= self.limits.depth {
            return Err((at, format!("elements are nested deeper than {}", self.limits.depth)));
        }
        self.elements += 1;
        if self.elements > self.limits.elements {
            return Err((at, format!("the document has more than {} elements", self.limits.elements)));
        }
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|error| (at, error.to_string()))?;
            // What a reader of XML makes of white space in an attribute; references are not touched by it.
            let written = attribute.value.replace("\r\n", " ").replace(['\t', '\n', '\r'], " ");
            let value =
                quick_xml::escape::unescape(&written).map_err(|error| (at, error.to_string()))?.into_owned();
            attributes.push((checked_name(attribute.key.as_ref(), at)?, value));
        }
        let name = checked_name(start.name().as_ref(), at)?;
        self.open.push(Element { name, attributes, children: Vec::new(), range: at..at });
        Ok(())
    }

    fn end(&mut self, at: usize) {
        let Some(mut element) = self.open.pop() else { return };
        element.range.end = at;
        match self.open.last_mut() {
            Some(parent) => parent.children.push(Node::Element(element)),
            None => self.root = Some(element),
        }
    }

    fn text(&mut self, text: &str, at: usize) -> Result<(), Fault> {
        let Some(element) = self.open.last_mut() else {
            if text.trim_start_matches('\u{feff}').trim().is_empty() {
                return Ok(());
            }
            return Err((at, "text stands outside the outermost element".to_owned()));
        };
        match element.children.last_mut() {
            Some(Node::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => element.children.push(Node::Text(text.to_owned())),
        }
        Ok(())
    }

    fn cdata(&mut self, text: &str, at: usize) -> Result<(), Fault> {
        let Some(element) = self.open.last_mut() else {
            return Err((at, "text stands outside the outermost element".to_owned()));
        };
        match element.children.last_mut() {
            Some(Node::CData(last)) => last.push_str(text),
            _ => element.children.push(Node::CData(text.to_owned())),
        }
        Ok(())
    }

    fn aside(&mut self) {
        if let Some(element) = self.open.last_mut() {
            element.children.push(Node::Aside);
        }
    }

    fn finish(mut self, at: usize) -> Result<Element, Fault> {
        if let Some(element) = self.open.pop() {
            return Err((at, format!("the document ends inside the element {}", element.name)));
        }
        self.root.ok_or_else(|| (at, "the document holds no element".to_owned()))
    }
}

/// `name` when it is a name of XML (in its plain form: letters, digits and `. - _ :`, all beyond ASCII).
fn checked_name(name: &str, at: usize) -> Result<String, Fault> {
    let start = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':' || !c.is_ascii();
    let inside = |c: char| start(c) || c.is_ascii_digit() || c == '-' || c == '.';
    if name.starts_with(start) && name.chars().all(inside) && !name.chars().any(is_no_name) {
        return Ok(name.to_owned());
    }
    let shown: String = name.chars().take(64).collect();
    Err((at, format!("{shown:?} is no name for an element or attribute")))
}

/// Characters beyond ASCII that XML keeps out of names; the list of XML 1.0, fifth edition.
fn is_no_name(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{b6}' | '\u{b8}'..='\u{bf}' | '\u{d7}' | '\u{f7}' | '\u{37e}'
        | '\u{2000}'..='\u{200b}' | '\u{200e}'..='\u{203e}' | '\u{2041}'..='\u{206f}'
        | '\u{2190}'..='\u{2bff}' | '\u{2ff0}'..='\u{3000}' | '\u{e000}'..='\u{f8ff}'
        | '\u{fdd0}'..='\u{fdef}' | '\u{fffe}'..='\u{ffff}' | '\u{f0000}'..)
}

fn resolve(reference: &quick_xml::events::BytesRef<'_>) -> Result<String, String> {
    if let Some(character) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(character.to_string());
    }
    let name = reference.xml10_content();
    quick_xml::escape::resolve_xml_entity(&name)
        .map(str::to_owned)
        .ok_or_else(|| format!("the entity &{name}; is not known"))
}

fn offset(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

fn position(source: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    let before = &source[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

fn locate(source: &str, at: usize, message: String) -> XmlError {
    let (line, column) = position(source, at);
    XmlError { line, column, message }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

#[cfg(test)]
mod tests;
