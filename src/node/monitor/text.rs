//! The text of monitoring messages: OpenNebula's template syntax, written and checked.
//!
//! `NAME="value"` lines and `NAME = [ A="v", B="v" ]` blocks. Inside quotes `\"` is the only escape, values may
//! span lines, and the text `]]>` anywhere makes the whole message invalid. One syntax error rejects a whole
//! message, so nothing that others wrote is put into one unchecked ([`check`]).

use std::fmt::Write as _;

/// `value` in double quotes, made safe for the template syntax.
///
/// Quotes are escaped, `]]>` is broken by a blank, control characters other than newline and tab become blanks, a
/// backslash at the end (which would escape the closing quote) gets a blank behind it.
#[must_use]
pub fn quoted(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.replace("]]>", "]] >").chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    if out.ends_with('\\') {
        out.push(' ');
    }
    out.push('"');
    out
}

/// Adds a line `NAME="value"`.
pub fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name}={}", quoted(value));
}

/// Adds a line `NAME=number`; a number is written without quotes, as receivers expect pure digits.
pub fn number(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{name}={value}");
}

/// Adds a line `NAME = [ A = "v", B = "v" ]`.
pub fn vector(text: &mut String, name: &str, pairs: &[(&str, String)]) {
    let _ = write!(text, "{name} = [ ");
    for (at, (key, value)) in pairs.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{key} = {}", quoted(value));
    }
    text.push_str(" ]\n");
}

/// Names of the attributes of `text`, in order, once each; empty when [`check`] refuses it.
#[must_use]
pub fn names(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut scanner = Scanner { rest: text, offset: 0, names: Vec::new() };
    if scanner.statements().is_ok() {
        for name in scanner.names {
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

/// Why a text is no template, with the byte offset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no template text at byte {offset}: {reason}")]
pub struct BadText {
    /// Byte offset of the fault.
    pub offset: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// Accepts what `oned` and `onemonitord` parse; refuses everything doubtful.
///
/// # Errors
/// The place of the first fault.
pub fn check(text: &str) -> Result<(), BadText> {
    if let Some(offset) = text.find("]]>") {
        return Err(BadText { offset, reason: "]]> is not allowed anywhere" });
    }
    if let Some(offset) = text.find('\0') {
        return Err(BadText { offset, reason: "a NUL byte" });
    }
    Scanner { rest: text, offset: 0, names: Vec::new() }.statements()
}

struct Scanner<'a> {
    rest: &'a str,
    offset: usize,
    names: Vec<String>,
}

impl<'a> Scanner<'a> {
    fn fault<T>(&self, reason: &'static str) -> Result<T, BadText> {
        Err(BadText { offset: self.offset, reason })
    }

    fn skip(&mut self, bytes: usize) {
        self.offset += bytes;
        self.rest = &self.rest[bytes..];
    }

    fn take_while(&mut self, good: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !good(c)).unwrap_or(self.rest.len());
        let taken = &self.rest[..end];
        self.skip(end);
        taken
    }

    fn statements(&mut self) -> Result<(), BadText> {
        loop {
            self.take_while(|c| c.is_ascii_whitespace());
            if self.rest.is_empty() {
                return Ok(());
            }
            if self.rest.starts_with('#') {
                self.take_while(|c| c != '\n');
                continue;
            }
            let name = self.name()?;
            self.names.push(name.to_ascii_uppercase());
            self.take_while(|c| c == ' ' || c == '\t');
            if self.rest.starts_with('[') { self.pairs()? } else { self.value()? }
        }
    }

    /// A name, blanks, `=`.
    fn name(&mut self) -> Result<&'a str, BadText> {
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() {
            return self.fault("a name of letters, digits and _ is expected");
        }
        self.take_while(|c| c == ' ' || c == '\t');
        if !self.rest.starts_with('=') {
            return self.fault("= is expected behind a name");
        }
        self.skip(1);
        Ok(name)
    }

    fn value(&mut self) -> Result<(), BadText> {
        if self.rest.starts_with('"') {
            return self.quoted();
        }
        let bare = self.take_while(|c| !c.is_ascii_whitespace() && !"=#,[]\"".contains(c));
        if bare.is_empty() && !(self.rest.is_empty() || self.rest.starts_with(['\n', '\r'])) {
            return self.fault("a value is expected");
        }
        if self.rest.starts_with(['=', '#', ',', '[', ']', '"']) && !bare.is_empty() {
            return self.fault("the value must stand in quotes");
        }
        Ok(())
    }

    fn quoted(&mut self) -> Result<(), BadText> {
        self.skip(1);
        loop {
            self.take_while(|c| c != '"' && c != '\\');
            if self.rest.starts_with("\\\"") {
                self.skip(2);
            } else if self.rest.starts_with('\\') {
                self.skip(1);
            } else if self.rest.starts_with('"') {
                self.skip(1);
                return Ok(());
            } else {
                return self.fault("a quote is not closed");
            }
        }
    }

    fn pairs(&mut self) -> Result<(), BadText> {
        self.skip(1);
        loop {
            self.take_while(|c| c.is_ascii_whitespace());
            self.name()?;
            self.take_while(|c| c == ' ' || c == '\t');
            if self.rest.starts_with('"') {
                self.quoted()?;
            } else {
                self.take_while(|c| !c.is_ascii_whitespace() && !"=#,[]\"".contains(c));
            }
            self.take_while(|c| c.is_ascii_whitespace());
            if self.rest.starts_with(']') {
                self.skip(1);
                return Ok(());
            }
            if !self.rest.starts_with(',') {
                return self.fault(", or ] is expected");
            }
            self.skip(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_can_hold_anything() {
        for (value, written) in [
            ("plain", r#""plain""#),
            (r#"a "b", [c]"#, r#""a \"b\", [c]""#),
            ("x]]>y", r#""x]] >y""#),
            ("end\\", "\"end\\ \""),
            ("bell\u{7}nul\0", "\"bell nul \""),
            ("two\nlines", "\"two\nlines\""),
        ] {
            assert_eq!(quoted(value), written);
            let mut text = String::new();
            line(&mut text, "A", value);
            vector(&mut text, "B", &[("X", value.to_owned()), ("Y", value.to_owned())]);
            assert_eq!(check(&text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_opennebula_sends_itself_is_accepted() {
        for text in [
            "ARCH=x86_64\nHYPERVISOR=kvm\nMODELNAME=\"Dummy(R) Core @ 3.2GHz\"\n",
            "CORE = [ NODE_ID=\"0\", ID=\"0\", CPUS=\"0,16,32,48\"]\nA=1 B=2\n",
            "PCI = [\n TYPE = \"a\" ,\n IFNAME =\"-\"\n]",
            "# a comment with [ and \"\nEMPTY=\nNEXT=\"\"",
            "VM=[\n  ID=3,\n  DEPLOY_ID=one-3,\n  POLL=\"STATE=a USEDCPU=1.3\" ]\n",
            "",
            "\n \n",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_would_spoil_a_message_is_refused() {
        for text in [
            "hello world",
            "A=\"open",
            "A=[B=1",
            "A=[B=1 C=2]",
            "A=b]]>",
            "=1",
            "A B=1",
            "A=x,y",
            "ä=1",
            "A=[]",
            "A=1\0",
            "A=\"x\"]]>",
            "<html>",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_upper_case_and_once() {
        assert_eq!(names("a=1\nB=[X=1]\nA=\"2\"\n"), ["A", "B"]);
    }
}
