//! Writes a tree as XML.
//!
//! Attributes stand in single quotes and in the order of the tree, because OpenNebula's own deploy script looks
//! for the text `source file='PATH'`.

use super::tree::{Element, Node};

/// Writes `element` and a newline behind it. An element that holds text keeps exactly that text; others have
/// each child on a line of its own.
pub fn document(element: &Element) -> String {
    let mut out = String::with_capacity(8192);
    write(element, 0, &mut out);
    out
}

fn write(element: &Element, depth: usize, out: &mut String) {
    indent(depth, out);
    inline(element, depth, out);
    out.push('\n');
}

fn inline(element: &Element, depth: usize, out: &mut String) {
    out.push('<');
    out.push_str(&element.name);
    for attribute in &element.attributes {
        out.push(' ');
        out.push_str(&attribute.name);
        out.push_str("='");
        escape_attribute(&attribute.value, out);
        out.push('\'');
    }
    if element.children.is_empty() {
        out.push_str("/>");
        return;
    }
    out.push('>');
    if element.children.iter().any(|node| matches!(node, Node::Text { .. })) {
        for child in &element.children {
            match child {
                Node::Element(child) => inline(child, depth, out),
                Node::Text { value, .. } => escape_text(value, out),
            }
        }
    } else {
        out.push('\n');
        for child in element.elements() {
            write(child, depth + 1, out);
        }
        indent(depth, out);
    }
    out.push_str("</");
    out.push_str(&element.name);
    out.push('>');
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn escape_attribute(value: &str, out: &mut String) {
    escape(value, out, |byte| match byte {
        b'&' => Some("&amp;"),
        b'<' => Some("&lt;"),
        b'>' => Some("&gt;"),
        b'\'' => Some("&apos;"),
        b'\t' => Some("&#9;"),
        b'\n' => Some("&#10;"),
        b'\r' => Some("&#13;"),
        _ => None,
    });
}

fn escape_text(value: &str, out: &mut String) {
    escape(value, out, |byte| match byte {
        b'&' => Some("&amp;"),
        b'<' => Some("&lt;"),
        b'>' => Some("&gt;"),
        b'\r' => Some("&#13;"),
        _ => None,
    });
}

fn escape(value: &str, out: &mut String, with: impl Fn(u8) -> Option<&'static str>) {
    let mut from = 0;
    for (at, byte) in value.bytes().enumerate() {
        if let Some(escaped) = with(byte) {
            out.push_str(&value[from..at]);
            out.push_str(escaped);
            from = at + 1;
        }
    }
    out.push_str(&value[from..]);
}

#[cfg(test)]
mod tests {
    use super::super::tree::Element;
    use super::*;

    #[test]
    fn the_bytes_are_those_that_the_deploy_script_looks_for() {
        let disk = Element::new("disk")
            .attr("type", "file")
            .child(Element::new("source").attr("file", "/var/lib/one//datastores/100/7/disk.0"));
        assert_eq!(
            document(&disk),
            "<disk type='file'>\n  <source file='/var/lib/one//datastores/100/7/disk.0'/>\n</disk>\n"
        );
    }

    #[test]
    fn values_are_escaped_and_text_keeps_its_white_space() {
        let element = Element::new("a").attr("b", "'\"<&>\n\t").text(" x\n<y>&\r ");
        assert_eq!(
            document(&element),
            "<a b='&apos;\"&lt;&amp;&gt;&#10;&#9;'> x\n&lt;y&gt;&amp;&#13; </a>\n"
        );
    }

    #[test]
    fn an_element_in_the_middle_of_text_adds_no_white_space() {
        let element = Element::new("a").text("x").child(Element::new("b").child(Element::new("c")));
        assert_eq!(document(&element), "<a>x<b>\n  <c/>\n</b></a>\n");
    }
}
