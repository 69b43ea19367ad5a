//! The parser of template text: no panic, places within the text, pictures drawn, and the VM document that is
//! made of it is XML that says the same.

#![no_main]

use kvmad::template::document::VmDocument;
use kvmad::template::normalise::{Surroundings, normalise};
use kvmad::template::text::{Rules, parse_bytes};
use kvmad::template::xml::Document;
use kvmad::template::Level;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for rules in [Rules::DEFAULTS, Rules::TEMPLATE] {
        let (text, parsed) = parse_bytes(bytes, Level::Vm, "f", rules);
        if let Some(error) = &parsed.error {
            assert!(error.span.end <= text.len());
            assert!(!error.picture("f", &text, false).is_empty());
        }
        for notice in &parsed.notices {
            assert!(notice.span.end <= text.len());
            assert!(!notice.picture("f", &text, false).is_empty());
        }
        let around = Surroundings { random: [0; 16], ..Surroundings::default() };
        if let Ok(made) = normalise(&parsed.template, &around) {
            let document = Document::parse(made.to_action_xml()).expect("what is written is well-formed");
            VmDocument::read(&document, None).expect("what is written is a VM");
        }
    }
});
