//! The text parser against what it was not written for.

use std::fs;
use std::path::Path;

use kvmad::template::text::{Parsed, Rules, parse, parse_bytes};
use kvmad::template::{Level, Value};
use proptest::prelude::*;

fn read(text: &str) -> Parsed {
    parse(text, Level::Defaults, "f", Rules::DEFAULTS)
}

/// What must hold for every text.
fn sound(text: &str, parsed: &Parsed) {
    if let Some(error) = &parsed.error {
        assert!(error.span.start <= error.span.end && error.span.end <= text.len());
        assert!(error.line >= 1 && error.line <= text.matches('\n').count() + 1);
        assert!(!error.picture("f", text, false).is_empty());
    }
    for notice in &parsed.notices {
        assert!(notice.span.end <= text.len(), "{notice:?}");
        assert!(!notice.picture("f", text, true).is_empty());
    }
    for attribute in parsed.template.attributes() {
        let name = &attribute.name;
        let good = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        assert!(
            !name.is_empty() && name.chars().all(good) && !name.starts_with(|c: char| c.is_ascii_digit())
        );
        assert!(attribute.origin.line >= 1);
        if let Value::Vector(members) = &attribute.value {
            let mut names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), members.len());
        }
    }
}

#[test]
fn a_syntax_error_at_each_byte_of_a_conf_is_told_and_keeps_what_stands_before_it() {
    let path = "tests/corpus/domain/oned-7.4/02_basic_vm.alt/defaults.conf";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a conf");
    let mut errors = 0;
    for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
        for wrong in ["]", "=", "\"", "[", ",", "\0", "\u{e4}", "x y", "]]>", ""] {
            let rest = if wrong.is_empty() { "" } else { &text[at..] };
            let broken = format!("{}{wrong}{rest}", &text[..at]);
            let parsed = read(&broken);
            sound(&broken, &parsed);
            let Some(error) = &parsed.error else { continue };
            errors += 1;
            let before = read(&broken[..error.span.start]).template.attributes().len();
            assert!(parsed.template.attributes().len() >= before.saturating_sub(1), "{at} {wrong:?}");
        }
    }
    assert!(errors > text.len(), "{errors}");
}

/// Pieces of which junk that is nearly right is made.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("A".to_owned()),
        Just(" = ".to_owned()),
        Just("=".to_owned()),
        Just("\"".to_owned()),
        Just("\\\"".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just(",".to_owned()),
        Just("\n".to_owned()),
        Just("# c\n".to_owned()),
        Just("]]>".to_owned()),
        Just("\r\n".to_owned()),
        Just("x y".to_owned()),
        Just("\u{e4}".to_owned()),
        "[A-Za-z0-9_]{1,4}",
        "\\PC{0,3}",
    ]
}

/// A value and how it can be written so that it comes back.
fn quoted() -> impl Strategy<Value = String> {
    "[ -~\u{e4}\n\t]{0,12}".prop_map(|text| text.replace(['"', '\\'], "").replace("]]>", ""))
}

proptest! {
    #[test]
    fn no_text_panics_and_every_place_is_in_it(pieces in proptest::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        for rules in [Rules::DEFAULTS, Rules::TEMPLATE] {
            sound(&text, &parse(&text, Level::Vm, "f", rules));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (text, parsed) = parse_bytes(&bytes, Level::Defaults, "f", Rules::DEFAULTS);
        sound(&text, &parsed);
    }

    #[test]
    fn what_is_written_in_quotes_comes_back(values in proptest::collection::vec(quoted(), 1..6)) {
        let mut text = String::new();
        for (number, value) in values.iter().enumerate() {
            text.push_str(&format!("A{number} = \"{value}\" V{number} = [ M = \"{value}\", N = \"x\" ] # c\n"));
        }
        let parsed = read(&text);
        prop_assert_eq!(parsed.error, None);
        for (number, value) in values.iter().enumerate() {
            let single = parsed.template.single(&format!("A{number}")).map(|single| single.value);
            prop_assert_eq!(single, Some(value.as_str()));
            let name = format!("V{number}");
            let vector = parsed.template.vector(&name).expect("a vector");
            prop_assert_eq!(vector.get("M"), Some(value.as_str()));
        }
    }

    #[test]
    fn what_stands_before_an_error_does_not_depend_on_what_follows(junk in "\\PC{0,20}") {
        let text = format!("A = 1\nOS = [ ARCH = \"x\" ]\nB C\n{junk}");
        let parsed = read(&text);
        prop_assert!(parsed.error.is_some());
        prop_assert_eq!(parsed.template.attributes().len(), 2);
    }
}
