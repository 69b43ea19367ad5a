//! The 208 domains that OpenNebula 7.4 made.

use kvmad::domain::{Refusal, Style};
use kvmad::template::xml::Document;

use crate::compare::difference;
use crate::support::{Case, cases};

#[test]
fn every_case_of_the_corpus_is_equal() {
    let cases = cases();
    assert_eq!(cases.len(), 208);
    let mut wrong = Vec::new();
    for folder in &cases {
        let made = Case::read(folder).generate();
        let name = folder.strip_prefix(crate::support::corpus()).expect("inside").display();
        let expected = std::fs::read_to_string(folder.join("domain.xml"));
        let refused = std::fs::read_to_string(folder.join("refused.txt"));
        let fault = match (made, expected, refused) {
            (Ok(domain), Ok(expected), _) if Document::parse(expected.as_str()).is_ok() => {
                difference(&expected, &domain.to_xml())
            }
            (Ok(domain), Ok(_), _) => Document::parse(domain.to_xml()).err().map(|error| error.to_string()),
            (Err(Refusal::NoMemory | Refusal::Memory { .. }), Err(_), Ok(word))
                if word.trim() == "MEMORY" =>
            {
                None
            }
            (Err(Refusal::NoArch), Err(_), Ok(word)) if word.trim() == "ARCH" => None,
            (made, _, refused) => Some(format!("{:?}, refusal {refused:?}", made.err())),
        };
        if let Some(fault) = fault {
            wrong.push(format!("{name}: {fault}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// OpenNebula's own deploy script replaces the text `source file='PATH'` when the path is a symbolic link.
#[test]
fn the_bytes_hold_the_text_that_the_deploy_script_replaces() {
    let folder = crate::support::corpus().join("oned-7.4/02_basic_vm.alt");
    for style in [Style::AsOpenNebula, Style::Mended] {
        let xml = Case::read(&folder).with(style).generate().expect("a domain").to_xml();
        for disk in 0..=1 {
            let text = format!("source file='/var/lib/one//datastores/100/171/disk.{disk}'");
            assert_eq!(xml.matches(&text).count(), 1, "{text}\n{xml}");
        }
        assert!(xml.starts_with(
            "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n  <name>one-"
        ));
        assert!(xml.ends_with("</domain>\n"));
        assert!(!xml.contains('"'), "a double quote");
    }
}
