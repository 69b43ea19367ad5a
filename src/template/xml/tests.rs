//! Tests of the XML tree.

use super::*;

fn parse(text: &str) -> Document {
    Document::parse(text).expect("a good document")
}

#[test]
fn text_cdata_and_references_are_joined() {
    let doc = parse("<A>a&lt;<![CDATA[<b>]]>&#65;&amp;</A>");
    assert_eq!(doc.root().text(), "a<<b>A&");
    let kinds = |text: &str| parse(text).root().nodes().len();
    assert_eq!(kinds("<A>a&lt;b&#65;</A>"), 1);
    assert_eq!(kinds("<A><![CDATA[a]]><![CDATA[b]]></A>"), 1);
    assert_eq!(kinds("<A><![CDATA[a]]>b</A>"), 2);
    assert_eq!(kinds("<A>a<!-- --></A>"), 2);
}

#[test]
fn an_empty_cdata_is_text_and_an_empty_element_is_not() {
    let doc = parse("<V><A></A><B><![CDATA[]]></B><C/></V>");
    let has = |name: &str| doc.root().child(name).expect("there").has_text();
    assert_eq!((has("A"), has("B"), has("C")), (false, true, false));
    assert_eq!(doc.root().text_at("C").as_deref(), Some(""));
    assert_eq!(doc.root().text_at("D"), None);
}

#[test]
fn an_element_can_be_handed_on_as_it_came() {
    let source = "<X><HOST>h</HOST><VM ><ID>7</ID><T><![CDATA[a]]></T></VM></X>";
    let doc = parse(source);
    let vm = doc.root().child("VM").expect("VM");
    assert_eq!(doc.source_of(vm), "<VM ><ID>7</ID><T><![CDATA[a]]></T></VM>");
    assert_eq!(doc.source_of(doc.root()), source);
}

#[test]
fn paths_find_the_first_and_children_find_all() {
    let doc = parse("<V><D><I>1</I></D><N/><D><I>2</I></D></V>");
    assert_eq!(doc.root().text_at("D/I").as_deref(), Some("1"));
    let all: Vec<_> = doc.root().children("D").filter_map(|d| d.text_at("I")).collect();
    assert_eq!(all, ["1", "2"]);
}

#[test]
fn faults_name_their_place() {
    for (text, line, part) in [
        ("", 1, "no element"),
        ("<A>", 1, "ends inside"),
        ("<A>\n<B></A>", 2, ""),
        ("<A/>\n<B/>", 2, "second element"),
        ("<A/>x", 1, "outside"),
        ("<A>\n\n&x;</A>", 3, "&x;"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><A/>", 1, "type definition"),
        ("<A b=1/>", 1, ""),
        ("\n<A b='1' b='2'/>", 2, ""),
    ] {
        let error = Document::parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }
}

#[test]
fn limits_hold() {
    let deep = format!("{}{}", "<a>".repeat(200), "</a>".repeat(200));
    assert!(Document::parse(deep).expect_err("deep").message.contains("nested"));
    let limits = Limits { bytes: 10, ..Limits::default() };
    assert!(Document::parse_within("<a>12345678</a>", limits).is_err());
    let limits = Limits { elements: 2, ..Limits::default() };
    assert!(Document::parse_within("<a><b/><c/></a>", limits).is_err());
}
