//! What a key takes, and what is wrong with a value that it does not.

use std::fmt::Write as _;

use super::nearest::nearest;
use crate::host::job::HostName;
use crate::node::migrate::{settings, transport};

/// How the QEMU driver of libvirt is reached on another host.
const PROTOCOLS: &[&str] =
    &["qemu+ssh", "qemu+tcp", "qemu+tls", "qemu", "qemu+libssh2", "qemu+libssh", "qemu+ext"];

/// One key of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The vector that it is a member of; empty for a single attribute or a variable.
    pub vector: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// What the shipped file says.
    pub shipped: Shipped,
    /// Who may say it beside this file, first one first: `VM, host, cluster`.
    pub levels: &'static str,
    /// What it does, for people.
    pub text: &'static str,
}

/// What the shipped file says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shipped {
    /// This value.
    Set(&'static str),
    /// Nothing; the line is there as a comment, with this value as an example.
    Example(&'static str),
}

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Any text.
    Text,
    /// An absolute path.
    Path,
    /// Absolute paths with blanks between.
    Paths,
    /// `yes` in any case; all else is no.
    YesNo,
    /// yes or no in any case, and what else switches are called: true, on, 1; false, off, 0.
    Switch,
    /// A whole number from the first to the second.
    Whole(i64, i64),
    /// Digits only, at most this number; anything else counts as 0.
    Digits(u64),
    /// `auto` in lower case, or a whole number above 0.
    Queues,
    /// One of these words, exactly; anything else is written into the domain as it is and libvirt refuses it.
    Word(&'static [&'static str]),
    /// One of these words in any case; anything else is ignored.
    AnyCase(&'static [&'static str]),
    /// `BIOS` or `UEFI` in any case, or an absolute path.
    Firmware,
    /// `1024x768`
    Resolution,
    /// CPU numbers of a host: `0-3,8`.
    Cpus,
    /// Markup that goes into the domain as it is, at the place that is named.
    Markup(Inside),
    /// URI of the libvirt that is talked to; a word without a scheme may be an alias of libvirt.conf.
    Connect,
    /// Scheme of the URI under which a host reaches the libvirt of another one.
    Protocol,
    /// Where the data of a migration are sent, `{target}` and `{short}` standing for the target.
    DataUri,
    /// Percent of auto-converge: `no`, `yes`, `20`, `20,10`.
    Converge,
    /// What is done about a migration, in order: `slow,abort`.
    Remedies,
    /// Words as a shell would split them.
    Words,
}

/// Where markup of a key goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    /// `domain`
    Domain,
    /// `domain/features/hyperv`
    Hyperv,
    /// `domain/clock`
    Clock,
    /// `domain/devices`
    Devices,
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// Whether the reader certainly does not take it as it is meant.
    pub certain: bool,
    /// What is the case.
    pub why: String,
    /// What to write instead.
    pub mend: String,
}

impl Doubt {
    fn certain(why: String, mend: impl Into<String>) -> Option<Self> {
        Some(Self { certain: true, why, mend: mend.into() })
    }
}

impl Key {
    /// Its full name, `OS/ARCH`.
    #[must_use]
    pub fn path(&self) -> String {
        if self.vector.is_empty() { self.name.to_owned() } else { format!("{}/{}", self.vector, self.name) }
    }

    /// What is wrong with `value`, if anything. An empty value stands for none.
    #[must_use]
    pub fn doubt(&self, value: &str) -> Option<Doubt> {
        if value.is_empty() { None } else { self.takes.doubt(value) }
    }
}

