//! The generator: whatever VM and defaults say, there is a reason or a well-formed domain, in both styles.
//! The input is a VM document, a NUL byte, and a defaults file.

#![no_main]

use kvmad::domain::{Inputs, Options, Style, generate};
use kvmad::template::document::VmDocument;
use kvmad::template::text::{Rules, parse_bytes};
use kvmad::template::xml::Document;
use kvmad::template::{Level, Template};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (vm, defaults) = match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, b"OS=[ARCH=x86_64,MACHINE=q35]".as_slice()),
    };
    let Ok(document) = Document::parse(String::from_utf8_lossy(vm)) else { return };
    let Ok(vm) = VmDocument::read(&document, None) else { return };
    let (_, defaults) = parse_bytes(defaults, Level::Defaults, "f", Rules::DEFAULTS);
    let none = Template::new();
    for style in [Style::Mended, Style::AsOpenNebula] {
        let options = Options { style, ..Options::default() };
        let inputs =
            Inputs { vm: &vm, defaults: &defaults.template, host: &none, cluster: &none, options: &options };
        if let Ok(domain) = generate(&inputs) {
            let written = Document::parse(domain.to_xml()).expect("a domain is well-formed");
            assert_eq!(written.root().name(), "domain");
            assert!(!domain.lines().is_empty());
        }
    }
});
