//! Bad input: a clear error with its place, bounded memory, no panic.

use kvmad::template::document::VmDocument;
use kvmad::template::xml::Document;

use crate::support::{Case, corpus};

fn action() -> String {
    std::fs::read_to_string(corpus().join("oned-7.4/02_basic_vm.alt/action.xml")).expect("a case")
}

#[test]
fn a_document_that_ends_anywhere_is_refused_with_a_place() {
    let action = action();
    let end = action.trim_end().len();
    for at in (0..end).filter(|at| action.is_char_boundary(*at)) {
        let error = Document::parse(&action[..at]).expect_err("cut short");
        assert!(error.line >= 1 && error.column >= 1 && !error.message.is_empty(), "{at}: {error}");
    }
    assert!(Document::parse(action).is_ok());
}

#[test]
fn bytes_that_are_changed_anywhere_never_panic() {
    let action = action();
    let defaults =
        std::fs::read_to_string(corpus().join("oned-7.4/02_basic_vm.alt/defaults.conf")).expect("defaults");
    let template = Case::of(&action, &defaults, "", "");
    for (at, byte) in ["<", ">", "&", "]", "\"", "/", "x", "\u{0}", "\u{7f}"]
        .iter()
        .cycle()
        .zip(0..action.len())
        .map(|(b, a)| (a, b))
    {
        if !action.is_char_boundary(at) || !action.is_char_boundary(at + 1) {
            continue;
        }
        let text = format!("{}{byte}{}", &action[..at], &action[at + 1..]);
        if let Ok(document) = Document::parse(text)
            && let Ok(vm) = VmDocument::read(&document, None)
        {
            let case = Case { vm, ..template.clone() };
            if let Ok(domain) = case.generate() {
                assert!(Document::parse(domain.to_xml()).is_ok());
            }
        }
    }
}

#[test]
fn entities_and_type_definitions_are_refused() {
    for text in [
        "<!DOCTYPE VM [<!ENTITY a \"x\">]><VM><ID>&a;</ID></VM>",
        "<!DOCTYPE VM SYSTEM \"file:///etc/passwd\"><VM/>",
        "<VM><ID>&a;</ID></VM>",
        "<VM a='&a;'/>",
    ] {
        assert!(Document::parse(text).is_err(), "{text}");
    }
}

#[test]
fn deep_nesting_is_refused_before_it_hurts() {
    let deep = format!("<VM>{}", "<A>".repeat(1_000_000));
    assert!(Document::parse(deep).expect_err("deep").message.contains("nested"));
}

#[test]
fn a_document_of_50_mb_is_read() {
    let filler = format!("<F><![CDATA[{}]]></F>", "x".repeat(50 << 20));
    let text = action().replace("<USER_TEMPLATE>", &format!("<USER_TEMPLATE>{filler}"));
    assert!(text.len() > 50 << 20);
    let document = Document::parse(text).expect("a large document");
    assert_eq!(VmDocument::read(&document, None).expect("a VM").id, 171);
}

#[test]
fn a_document_of_many_elements_ends_at_the_limit() {
    let text = format!("<VM>{}</VM>", "<a/>".repeat(4_100_000));
    assert!(Document::parse(text).expect_err("many").message.contains("elements"));
}
