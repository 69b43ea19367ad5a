//! The kinds of values that a setting can have, and how each is written.

use std::path::PathBuf;
use std::time::Duration;

/// A kind of value: how it is written in `kvmad.conf`, in the environment, and in the documentation.
pub trait Value: Sized {
    /// How to write one, for the documentation and for errors.
    const FORM: &'static str;

    /// Reads one; blanks around it are already gone.
    ///
    /// # Errors
    /// What is wrong with the text, for people; the caller adds where it stands.
    fn read(text: &str) -> Result<Self, String>;
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub usize);

impl Value for Duration {
    const FORM: &'static str = "a time: seconds, or with a unit ms, s, m, h (`10s`)";

    fn read(text: &str) -> Result<Self, String> {
        let (number, unit) = split_unit(text);
        let factor = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong::<Self>(text)),
        };
        let number: u64 = number.parse().map_err(|_| wrong::<Self>(text))?;
        number.checked_mul(factor).map(Self::from_millis).ok_or_else(|| wrong::<Self>(text))
    }
}

impl Value for Option<Duration> {
    const FORM: &'static str = "a time (`90s`), or `none`";

    fn read(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(None);
        }
        let limit = Duration::read(text).map_err(|_| wrong::<Self>(text))?;
        Ok(Some(limit).filter(|limit| !limit.is_zero()))
    }
}

impl Value for Size {
    const FORM: &'static str = "a size: bytes, or with a unit KiB, MiB, GiB (`8 MiB`)";

    fn read(text: &str) -> Result<Self, String> {
        let (number, unit) = split_unit(text);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            _ => return Err(wrong::<Self>(text)),
        };
        let number: usize = number.parse().map_err(|_| wrong::<Self>(text))?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(|| wrong::<Self>(text))
    }
}

impl Value for usize {
    const FORM: &'static str = "a number";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| wrong::<Self>(text))
    }
}

impl Value for bool {
    const FORM: &'static str = "`yes` or `no`";

    fn read(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Ok(true),
            "no" | "false" | "off" | "0" => Ok(false),
            _ => Err(wrong::<Self>(text)),
        }
    }
}

impl Value for String {
    const FORM: &'static str = "a text";

    fn read(text: &str) -> Result<Self, String> {
        if text.chars().any(char::is_control) {
            return Err("it holds a control character".to_owned());
        }
        Ok(text.to_owned())
    }
}

impl Value for Option<PathBuf> {
    const FORM: &'static str = "an absolute path, or nothing";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(None);
        }
        if !text.starts_with('/') || text.chars().any(char::is_control) {
            return Err(wrong::<Self>(text));
        }
        Ok(Some(PathBuf::from(text)))
    }
}

/// A folder on a host: absolute, or from the folder in which the program was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(pub PathBuf);

impl Value for Folder {
    const FORM: &'static str = "a folder; a relative path starts where the program was started";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(wrong::<Self>(text));
        }
        std::path::absolute(text).map(Self).map_err(|error| format!("{text:?}: {error}"))
    }
}

impl Value for Option<Folder> {
    const FORM: &'static str = "a folder (a relative path starts where the program was started), or nothing";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { Folder::read(text).map(Some) }
    }
}

/// A share of something, in percent, from 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(pub usize);

impl Value for Percent {
    const FORM: &'static str = "percent, 1 to 100";

    fn read(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').unwrap_or(text).trim();
        let number = number.parse().ok().filter(|number| (1..=100).contains(number));
        number.map(Self).ok_or_else(|| wrong::<Self>(text))
    }
}

fn wrong<V: Value>(text: &str) -> String {
    format!("{text:?} is not {}", V::FORM)
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_are_seconds_without() {
        for (text, millis) in
            [("10", 10_000), ("10s", 10_000), ("250ms", 250), ("2 m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(Duration::read(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "1.5", "10x", "ten", "99999999999999999999", "18446744073709551615h"] {
            assert!(Duration::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_limit_is_written_none_and_zero_means_the_same() {
        assert_eq!(Option::<Duration>::read("none"), Ok(None));
        assert_eq!(Option::<Duration>::read("0"), Ok(None));
        assert_eq!(Option::<Duration>::read("5s"), Ok(Some(Duration::from_secs(5))));
        assert!(Option::<Duration>::read("never").is_err());
    }

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes) in
            [("17", 17), ("4 KiB", 4096), ("4K", 4096), ("8MiB", 8 << 20), ("1 gib", 1 << 30)]
        {
            assert_eq!(Size::read(text), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MiB", "1 TiB", "-4K", "99999999999 GiB"] {
            assert!(Size::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flags_shares_and_paths_refuse_anything_else() {
        assert_eq!((bool::read("Yes"), bool::read("off")), (Ok(true), Ok(false)));
        assert!(bool::read("maybe").is_err());
        assert_eq!(Percent::read("25 %"), Ok(Percent(25)));
        assert!(Percent::read("0").is_err() && Percent::read("101").is_err());
        assert_eq!(Option::<PathBuf>::read(""), Ok(None));
        assert!(Option::<PathBuf>::read("run/x").is_err());
        let here = std::env::current_dir().expect("a folder");
        assert_eq!(Folder::read("a/b"), Ok(Folder(here.join("a/b"))));
        assert_eq!(Folder::read("/a/b"), Ok(Folder(PathBuf::from("/a/b"))));
        assert_eq!((Option::<Folder>::read(""), Folder::read("").is_err()), (Ok(None), true));
        assert_eq!(Option::<PathBuf>::read("/run/x"), Ok(Some(PathBuf::from("/run/x"))));
    }
}
