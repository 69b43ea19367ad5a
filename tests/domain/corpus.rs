//! The 208 domains that OpenNebula 7.4 made.

use kvmad::domain::Refusal;
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
