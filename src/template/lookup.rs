//! Looking a setting up through the levels VM, host, cluster, defaults file.
//!
//! The first level that *finds* a value ends the search. A string is found when it is there, be it empty; a
//! member that is to be a number or a yes-or-no is found only when it is not empty, and a number only when the
//! whole text is one. Levels are asked member by member, not vector by vector, and at each level only the first
//! vector of a name counts.

use super::number::{self, Parsed};
use super::value::{Origin, Template, Vector};

/// Where a lookup found its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<'a> {
    /// Name of the attribute.
    pub attribute: &'a str,
    /// Which of the vectors of that name, when there may be several.
    pub index: Option<usize>,
    /// The member, for a vector.
    pub member: Option<&'a str>,
    /// Where it stands.
    pub origin: &'a Origin,
}

/// A string that was found; may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    /// The string.
    pub value: &'a str,
    /// Where.
    pub at: At<'a>,
}

/// A number or yes-or-no, or what stands in for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Typed<'a, T> {
    /// The value; the residue or the initial value when no level has a good one.
    pub value: T,
    /// Whether a level has a good one.
    pub found: bool,
    /// What gave the value; `None` for the initial value.
    pub at: Option<At<'a>>,
}

/// Levels in the order in which they are asked.
#[derive(Debug, Clone)]
pub struct Chain<'a> {
    levels: Vec<&'a Template>,
}

impl<'a> Text<'a> {
    /// It, unless it is empty.
    #[must_use]
    pub fn filled(self) -> Option<Self> {
        (!self.value.is_empty()).then_some(self)
    }
}

/// Whether `text` is yes: YES in any case and nothing else.
#[must_use]
pub fn yes(text: &str) -> bool {
    text.eq_ignore_ascii_case("yes")
}

impl<'a> Vector<'a> {
    /// The member `name`; may be empty.
    #[must_use]
    pub fn text(&self, name: &'a str) -> Option<Text<'a>> {
        let member = self.member(name)?;
        Some(Text {
            value: &member.value,
            at: At {
                attribute: self.name,
                index: Some(self.index),
                member: Some(&member.name),
                origin: &member.origin,
            },
        })
    }

    /// The member `name` when it is not empty.
    #[must_use]
    pub fn filled_text(&self, name: &'a str) -> Option<Text<'a>> {
        self.text(name).and_then(Text::filled)
    }

    /// The member `name` as a 32-bit whole number.
    #[must_use]
    pub fn int(&self, name: &'a str, initial: i32) -> Typed<'a, i32> {
        first_good(std::iter::once(self.text(name)), initial, |text, _| number::int(text))
    }

    /// The member `name` as an unsigned 32-bit whole number.
    #[must_use]
    pub fn unsigned(&self, name: &'a str, initial: u32) -> Typed<'a, u32> {
        let limit = u64::from(u32::MAX);
        let wide = first_good(std::iter::once(self.text(name)), u64::from(initial), |text, old| {
            number::unsigned(text, limit, old)
        });
        Typed { value: u32::try_from(wide.value).unwrap_or(u32::MAX), found: wide.found, at: wide.at }
    }

    /// The member `name` as yes or no; found when it is not empty.
    #[must_use]
    pub fn flag(&self, name: &'a str) -> Typed<'a, bool> {
        first_flag(std::iter::once(self.text(name)))
    }
}

impl<'a> Chain<'a> {
    /// A chain over `levels`, the strongest first.
    #[must_use]
    pub fn new(levels: impl IntoIterator<Item = &'a Template>) -> Self {
        Self { levels: levels.into_iter().collect() }
    }

    /// The single attribute `name`; may be empty.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Text<'a>> {
        self.singles(name).flatten().next()
    }

    /// Member `key` of the vector `name`; may be empty.
    #[must_use]
    pub fn member(&self, name: &'a str, key: &'a str) -> Option<Text<'a>> {
        self.members(name, key).flatten().next()
    }

    /// The single attribute `name` as a 32-bit whole number. When no level has a good one, the residue of the
    /// last level counts, 0 when it has none at all.
    #[must_use]
    pub fn int(&self, name: &str) -> Typed<'a, i32> {
        let mut last = Typed { value: 0, found: false, at: None };
        for text in self.singles(name) {
            last = Typed { value: 0, found: false, at: None };
            if let Some(text) = text {
                let Parsed { value, valid } = number::int(text.value);
                last = Typed { value, found: valid, at: Some(text.at) };
                if valid {
                    break;
                }
            }
        }
        last
    }

    /// The single attribute `name` as yes or no; found when it is there.
    #[must_use]
    pub fn flag(&self, name: &str) -> Typed<'a, bool> {
        match self.text(name) {
            Some(text) => Typed { value: yes(text.value), found: true, at: Some(text.at) },
            None => Typed { value: false, found: false, at: None },
        }
    }

    /// Member `key` of the vector `name` as a 32-bit whole number. When no level has a good one, the residue of
    /// the last level whose value is not empty counts.
    #[must_use]
    pub fn member_int(&self, name: &'a str, key: &'a str, initial: i32) -> Typed<'a, i32> {
        first_good(self.members(name, key), initial, |text, _| number::int(text))
    }

