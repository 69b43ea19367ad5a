//! Reads option words by the rules that OpenNebula's drivers follow (those of GetoptLong), but leniently: what
//! is not understood is a warning, because a driver that refuses to start takes every host with it.

use std::collections::VecDeque;

/// Whether an option has an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// None.
    No,
    /// Always: the rest of the word or the next word.
    Required,
    /// The rest of the word, or the next word unless that begins with `-`.
    Optional,
}

/// One option of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The letter, if it has one.
    pub short: Option<char>,
    /// The long name, without `--`.
    pub long: &'static str,
    /// Whether it has an argument.
    pub argument: Argument,
}

/// An option as it was given: its long name and its argument.
pub type Given = (&'static str, Option<String>);

/// What the words held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// The options in order.
    pub options: Vec<Given>,
    /// All other words in order.
    pub operands: Vec<String>,
    /// What was not understood and ignored, for people.
    pub warnings: Vec<String>,
}

/// Splits the arguments of a driver into words: oned hands over its whole ARGUMENTS as one word, people and
/// scripts hand over several. Both are split at blanks; quotes mean nothing.
#[must_use]
pub fn split(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    arguments
        .into_iter()
        .flat_map(|argument| argument.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Sorts `words` into options and operands. Options may follow operands, `--` ends them, letters may be bundled
/// (`-pt5`), long names may be shortened while they are unique.
#[must_use]
pub fn read(words: Vec<String>, known: &[Known]) -> Words {
    let mut reader = Reader { rest: words.into(), known, words: Words::default() };
    while let Some(word) = reader.rest.pop_front() {
        if word == "--" {
            reader.words.operands.extend(reader.rest.drain(..));
        } else if let Some(long) = word.strip_prefix("--") {
            reader.long(long);
        } else if word.starts_with('-') && word.len() > 1 {
            reader.letters(&word[1..]);
        } else {
            reader.words.operands.push(word);
        }
    }
    reader.words
}

struct Reader<'a> {
    rest: VecDeque<String>,
    known: &'a [Known],
    words: Words,
}

impl Reader<'_> {
    fn long(&mut self, text: &str) {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let exact = self.known.iter().find(|option| option.long == name);
        let mut prefixed = self.known.iter().filter(|option| option.long.starts_with(name));
        let option = match (exact, prefixed.next(), prefixed.next()) {
            (Some(option), _, _) | (None, Some(option), None) => *option,
            (None, Some(_), Some(_)) => {
                self.warn(format!("option --{name} may mean several; it is ignored"));
                return;
            }
            (None, None, _) => {
                self.warn(format!("unknown option --{name} is ignored"));
                return;
            }
        };
        if option.argument == Argument::No && value.is_some() {
            self.warn(format!("option --{} takes no argument; the one given is ignored", option.long));
            self.words.options.push((option.long, None));
            return;
        }
        self.take(option, value);
    }

    fn letters(&mut self, text: &str) {
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            let Some(option) = self.known.iter().find(|option| option.short == Some(letter)).copied() else {
                self.warn(format!("unknown option -{letter} is ignored"));
                continue;
            };
            if option.argument == Argument::No {
                self.words.options.push((option.long, None));
                continue;
            }
            let rest = letters.as_str();
            self.take(option, (!rest.is_empty()).then(|| rest.to_owned()));
            return;
        }
    }

    fn take(&mut self, option: Known, value: Option<String>) {
        let value = match option.argument {
            Argument::No => None,
            Argument::Required => value.or_else(|| self.rest.pop_front()),
            Argument::Optional => value.or_else(|| {
                let next = self.rest.front().is_some_and(|word| !word.starts_with('-'));
                if next { self.rest.pop_front() } else { None }
            }),
        };
        if option.argument == Argument::Required && value.is_none() {
            self.warn(format!("option --{} needs an argument; it is ignored", option.long));
            return;
        }
        self.words.options.push((option.long, value));
    }

    fn warn(&mut self, text: String) {
        self.words.warnings.push(text);
    }
}

/// A number as the drivers read it: its leading digits, 0 without any; a number too large is the largest.
#[must_use]
pub fn leading_number(text: Option<&str>) -> usize {
    let text = text.unwrap_or("").trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return 0;
    }
    text[..end].parse().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Known] = &[
        Known { short: Some('t'), long: "threads", argument: Argument::Optional },
        Known { short: Some('w'), long: "timeout", argument: Argument::Optional },
        Known { short: Some('l'), long: "local", argument: Argument::Required },
        Known { short: Some('p'), long: "parallel", argument: Argument::No },
    ];

    fn given(text: &str) -> Words {
        read(split([text.to_owned()]), KNOWN)
    }

    fn options(text: &str) -> Vec<(&'static str, Option<String>)> {
        given(text).options
    }

    #[test]
    fn one_combined_word_and_several_are_equal() {
        let several = split(["-t".to_owned(), "15".to_owned(), "kvm".to_owned()]);
        assert_eq!(several, split(["-t 15  kvm ".to_owned()]));
        assert!(split([String::new()]).is_empty());
    }

    #[test]
    fn all_ways_to_write_an_argument_are_equal() {
        for text in ["-t15", "-t 15", "--threads 15", "--threads=15", "--thr 15", "--thr=15"] {
            assert_eq!(options(text), [("threads", Some("15".to_owned()))], "{text}");
        }
    }

    #[test]
    fn letters_are_bundled() {
        let expected = [("parallel", None), ("threads", Some("5".to_owned()))];
        assert_eq!(options("-pt5"), expected);
        assert_eq!(options("-pt 5"), expected);
    }

    #[test]
    fn an_optional_argument_is_the_next_word_unless_it_is_an_option() {
        assert_eq!(options("-t -p"), [("threads", None), ("parallel", None)]);
        assert_eq!(options("-t kvm"), [("threads", Some("kvm".to_owned()))]);
        assert!(given("-t kvm").operands.is_empty());
    }

    #[test]
    fn options_may_follow_operands_and_two_dashes_end_them() {
        assert_eq!(given("kvm -p").operands, ["kvm"]);
        assert_eq!(options("kvm -p"), [("parallel", None)]);
        assert_eq!(given("-p -- -t kvm").operands, ["-t", "kvm"]);
        assert_eq!(given("- kvm").operands, ["-", "kvm"]);
    }

    #[test]
    fn what_is_not_understood_is_a_warning() {
        for text in ["-i kvm", "--unknown kvm", "--t kvm", "--parallel=yes kvm", "kvm -l"] {
            let words = given(text);
            assert_eq!(words.operands, ["kvm"], "{text}");
            assert_eq!(words.warnings.len(), 1, "{text}: {:?}", words.warnings);
        }
    }

    #[test]
    fn numbers_are_their_leading_digits() {
        for (text, number) in
            [("15", 15), ("15x", 15), ("x", 0), ("", 0), ("-3", 0), ("99999999999999999999999", usize::MAX)]
        {
            assert_eq!(leading_number(Some(text)), number, "{text}");
        }
        assert_eq!(leading_number(None), 0);
    }
}
