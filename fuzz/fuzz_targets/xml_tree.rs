//! The XML tree: no panic, every element hands out its own source, and that source parses to the same tree.

#![no_main]

use kvmad::template::xml::{Document, Element};
use libfuzzer_sys::fuzz_target;

fn look(document: &Document, element: &Element, deep: usize) {
    let source = document.source_of(element);
    assert!(source.starts_with('<') && source.ends_with('>'));
    let (line, column) = document.position_of(element);
    assert!(line >= 1 && column >= 1);
    if deep == 1 {
        let again = Document::parse(source).expect("a part of a document is one");
        assert_eq!(again.root().text(), element.text());
        assert_eq!(again.root().attributes(), element.attributes());
    }
    for child in element.elements() {
        look(document, child, deep + 1);
    }
}

fuzz_target!(|text: &str| {
    if let Ok(document) = Document::parse(text) {
        look(&document, document.root(), 0);
    }
});