    /// As [`Chain::member_int`], unsigned and of 64 bits.
    #[must_use]
    pub fn member_unsigned(&self, name: &'a str, key: &'a str, initial: u64) -> Typed<'a, u64> {
        first_good(self.members(name, key), initial, |text, old| number::unsigned(text, u64::MAX, old))
    }

    /// Member `key` of the vector `name` as yes or no; found when it is not empty.
    #[must_use]
    pub fn member_flag(&self, name: &'a str, key: &'a str) -> Typed<'a, bool> {
        first_flag(self.members(name, key))
    }

    fn singles<'s>(&'s self, name: &'s str) -> impl Iterator<Item = Option<Text<'a>>> + 's {
        self.levels.iter().map(move |level| {
            let single = level.single(name)?;
            let at = At { attribute: single.name, index: None, member: None, origin: single.origin };
            Some(Text { value: single.value, at })
        })
    }

    fn members<'s>(&'s self, name: &'a str, key: &'a str) -> impl Iterator<Item = Option<Text<'a>>> + 's {
        self.levels.iter().map(move |level| {
            let mut text = level.vector(name)?.text(key)?;
            text.at.index = None;
            Some(text)
        })
    }
}

fn first_good<'a, T: Copy>(
    texts: impl Iterator<Item = Option<Text<'a>>>,
    initial: T,
    read: impl Fn(&str, T) -> Parsed<T>,
) -> Typed<'a, T> {
    let mut last = Typed { value: initial, found: false, at: None };
    for text in texts.flatten().filter_map(Text::filled) {
        let Parsed { value, valid } = read(text.value, last.value);
        last = Typed { value, found: valid, at: Some(text.at) };
        if valid {
            break;
        }
    }
    last
}

fn first_flag<'a>(texts: impl Iterator<Item = Option<Text<'a>>>) -> Typed<'a, bool> {
    match texts.flatten().find_map(Text::filled) {
        Some(text) => Typed { value: yes(text.value), found: true, at: Some(text.at) },
        None => Typed { value: false, found: false, at: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Level, document, xml::Document};

    fn level(level: Level, inner: &str) -> Template {
        let parsed = Document::parse(format!("<T>{inner}</T>")).expect("well-formed");
        document::template(&parsed, parsed.root(), level, None)
    }

    fn with<R>(vm: &str, defaults: &str, look: impl FnOnce(&Chain<'_>) -> R) -> R {
        let (vm, defaults) = (level(Level::Vm, vm), level(Level::Defaults, defaults));
        look(&Chain::new([&vm, &defaults]))
    }

    const EMPTY: &str = "<![CDATA[]]>";

    #[test]
    fn an_empty_string_ends_the_search() {
        let vm = format!("<OS><KERNEL>{EMPTY}</KERNEL></OS><RAW>{EMPTY}</RAW>");
        let defaults = "<OS><KERNEL>/k</KERNEL><ROOT>r</ROOT></OS><RAW>x</RAW>";
        with(&vm, defaults, |chain| {
            assert_eq!(chain.member("OS", "KERNEL").map(|t| t.value), Some(""));
            assert_eq!(chain.text("RAW").map(|t| t.value), Some(""));
            let root = chain.member("OS", "ROOT").expect("inherited");
            assert_eq!((root.value, root.at.origin.level), ("r", Level::Defaults));
        });
    }

    #[test]
    fn an_empty_flag_or_number_does_not() {
        let vm = format!("<F><ACPI>{EMPTY}</ACPI><N>{EMPTY}</N></F>");
        with(&vm, "<F><ACPI>yes</ACPI><N>4</N></F>", |chain| {
            assert!(chain.member_flag("F", "ACPI").value);
            assert_eq!(chain.member_int("F", "N", 0).value, 4);
        });
    }

    #[test]
    fn only_yes_is_yes_and_anything_else_stops_the_search() {
        for (text, value) in
            [("yes", true), ("Yes", true), ("YES", true), ("true", false), ("1", false), (" yes", false)]
        {
            let vm = format!("<F><ACPI>{text}</ACPI></F>");
            with(&vm, "<F><ACPI>yes</ACPI></F>", |chain| {
                assert_eq!(chain.member_flag("F", "ACPI").value, value, "{text}");
            });
        }
    }

    #[test]
    fn a_bad_number_is_passed_over_and_counts_only_when_nothing_better_comes() {
        let number = |vm: &str, defaults: &str| {
            with(vm, defaults, |chain| (chain.member_int("F", "N", 9).value, chain.int("S").value))
        };
        assert_eq!(number("<F><N>2x</N></F><S>2x</S>", "<F><N>5</N></F><S>5</S>"), (5, 5));
        // Members keep what the VM left; single attributes start anew at each level.
        assert_eq!(number("<F><N>2x</N></F><S>2x</S>", ""), (2, 0));
        assert_eq!(number("<F><N>2x</N></F><S>2x</S>", "<F><N>y</N></F><S>3y</S>"), (0, 3));
        assert_eq!(number("", ""), (9, 0));
    }

    #[test]
    fn only_the_first_vector_of_a_level_counts() {
        with("<F><A>1</A></F><F><B>2</B></F>", "<F><B>3</B></F>", |chain| {
            assert_eq!(chain.member("F", "B").map(|t| t.value), Some("3"));
        });
    }

    #[test]
    fn a_hit_says_where_it_is() {
        with("", "<F><A>1</A></F>", |chain| {
            let hit = chain.member_int("F", "A", 0).at.expect("found");
            assert_eq!((hit.attribute, hit.member, hit.origin.line), ("F", Some("A"), 1));
        });
    }
}
