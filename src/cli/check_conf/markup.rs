//! Checking values that go into the domain as they are.

use super::finding::Checked;
use crate::cli::schema::{self, Verdict};

use crate::conf::{Inside, Key, Takes};
use crate::template::Template;
use crate::template::text::Gravity;
use crate::template::value::Single;
use crate::template::xml::{Document, Element};

/// Checks the value of `key`, if it is markup and set: is it well-formed, does libvirt's schema take it?
pub fn check(checked: &mut Checked, key: &Key, template: &Template) {
    let Takes::Markup(inside) = key.takes else { return };
    let Some(found) = template.single(key.name).filter(|found| !found.value.trim().is_empty()) else {
        return;
    };
    let document = match Document::parse(format!("<value>{}</value>", found.value)) {
        Ok(document) => document,
        Err(error) => return malformed(checked, key, found, &error.message, error.line),
    };
    match schema::check(&sample(inside, &document)) {
        Verdict::Valid => {}
        Verdict::Invalid(why) => {
            let why = format!("libvirt's schema refuses it in a domain:\n{why}");
            let mend = "correct it; every domain that gets it is refused by libvirt or loses the part";
            checked.find("refused-by-libvirt", Gravity::Error, key.path(), Some(found.origin), why, mend);
        }
        Verdict::Unchecked(why) => {
            let why = format!("whether libvirt takes {}: {why}", key.path());
            if !checked.unchecked.contains(&why) {
                checked.unchecked.push(why);
            }
        }
    }
}

fn malformed(checked: &mut Checked, key: &Key, found: Single<'_>, message: &str, line: usize) {
    let why = format!("it is no well-formed XML (line {line} of the value): {message}");
    let mend = "close what is open, escape & and < as &amp; and &lt;";
    checked.find("malformed-markup", Gravity::Error, key.path(), Some(found.origin), why, mend);
}

/// A small valid domain that holds the markup where it belongs.
fn sample(inside: Inside, document: &Document) -> String {
    let all = inner(document, document.root());
    let (mut hyperv, mut clock, mut devices, mut rest) =
        (String::new(), String::new(), String::new(), String::new());
    match inside {
        Inside::Hyperv => hyperv = format!("<features><hyperv>{all}</hyperv></features>"),
        Inside::Clock => clock = format!("<clock offset='utc'>{all}</clock>"),
        Inside::Devices => all.clone_into(&mut devices),
        Inside::Domain => {
            // libvirt takes several <devices>, its schema one.
            for element in document.root().elements() {
                if element.name() == "devices" {
                    devices.push_str(inner(document, element));
                } else {
                    rest.push_str(document.source_of(element));
                }
            }
        }
    }
    format!(
        "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>check</name>\
         <memory>1024</memory><os><type>hvm</type></os>{hyperv}{clock}<devices>{devices}</devices>{rest}</domain>"
    )
}

/// What stands between the tags of `element`.
fn inner<'a>(document: &'a Document, element: &Element) -> &'a str {
    let source = document.source_of(element);
    let start = element.elements().next().map(|first| first.range().start - element.range().start);
    let end = element.elements().last().map(|last| last.range().end - element.range().start);
    start.zip(end).and_then(|(start, end)| source.get(start..end)).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_raw_are_put_together() {
        let raw = "<value>x<devices>a<rng/> <tpm a='b'/></devices><qemu:commandline/><devices/><devices><p/></devices></value>";
        let document = Document::parse(raw).expect("well-formed");
        let text = sample(Inside::Domain, &document);
        assert!(
            text.contains("<devices><rng/> <tpm a='b'/><p/></devices><qemu:commandline/></domain>"),
            "{text}"
        );
        assert!(Document::parse(text).is_ok());
    }
}
