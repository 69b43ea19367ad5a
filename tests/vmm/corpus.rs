//! The recorded documents and conversations.

use std::path::PathBuf;

/// The recordings, newest core first.
pub const RECORDINGS: [&str; 4] = ["vmm-7.4", "vmm-7.4-kvm", "vmm-5.12", "vmm-4.14"];

/// One recorded document.
pub struct Recorded {
    /// `vmm-7.4/001_DEPLOY`.
    pub name: String,
    /// The verb it came with.
    pub verb: String,
    /// The document.
    pub text: String,
}

/// Folder of a recording.
pub fn folder(recording: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(recording)
}

/// All documents of a recording, in order.
pub fn documents(recording: &str) -> Vec<Recorded> {
    let folder = folder(recording).join("documents");
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).expect("documents").map(|entry| entry.expect("entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let stem = path.file_stem().expect("stem").to_str().expect("utf-8").to_owned();
        let verb = stem.split_once('_').expect("NNN_VERB").1.to_owned();
        // The recorder ended each file with a newline that was not sent.
        let text = std::fs::read_to_string(&path).expect("text").trim_end_matches('\n').to_owned();
        Recorded { name: format!("{recording}/{stem}"), verb, text }
    };
    paths.into_iter().map(read).collect()
}

/// One document by its number.
pub fn document(recording: &str, number: usize) -> Recorded {
    documents(recording).into_iter().nth(number - 1).expect("the document is there")
}

/// What stands between the first `<NAME>` and its end in `text`, read without any parser; references are kept.
pub fn between<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begin = text.find(&format!("<{name}>"))? + name.len() + 2;
    let end = begin + text[begin..].find(&format!("</{name}>"))?;
    let inner = &text[begin..end];
    Some(inner.strip_prefix("<![CDATA[").and_then(|inner| inner.strip_suffix("]]>")).unwrap_or(inner))
}

/// As [`between`], the empty text when it is missing.
pub fn value(text: &str, name: &str) -> String {
    between(text, name).unwrap_or("").to_owned()
}

/// The elements called `name`, each from its start to its end.
pub fn elements<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find(&open) {
        let end = begin + rest[begin..].find(&close).expect("an end") + close.len();
        found.push(&rest[begin..end]);
        rest = &rest[end..];
    }
    found
}
