//! What names an image: a bare name of the library, a path, or an https URL.

use std::path::{Path, PathBuf};

use super::error::CloudError;

/// An image, as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A name to be found in the library.
    Name(String),
    /// A file of the host.
    Path(PathBuf),
    /// To be downloaded.
    Url {
        /// From where.
        url: String,
        /// Name of its file in the cache: the last segment of the URL's path.
        file: String,
    },
}

/// Endings that a bare name may lack.
const ENDINGS: [&str; 4] = ["", ".qcow2", ".img", ".raw"];

/// Names told when one is not there.
const TOLD: usize = 20;

impl Reference {
    /// Reads `text`: it holds `://` (a URL), begins with `/` (a path), or is a name.
    ///
    /// # Errors
    /// [`CloudError::Reference`].
    pub fn parse(text: &str) -> Result<Self, CloudError> {
        let wrong = |reason: &str| CloudError::Reference { text: text.to_owned(), reason: reason.to_owned() };
        if text.is_empty() || text.len() > 4096 || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(wrong("it is empty, too long, or holds blanks or control characters"));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            if !scheme.eq_ignore_ascii_case("https") {
                return Err(wrong("only https is downloaded: nobody on the way can change it then"));
            }
            let file = file_of(rest).map_err(wrong)?;
            return Ok(Self::Url { url: format!("https://{rest}"), file });
        }
        if text.starts_with('/') {
            return Ok(Self::Path(PathBuf::from(text)));
        }
        if is_file_name(text) {
            return Ok(Self::Name(text.to_owned()));
        }
        Err(wrong(
            "give a bare name (letters, digits and . _ + ~ -), an absolute path of the host, or an https URL",
        ))
    }
}

/// Name of the file that `HOST/PATH?QUERY#FRAGMENT` becomes.
fn file_of(rest: &str) -> Result<String, &'static str> {
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (host, path) = rest[..end].split_once('/').ok_or("the URL names no file")?;
    if host.is_empty() || host.starts_with('-') || host.contains('@') {
        return Err("the URL has no host, or a user in front of it");
    }
    let file = path.rsplit('/').next().unwrap_or("");
    if file.is_empty() {
        return Err("the URL ends with a slash, so it names no file");
    }
    if !is_file_name(file) {
        return Err(
            "the last part of the URL becomes the name of the file; it may hold letters, digits and . _ + ~ - only, and \
             begin with a letter or digit",
        );
    }
    Ok(file.to_owned())
}

fn is_file_name(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || "._+~-".contains(c);
    text.len() <= 200 && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(inside)
}

/// The file of the library that `name` means.
///
/// # Errors
/// [`CloudError::NotInLibrary`] tells what there is.
pub fn in_library(name: &str, library: &Path) -> Result<PathBuf, CloudError> {
    let found =
        ENDINGS.iter().map(|ending| library.join(format!("{name}{ending}"))).find(|path| path.is_file());
    found.ok_or_else(|| CloudError::NotInLibrary {
        name: name.to_owned(),
        library: library.to_owned(),
        there: listed(library),
    })
}

fn listed(library: &Path) -> String {
    let entries = match std::fs::read_dir(library) {
        Ok(entries) => entries,
        Err(error) => return format!("none, the folder can't be read ({error})"),
    };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    match names.len() {
        0 => "none".to_owned(),
        many if many > TOLD => format!("{}, ... ({many} in all)", names[..TOLD].join(", ")),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_urls_are_told_apart() {
        let url = |text: &str, file: &str| {
            (text.to_owned(), Reference::Url { url: text.to_owned(), file: file.to_owned() })
        };
        for (text, expected) in [
            ("ubuntu-24.04".to_owned(), Reference::Name("ubuntu-24.04".to_owned())),
            ("/srv/a b.img".replace(' ', "_"), Reference::Path(PathBuf::from("/srv/a_b.img"))),
            url("https://h/a/b/debian-12.qcow2", "debian-12.qcow2"),
            url("https://h:8443/x.img?sig=a/b&c=%20#f/g", "x.img"),
        ] {
            assert_eq!(Reference::parse(&text).expect(&text), expected);
        }
        assert!(
            matches!(Reference::parse("HTTPS://h/x"), Ok(Reference::Url { url, .. }) if url == "https://h/x")
        );
    }

    #[test]
    fn what_is_none_of_them_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "empty"),
            ("a b", "blanks"),
            ("a\nb", "blanks"),
            ("http://h/x", "only https"),
            ("file:///etc/shadow", "only https"),
            ("https://h", "names no file"),
            ("https://h/", "ends with a slash"),
            ("https://h/a/", "ends with a slash"),
            ("https:///x", "no host"),
            ("https://u:p@h/x", "user"),
            ("https://h/..", "last part"),
            ("https://h/.x.part", "last part"),
            ("https://h/a/-rf", "last part"),
            ("https://h/a%2fb", "last part"),
            ("../x", "bare name"),
            ("-x", "bare name"),
            ("a/b", "bare name"),
            (".hidden", "bare name"),
        ] {
            let error = Reference::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_bare_name_is_found_with_or_without_its_ending_and_else_told_what_there_is() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["ubuntu-24.04.qcow2", "b.img"] {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        assert_eq!(
            in_library("ubuntu-24.04", dir.path()).expect("found"),
            dir.path().join("ubuntu-24.04.qcow2")
        );
        assert_eq!(in_library("b.img", dir.path()).expect("found"), dir.path().join("b.img"));
        let error = in_library("c", dir.path()).expect_err("none").to_string();
        assert!(error.ends_with("there are: b.img, ubuntu-24.04.qcow2"), "{error}");
        let error = in_library("c", Path::new("/nowhere")).expect_err("none").to_string();
        assert!(error.contains("can't be read"), "{error}");
    }
}
