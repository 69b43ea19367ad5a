//! libvirt's own configuration files (qemu.conf, libvirtd.conf): read a value, change one and leave all else as it is.
//!
//! The language: statements `key = value`, comments after `#`; a value is a number, a text in single or double quotes
//! without escapes, or a list in brackets that may go over lines. The first statement for a key counts.

use std::ops::Range;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// A list, as it is written.
    List(String),
}

impl Value {
    /// As it is written in a file.
    #[must_use]
    pub fn written(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) if text.contains('"') => format!("'{text}'"),
            Self::Text(text) => format!("\"{text}\""),
            Self::List(list) => list.clone(),
        }
    }
}

/// One statement, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Statement {
    key: String,
    value: Value,
    span: Range<usize>,
}

/// A file that was read.
#[derive(Debug, Clone, Default)]
pub struct Conf(Vec<Statement>);

impl Conf {
    /// Reads a text. A line that is no statement is passed over: libvirt itself refuses such a file, so its daemon
    /// would not run.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut all = Vec::new();
        let mut at = 0;
        while let Some(line) = text.get(at..).filter(|rest| !rest.is_empty()) {
            match statement(line) {
                Some((key, value, range)) => {
                    let end = at + range.end;
                    all.push(Statement { key, value, span: at + range.start..end });
                    at = end;
                }
                None => at += line.find('\n').map_or(line.len(), |end| end + 1),
            }
        }
        Self(all)
    }

    fn statement(&self, key: &str) -> Option<&Statement> {
        self.0.iter().find(|statement| statement.key == key)
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.statement(key).map(|statement| &statement.value)
    }

    /// The text of `key`; a number counts as its digits.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<String> {
        match self.get(key)? {
            Value::Text(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::List(_) => None,
        }
    }

    /// The number of `key`.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<i64> {
        match self.get(key)? {
            Value::Number(number) => Some(*number),
            Value::Text(_) | Value::List(_) => None,
        }
    }
}

/// `text` with `key` set to `value`: its statement replaced; else put behind its commented example; else added at the end.
#[must_use]
pub fn set(text: &str, key: &str, value: &Value) -> String {
    let line = format!("{key} = {}", value.written());
    if let Some(old) = Conf::parse(text).statement(key) {
        return format!("{}{line}{}", &text[..old.span.start], &text[old.span.end..]);
    }
    let example = |line: &str| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix(key)?;
        rest.trim_start().starts_with('=').then_some(())
    };
    let mut at = 0;
    for old in text.split_inclusive('\n') {
        at += old.len();
        if example(old).is_some() && old.ends_with('\n') {
            return format!("{}{line}\n{}", &text[..at], &text[at..]);
        }
    }
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{gap}{line}\n")
}

/// The statement that a text begins with (after blanks), and its bytes without blanks and comment around.
fn statement(text: &str) -> Option<(String, Value, Range<usize>)> {
    let start = text.len() - text.trim_start_matches([' ', '\t']).len();
    let rest = &text[start..];
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == '-';
    let length = rest.find(|c| !word(c))?;
    let key = rest.get(..length).filter(|key| !key.is_empty())?;
    let blank = |text: &str| text.len() - text.trim_start_matches([' ', '\t']).len();
    let mut at = length + blank(&rest[length..]);
    if !rest[at..].starts_with('=') {
        return None;
    }
    at += 1;
    at += blank(&rest[at..]);
    let (value, length) = value(&rest[at..])?;
    Some((key.to_owned(), value, start..start + at + length))
}

/// The value at the start of `text`, and its length.
fn value(text: &str) -> Option<(Value, usize)> {
    let first = text.chars().next()?;
    if first == '"' || first == '\'' {
        let end = text[1..].find([first, '\n']).filter(|end| text[1 + end..].starts_with(first))?;
        return Some((Value::Text(text[1..=end].to_owned()), end + 2));
    }
    if first == '[' {
        let end = list_end(text)?;
        return Some((Value::List(text[..end].to_owned()), end));
    }
    let length = text.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(text.len());
    text[..length].parse().ok().map(|number| (Value::Number(number), length))
}

/// The length of the list that `text` begins with.
fn list_end(text: &str) -> Option<usize> {
    let (mut quote, mut comment) = (None, false);
    for (at, c) in text.char_indices() {
        match (quote, comment, c) {
            (_, true, '\n') => comment = false,
            (_, true, _) => {}
            (Some(open), _, c) if c == open => quote = None,
            (Some(_), ..) => {}
            (None, _, '"' | '\'') => quote = Some(c),
            (None, _, '#') => comment = true,
            (None, _, ']') => return Some(at + 1),
            (None, ..) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# user = \"root\"\n#user = \"libvirt-qemu\"\n\n  dynamic_ownership = 0 # not\nx = [\n \"a\", # ]\n \"]\"\n]\ny='q\"q'\nx = 1\nbad line\nz = -3";

    #[test]
    fn values_are_read_and_the_first_statement_counts() {
        let conf = Conf::parse(FILE);
        assert_eq!(conf.number("dynamic_ownership"), Some(0));
        assert!(matches!(conf.get("x"), Some(Value::List(list)) if list.ends_with("\"]\"\n]")));
        assert_eq!(conf.text("y").as_deref(), Some("q\"q"));
        assert_eq!(conf.number("z"), Some(-3));
        assert_eq!(conf.get("user"), None, "a comment is no statement");
        assert_eq!(conf.get("bad"), None);
        assert_eq!(Conf::parse("user = \"open\nuser = 'a'\n").text("user").as_deref(), Some("a"));
    }

    #[test]
    fn a_value_is_set_where_it_stands_and_all_else_stays() {
        let set_to = |text: &str, key, value| set(text, key, &Value::Text(value));
        let one = set(FILE, "dynamic_ownership", &Value::Number(1));
        assert_eq!(one, FILE.replace("dynamic_ownership = 0", "dynamic_ownership = 1"));
        let user = set_to(FILE, "user", "oneadmin".into());
        assert_eq!(user, FILE.replacen("root\"\n", "root\"\nuser = \"oneadmin\"\n", 1));
        let list = set(FILE, "x", &Value::Number(5));
        assert!(list.contains("# not\nx = 5\ny="), "{list}");
        assert_eq!(set_to(FILE, "w", "v".into()), format!("{FILE}\nw = \"v\"\n"));
        assert_eq!(set_to("", "w", "v".into()), "w = \"v\"\n");
    }

    #[test]
    fn setting_twice_changes_nothing_more() {
        for text in [FILE, "", "user=\"x\"", "#user = 1\n"] {
            let once = set(text, "user", &Value::Text("oneadmin".into()));
            assert_eq!(set(&once, "user", &Value::Text("oneadmin".into())), once);
            assert_eq!(Conf::parse(&once).text("user").as_deref(), Some("oneadmin"));
        }
    }
}