impl Takes {
    fn doubt(self, value: &str) -> Option<Doubt> {
        match self {
            Self::Text | Self::Markup(_) => None,
            Self::YesNo => yes_no(value),
            Self::Switch => reader(settings::switch(value.trim()), value, "yes or no"),
            Self::Whole(least, most) => whole(value, least, most),
            Self::Digits(most) => digits(value, most),
            Self::Queues => queues(value),
            Self::Word(words) => word(value, words),
            Self::AnyCase(words) => any_case(value, words),
            Self::Path => path(value),
            Self::Paths => value.split(' ').filter(|part| !part.is_empty()).find_map(path),
            Self::Firmware => firmware(value),
            Self::Resolution => resolution(value),
            Self::Cpus => cpus(value),
            Self::Connect => connect(value),
            Self::Protocol => protocol(value),
            Self::DataUri => data_uri(value),
            Self::Converge => reader(settings::converge(value.trim()), value, "yes, no, 20 or 20,10"),
            Self::Remedies => reader(
                settings::remedies(value),
                value,
                "slow, postcopy, suspend, abort with commas between, or none",
            ),
            Self::Words => reader(settings::words(value), value, "its quotes in pairs"),
        }
    }

    /// For the documentation: what it takes, in words.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Path => "an absolute path".to_owned(),
            Self::Paths => "absolute paths with blanks between".to_owned(),
            Self::YesNo => "`yes` in any case; anything else is no".to_owned(),
            Self::Switch => "`yes` or `no` (also true, on, 1; false, off, 0)".to_owned(),
            Self::Whole(least, i64::MAX | 2_147_483_647) => format!("a whole number from {least}"),
            Self::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Self::Digits(_) => "digits".to_owned(),
            Self::Queues => "`auto` (as many as the VM has vCPUs) or a whole number".to_owned(),
            Self::Word(words) => format!("one of {}", list(words)),
            Self::AnyCase(words) => format!("one of {}, in any case", list(words)),
            Self::Firmware => "`BIOS`, `UEFI` or the path of a firmware file".to_owned(),
            Self::Resolution => "WIDTHxHEIGHT".to_owned(),
            Self::Cpus => "CPU numbers such as `0-3,8`".to_owned(),
            Self::Connect => "a libvirt URI".to_owned(),
            Self::Protocol => format!("one of {}", list(PROTOCOLS)),
            Self::DataUri => "`tcp://ADDRESS`, `tcp://ADDRESS:PORT` or `rdma://ADDRESS`".to_owned(),
            Self::Converge => "`yes`, `no`, `PERCENT` or `PERCENT,PERCENT`".to_owned(),
            Self::Remedies => {
                "`slow`, `postcopy`, `suspend`, `abort` with commas between, or `none`".to_owned()
            }
            Self::Words => "words of a shell".to_owned(),
            Self::Markup(Inside::Domain) => "XML for `domain`".to_owned(),
            Self::Markup(Inside::Hyperv) => "XML for `domain/features/hyperv`".to_owned(),
            Self::Markup(Inside::Clock) => "XML for `domain/clock`".to_owned(),
            Self::Markup(Inside::Devices) => "XML for `domain/devices`".to_owned(),
        }
    }
}

fn list(words: &[&str]) -> String {
    let mut text = String::new();
    for (number, word) in words.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}`{word}`", if number == 0 { "" } else { ", " });
    }
    text
}

fn yes_no(value: &str) -> Option<Doubt> {
    if value.eq_ignore_ascii_case("yes") || value.eq_ignore_ascii_case("no") {
        return None;
    }
    let mend = match value.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "on" | "y" | "yes" | "enabled" => "write \"yes\"",
        "false" | "0" | "off" | "n" | "no" | "disabled" => "write \"no\"",
        _ => "write \"yes\" or \"no\"",
    };
    Doubt::certain(format!("only yes (in any case) is yes; {value:?} counts as no"), mend)
}

fn whole(value: &str, least: i64, most: i64) -> Option<Doubt> {
    let start = value.trim_start();
    let plain = start.strip_prefix('+').unwrap_or(start);
    match plain.parse::<i64>() {
        Ok(number) if (least..=most).contains(&number) && !plain.starts_with('+') => None,
        Ok(_) => Doubt::certain(
            format!("{value:?} is out of range"),
            format!("write a number from {least} to {most}"),
        ),
        Err(_) => Doubt::certain(
            format!("{value:?} is no whole number, so no reader takes it"),
            "write digits only, without blanks behind, unit or point",
        ),
    }
}

