//! Equal as the corpus means it: names, attributes as a set, text, order of elements; white space between
//! elements dropped, CDATA is text; the time of the deployment and a made-up password are not compared.

use kvmad::template::xml::{Document, Element, Node};

/// One element in a form that can be compared.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    pub path: String,
    pub attributes: Vec<(String, String)>,
    pub text: String,
}

/// All elements of `xml` in document order.
pub fn shapes(xml: &str) -> Vec<Shape> {
    let document = Document::parse(xml).unwrap_or_else(|error| panic!("{error}\n{xml}"));
    let mut shapes = Vec::new();
    add(document.root(), "", &mut shapes);
    shapes
}

/// Adds `element` and those inside it; paths begin with `parent`.
pub fn add(element: &Element, parent: &str, shapes: &mut Vec<Shape>) {
    let path = format!("{parent}/{}", element.name());
    let mut attributes: Vec<(String, String)> = element
        .attributes()
        .iter()
        .map(|(name, value)| {
            let made_up = name == "passwd"
                && matches!(value.len(), 8 | 59)
                && value.bytes().all(|b| b.is_ascii_hexdigit());
            let value = if made_up { format!("{} hexadecimal digits", value.len()) } else { value.clone() };
            (name.clone(), value)
        })
        .collect();
    attributes.sort();
    let has_elements = element.elements().next().is_some();
    let text = element.nodes().iter().filter_map(|node| match node {
        Node::Text(text) if has_elements && text.trim().is_empty() => None,
        Node::Text(text) | Node::CData(text) => Some(text.as_str()),
        _ => None,
    });
    let mut text: String = text.collect();
    if element.name() == "one:deployment_time"
        || (text.trim().is_empty() && !has_elements && text.contains('\n'))
    {
        text.clear();
    }
    shapes.push(Shape { path: path.clone(), attributes, text });
    for child in element.elements() {
        add(child, &path, shapes);
    }
}

/// The first difference, for people.
pub fn difference(expected: &str, made: &str) -> Option<String> {
    let (expected, made) = (shapes(expected), shapes(made));
    let at = expected.iter().zip(&made).position(|(a, b)| a != b);
    match at {
        Some(at) => Some(format!("expected {:?}\n     got {:?}", expected[at], made[at])),
        None if expected.len() != made.len() => {
            let shorter = expected.len().min(made.len());
            Some(format!("expected {:?}\n     got {:?}", expected.get(shorter), made.get(shorter)))
        }
        None => None,
    }
}

#[test]
fn what_differs_is_found_and_what_does_not_count_is_not() {
    let same = [
        ("<a x='1' y='2'/>", "<a y=\"2\" x='1'></a>"),
        ("<a>\n <b>t</b>\n</a>", "<a><b><![CDATA[t]]></b></a>"),
        ("<a passwd='01234567'/>", "<a passwd='89abcdef'/>"),
    ];
    for (one, other) in same {
        assert_eq!(difference(one, other), None, "{one} {other}");
    }
    let different = [
        ("<a x='1'/>", "<a x='2'/>"),
        ("<a x='1'/>", "<a/>"),
        ("<a><b/><c/></a>", "<a><c/><b/></a>"),
        ("<a><b/></a>", "<a/>"),
        ("<a>t</a>", "<a>t </a>"),
        ("<a passwd='01234567'/>", "<a passwd='0123456'/>"),
        ("<a><b/><c/></a>", "<a><b><c/></b></a>"),
    ];
    for (one, other) in different {
        assert!(difference(one, other).is_some(), "{one} {other}");
    }
}
