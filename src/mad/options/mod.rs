//! Command line of the two drivers, as `oned` passes its `ARGUMENTS`: all of them in one word.

pub mod getopt;
pub mod im;
pub mod lists;
pub mod vmm;

pub use im::ImOptions;
pub use lists::ActionList;
pub use vmm::VmmOptions;

use std::path::Path;

/// The name a program was started by, without its folder: links to one program are told apart by it.
#[must_use]
pub fn program_name(argument: Option<&str>) -> &str {
    argument.and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str()).unwrap_or("")
}

/// The last blank-separated word of the arguments: OpenNebula names log files of its drivers by it. Only
/// `[A-Za-z0-9._-]` are kept, since it becomes part of a file name.
#[must_use]
pub fn last_word(words: &[String]) -> String {
    let good = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    words.last().map(|word| word.chars().filter(good).collect()).unwrap_or_default()
}

/// Takes `--proxy URL` out of the words: OpenNebula's wrapper makes it `http_proxy`, it is no option of the driver.
fn take_proxy(words: &mut Vec<String>) -> Option<String> {
    let at = words.iter().position(|word| word == "--proxy")?;
    words.remove(at);
    (at < words.len()).then(|| words.remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart_by_their_last_name() {
        assert_eq!(program_name(Some("/usr/lib/one/mads/one_vmm_sh")), "one_vmm_sh");
        assert_eq!(program_name(None), "");
    }

    #[test]
    fn the_last_word_is_safe_in_a_file_name() {
        assert_eq!(last_word(&["-t".to_owned(), "../a/b c".to_owned()]), "..abc");
        assert_eq!(last_word(&[]), "");
    }
}
