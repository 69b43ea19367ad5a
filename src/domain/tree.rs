//! The domain as a tree in which every element, attribute and text knows what gave it.

use std::borrow::Cow;

use super::provenance::Provenance;
use super::value::Sourced;

/// A name that the generator knows, or one that came in with markup of a template.
pub type Name = Cow<'static, str>;

/// An element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its name, prefix included.
    pub name: Name,
    /// Its attributes, in the order in which they are written.
    pub attributes: Vec<Attribute>,
    /// What stands inside.
    pub children: Vec<Node>,
    /// What made it be there.
    pub from: Provenance,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Its name, prefix included.
    pub name: Name,
    /// What it means, not escaped.
    pub value: String,
    /// What gave the value.
    pub from: Provenance,
}

/// What stands inside an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A child element.
    Element(Element),
    /// Character data.
    Text {
        /// What it means, not escaped.
        value: String,
        /// What gave it.
        from: Provenance,
    },
}

/// One value or element of the domain, as a table of them shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// Where: `/domain/devices[1]/disk[2]/driver/@cache`. Numbers (from 1) stand where siblings share a name;
    /// the text of an element has the path of the element.
    pub path: String,
    /// The value of an attribute or a text; `None` for an element without text.
    pub value: Option<&'a str>,
    /// What gave it.
    pub from: &'a Provenance,
}

impl Element {
    /// An element that is the same in every domain.
    #[must_use]
    pub fn new(name: impl Into<Name>) -> Self {
        Self { name: name.into(), attributes: Vec::new(), children: Vec::new(), from: Provenance::BuiltIn }
    }

    /// With the attribute `name`.
    #[must_use]
    pub fn attr(mut self, name: impl Into<Name>, value: impl Into<Sourced>) -> Self {
        self.set(name, value);
        self
    }

    /// With the attribute `name`, if there is a value for it.
    #[must_use]
    pub fn attr_if(mut self, name: &'static str, value: Option<Sourced>) -> Self {
        if let Some(value) = value {
            self.set(name, value);
        }
        self
    }

    /// With `child` behind what is inside.
    #[must_use]
    pub fn child(mut self, child: Self) -> Self {
        self.push(child);
        self
    }

    /// With `child` behind what is inside, if there is one.
    #[must_use]
    pub fn child_if(mut self, child: Option<Self>) -> Self {
        self.children.extend(child.map(Node::Element));
        self
    }

    /// With `value` as text; an empty one adds nothing.
    #[must_use]
    pub fn text(mut self, value: impl Into<Sourced>) -> Self {
        let Sourced { value, from } = value.into();
        self.from = from.clone();
        if !value.is_empty() {
            self.children.push(Node::Text { value, from });
        }
        self
    }

    /// There because of `from`.
    #[must_use]
    pub fn because(mut self, from: Provenance) -> Self {
        self.from = from;
        self
    }

    /// Adds the attribute `name`.
    pub fn set(&mut self, name: impl Into<Name>, value: impl Into<Sourced>) {
        let Sourced { value, from } = value.into();
        self.attributes.push(Attribute { name: name.into(), value, from });
    }

    /// Adds `child`.
    pub fn push(&mut self, child: Self) {
        self.children.push(Node::Element(child));
    }

    /// The child elements, in order.
    pub fn elements(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text { .. } => None,
        })
    }

    /// Value of the attribute `name`.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|attribute| attribute.name == name).map(|a| a.value.as_str())
    }

    /// The character data directly inside, joined.
    #[must_use]
    pub fn content(&self) -> String {
        let texts = self.children.iter().filter_map(|node| match node {
            Node::Text { value, .. } => Some(value.as_str()),
            Node::Element(_) => None,
        });
        texts.collect()
    }

    /// Every element, attribute and text, in document order, with its path and what gave it.
    #[must_use]
    pub fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        self.add_lines(format!("/{}", self.name), &mut lines);
        lines
    }

    fn add_lines<'a>(&'a self, path: String, lines: &mut Vec<Line<'a>>) {
        let texts = self.children.iter().filter_map(|node| match node {
            Node::Text { value, from } => Some((value.as_str(), from)),
            Node::Element(_) => None,
        });
        let before = lines.len();
        for (value, from) in texts {
            lines.push(Line { path: path.clone(), value: Some(value), from });
        }
        if lines.len() == before {
            lines.push(Line { path: path.clone(), value: None, from: &self.from });
        }
        for attribute in &self.attributes {
            let path = format!("{path}/@{}", attribute.name);
            lines.push(Line { path, value: Some(&attribute.value), from: &attribute.from });
        }
        for (at, child) in self.elements().enumerate() {
            let twins = self.elements().filter(|other| other.name == child.name).count();
            let path = if twins > 1 {
                let number = self.elements().take(at + 1).filter(|other| other.name == child.name).count();
                format!("{path}/{}[{number}]", child.name)
            } else {
                format!("{path}/{}", child.name)
            };
            child.add_lines(path, lines);
        }
    }
}
