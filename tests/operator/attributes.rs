//! docs/monitoring-attributes.md names every attribute that the agent writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Words of the agent's source that look like attributes and are none: messages, protocols, variables, names in tests
/// and in configuration that it reads.
const OTHERS: &[&str] = &[
    "SUCCESS",
    "UDP",
    "TCP",
    "YES",
    "NET",
    "DISK",
    "DATASTORE_LOCATION",
    "HOST_ID",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "SSH_CLIENT",
    "MONITOR_CONFIGURATION",
    "PUBLIC",
    "TEMPLATE",
    "POWER9",
    "UPPERCASE",
    "CARGO_PKG_VERSION",
    "RECOVERY_SNAPSHOT_FREQ",
    "SYNC_STATE_VM",
];

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the source").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.to_string_lossy().contains("tests")
        {
            all.push(path);
        }
    }
}

/// Text literals in capitals, as the code has them, of the part before the tests of a file.
fn words(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let literals = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split('"').skip(1).step_by(2));
    let capital = |word: &&str| {
        word.len() > 2
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    literals.filter(capital).map(str::to_owned).collect()
}

#[test]
fn every_attribute_of_the_agent_is_in_its_document() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(project.join("docs/monitoring-attributes.md")).expect("the page");
    let known: BTreeSet<&str> = page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    let mut files = Vec::new();
    sources(&project.join("src/node/monitor"), &mut files);
    let found: BTreeSet<String> =
        files.iter().flat_map(|file| words(&fs::read_to_string(file).expect("text"))).collect();
    assert!(found.contains("TOTALCPU") && found.contains("KVM_MACHINES"), "{found:?}");
    let missing: Vec<_> = found
        .iter()
        .filter(|word| !known.contains(word.as_str()) && !OTHERS.contains(&word.as_str()))
        .collect();
    assert!(missing.is_empty(), "docs/monitoring-attributes.md does not name {missing:?}");
}

#[test]
fn a_new_attribute_would_be_found() {
    let found = words("text::number(out, \"NEW_FIGURE\", 1);\n// \"COMMENT\"\n#[cfg(test)]\n\"TESTS\"");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["NEW_FIGURE"]);
}
