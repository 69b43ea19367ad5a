//! XML with one element a line, for reading.

use std::fmt::Write;

use crate::template::xml::{Element, Node};

/// `element` with each child on a line of its own, indented by two blanks a level below `indent`.
pub fn xml(element: &Element, indent: usize) -> String {
    let mut out = String::new();
    write_element(&mut out, element, indent);
    out
}

fn write_element(out: &mut String, element: &Element, level: usize) {
    let pad = " ".repeat(level);
    out.push_str(&pad);
    out.push('<');
    out.push_str(element.name());
    for (name, value) in element.attributes() {
        // Writing to a String can't fail.
        let _ = write!(out, " {name}='{}'", escaped(value).replace('\'', "&apos;"));
    }
    if element.nodes().is_empty() {
        out.push_str("/>\n");
        return;
    }
    out.push('>');
    if element.elements().next().is_none() {
        out.push_str(&escaped(&element.text()));
    } else {
        out.push('\n');
        for node in element.nodes() {
            match node {
                Node::Element(child) => write_element(out, child, level + 2),
                Node::Aside => {}
                Node::Text(text) | Node::CData(text) if text.trim().is_empty() => {}
                Node::Text(text) | Node::CData(text) => {
                    let _ = writeln!(out, "{pad}  {}", escaped(text.trim()));
                }
            }
        }
        out.push_str(&pad);
    }
    let _ = writeln!(out, "</{}>", element.name());
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::xml;
    use crate::template::xml::Document;

    #[test]
    fn elements_stand_on_lines_of_their_own_and_mean_the_same() {
        let text = "<A x='1&apos;2'><B><![CDATA[a<&b]]></B><C/>text<D><E>e</E></D></A>";
        let document = Document::parse(text).expect("good");
        let pretty = xml(document.root(), 0);
        let wanted =
            "<A x='1&apos;2'>\n  <B>a&lt;&amp;b</B>\n  <C/>\n  text\n  <D>\n    <E>e</E>\n  </D>\n</A>\n";
        assert_eq!(pretty, wanted);
        let again = Document::parse(pretty).expect("still XML");
        assert_eq!(again.root().text_at("B").as_deref(), Some("a<&b"));
        assert_eq!(again.root().attribute("x"), Some("1'2"));
    }
}