fn digits(value: &str, most: u64) -> Option<Doubt> {
    if !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Doubt::certain(
            format!("{value:?} holds something other than digits, so it counts as 0"),
            "write digits only, without unit, sign or blank",
        );
    }
    match value.parse::<u64>() {
        Ok(number) if number <= most => None,
        _ => {
            Doubt::certain(format!("{value:?} is too large, so {most} is written"), "write a smaller number")
        }
    }
}

fn queues(value: &str) -> Option<Doubt> {
    if value == "auto" || value.parse::<u32>().is_ok_and(|number| number > 0) {
        return None;
    }
    let mend = if value.eq_ignore_ascii_case("auto") {
        "write auto in lower case"
    } else {
        "write auto or a number"
    };
    Doubt::certain(format!("{value:?} is neither auto nor a number of queues"), mend)
}

fn suggestion(value: &str, words: &[&str]) -> String {
    match nearest(value, words.iter().copied()) {
        Some(word) => format!("did you mean {word:?}?"),
        None => format!("write one of {}", words.join(", ")),
    }
}

fn word(value: &str, words: &[&str]) -> Option<Doubt> {
    if words.contains(&value) {
        return None;
    }
    Some(Doubt {
        certain: false,
        why: format!("{value:?} is none of the words that are known here"),
        mend: suggestion(value, words),
    })
}

fn any_case(value: &str, words: &[&str]) -> Option<Doubt> {
    if words.iter().any(|word| word.eq_ignore_ascii_case(value)) {
        return None;
    }
    Doubt::certain(format!("{value:?} is ignored"), suggestion(value, words))
}

fn path(value: &str) -> Option<Doubt> {
    if value.starts_with('/') {
        return None;
    }
    Doubt::certain(format!("{value:?} is no absolute path"), "begin it with /")
}

fn firmware(value: &str) -> Option<Doubt> {
    if ["BIOS", "UEFI"].iter().any(|word| word.eq_ignore_ascii_case(value)) || value.starts_with('/') {
        return None;
    }
    Doubt::certain(
        format!("{value:?} is taken for the path of a firmware file"),
        "write BIOS, UEFI or an absolute path",
    )
}

fn resolution(value: &str) -> Option<Doubt> {
    let number = |text: &str| text.parse::<u32>().is_ok_and(|number| number > 0);
    if value.split_once('x').is_some_and(|(x, y)| number(x) && number(y)) {
        return None;
    }
    Doubt::certain(format!("{value:?} is no resolution"), "write it as 1024x768")
}

fn cpus(value: &str) -> Option<Doubt> {
    let number = |text: &str| text.parse::<u16>().ok();
    let range = |part: &str| match part.strip_prefix('^').unwrap_or(part).split_once('-') {
        Some((from, to)) => number(from).zip(number(to)).is_some_and(|(from, to)| from <= to),
        None => number(part.strip_prefix('^').unwrap_or(part)).is_some(),
    };
    if value.split(',').all(range) {
        return None;
    }
    Doubt::certain(format!("{value:?} is no list of CPU numbers"), "write it as 0-3,8")
}

/// What the reader of a setting of migrations makes of it.
fn reader<T>(read: Option<T>, value: &str, expected: &str) -> Option<Doubt> {
    if read.is_some() || value.trim().is_empty() {
        return None;
    }
    Doubt::certain(format!("{value:?} can't be used, so the default counts"), format!("write {expected}"))
}

fn protocol(value: &str) -> Option<Doubt> {
    if PROTOCOLS.contains(&value.trim()) {
        return None;
    }
    Doubt::certain(
        format!("libvirt has no protocol {value:?} to reach another host"),
        suggestion(value, PROTOCOLS),
    )
}

fn data_uri(value: &str) -> Option<Doubt> {
    // Any target will do: what is wrong is in the pattern.
    let target = HostName::new("target.example.org").ok()?;
    let setting = |name: &str| (name == "MIGRATE_URI").then(|| value.trim().to_owned());
    if value.trim().is_empty() || transport::data_uri(setting, &target).is_ok() {
        return None;
    }
    Doubt::certain(
        format!("{value:?} is no address for a migration, so none begins"),
        "write tcp://ADDRESS, tcp://ADDRESS:PORT or rdma://ADDRESS",
    )
}

