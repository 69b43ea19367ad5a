//! Markup of templates: `RAW`, `HYPERV_OPTIONS`, `HYPERV_TIMERS`, `SPICE_OPTIONS`.
//!
//! It is read into the tree and written from it, so whatever it is, the domain is well-formed. Comments are
//! not kept.

use super::provenance::Provenance;
use super::refusal::Refusal;
use super::tree::{Attribute, Element, Node};
use super::value::given;
use crate::template::lookup::Text;
use crate::template::xml::{self, Document};

/// What stands in front of the markup while it is read; on a line of its own, so that lines are off by one.
const OPEN: &str = "<markup>\n";

/// The nodes of `text`; white space between elements is dropped.
///
/// # Errors
/// [`Refusal::Markup`] with the place in the value when it is not well-formed.
pub fn nodes(text: Text<'_>) -> Result<Vec<Node>, Refusal> {
    if text.value.trim().is_empty() {
        return Ok(Vec::new());
    }
    let document =
        Document::parse(format!("{OPEN}{}\n</markup>", text.value)).map_err(|error| Refusal::Markup {
            given: given(text.at),
            line: error.line.saturating_sub(1).max(1),
            column: error.column,
            message: error.message,
        })?;
    let from = Provenance::Given(given(text.at));
    Ok(children(document.root(), &from))
}

fn children(element: &xml::Element, from: &Provenance) -> Vec<Node> {
    let texts = element.nodes().iter().any(|node| match node {
        xml::Node::Text(text) => !text.trim().is_empty(),
        xml::Node::CData(_) => true,
        _ => false,
    });
    let any = element.elements().next().is_some();
    let mut nodes = Vec::new();
    for node in element.nodes() {
        match node {
            xml::Node::Element(child) => nodes.push(Node::Element(convert(child, from))),
            xml::Node::Text(text) | xml::Node::CData(text) if texts || !any => {
                nodes.push(Node::Text { value: text.clone(), from: from.clone() });
            }
            _ => {}
        }
    }
    nodes
}

fn convert(element: &xml::Element, from: &Provenance) -> Element {
    let attribute = |(name, value): &(String, String)| Attribute {
        name: name.clone().into(),
        value: value.clone(),
        from: from.clone(),
    };
    Element {
        name: element.name().to_owned().into(),
        attributes: element.attributes().iter().map(attribute).collect(),
        children: children(element, from),
        from: from.clone(),
    }
}