fn connect(value: &str) -> Option<Doubt> {
    let scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    if value.split_once(":///").or_else(|| value.split_once("://")).is_some_and(|(name, rest)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(scheme) && !rest.is_empty()
    }) {
        return None;
    }
    Some(Doubt {
        certain: false,
        why: format!("{value:?} is no URI; libvirt takes it for an alias of its libvirt.conf, or refuses it"),
        mend: "write qemu:///system".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_takes_what_is_right_and_doubts_what_is_not() {
        use Takes::*;
        let rows: &[(Takes, &[&str], &[&str])] = &[
            (Text, &["", "x", "a b"], &[]),
            (YesNo, &["yes", "No", "YES"], &["true", "1", "on", "yes ", "false"]),
            (Switch, &["yes", "No", "TRUE", "on", "1", "off", "0"], &["ja", "2", "y"]),
            (
                Whole(0, 100),
                &["0", "100", " 7", "+7", "007"],
                &["7 ", "7k", "0x10", "101", "-1", "1.0", "++1"],
            ),
            (Digits(10), &["0", "10"], &["11", "-1", "1k", " 1", "99999999999999999999999"]),
            (Queues, &["auto", "4"], &["AUTO", "0", "4x", "-1"]),
            (Word(&["none", "writeback"]), &["none"], &["None", "writebck"]),
            (AnyCase(&["vnc", "spice"]), &["VNC"], &["sdl"]),
            (Path, &["/usr/bin/x"], &["x", "./x"]),
            (Paths, &["/a /b", "/a"], &["/a b"]),
            (Firmware, &["BIOS", "uefi", "/x.fd"], &["efi"]),
            (Resolution, &["1024x768"], &["1024", "x", "1024X768", "1x0"]),
            (Cpus, &["0", "0-3,8", "0-7,^2"], &["a", "3-1", "0,", "-1"]),
            (
                Connect,
                &["qemu:///system", "qemu+tls://h/system", "test:///default"],
                &["xyz", "qemu:/", "://x"],
            ),
            (Protocol, &["qemu+ssh", "qemu+tls", "qemu"], &["qemu+shs", "ssh", "qemu+ssh://x"]),
            (
                DataUri,
                &["tcp://{short}-migration", "tcp://{target}:49152", "rdma://10.0.0.2", "tcp://[fd00::2]"],
                &["foo", "tcp://", "http://h", "tcp://a b", "{target}"],
            ),
            (Converge, &["yes", "NO", "20", "20,10"], &["900", "foo", "20,", "0"]),
            (
                Remedies,
                &["slow,abort", "none", "postcopy", "slow suspend"],
                &["slow,explode", "aborrt", "none,abort"],
            ),
            (Words, &["--unsafe", "--a 'b c'"], &["--a 'b"]),
        ];
        for (takes, good, bad) in rows {
            let key = Key {
                vector: "",
                name: "X",
                takes: *takes,
                shipped: Shipped::Example(""),
                levels: "",
                text: "",
            };
            for value in *good {
                assert_eq!(key.doubt(value), None, "{takes:?} {value:?}");
            }
            for value in *bad {
                assert!(key.doubt(value).is_some(), "{takes:?} {value:?}");
            }
        }
    }

    #[test]
    fn a_mend_names_the_word_that_was_probably_meant() {
        let cache = Takes::Word(&["none", "writethrough", "writeback"]);
        assert_eq!(cache.doubt("writebak").map(|d| d.mend).as_deref(), Some("did you mean \"writeback\"?"));
        assert_eq!(Takes::YesNo.doubt("true").map(|d| d.mend).as_deref(), Some("write \"yes\""));
        assert_eq!(Takes::YesNo.doubt("ja").map(|d| d.mend).as_deref(), Some("write \"yes\" or \"no\""));
        assert_eq!(Takes::YesNo.doubt("off").map(|d| d.mend).as_deref(), Some("write \"no\""));
    }
}
