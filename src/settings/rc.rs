//! OpenNebula's rc files (`defaultrc`, `vmm_execrc`): shell assignments that become environment variables.
//!
//! The usual forms (`NAME=value`, `NAME="..."`, `NAME='...'`, `export NAME=...`) are read here. A file that uses more
//! of the shell (`$VAR`, backquotes, continuation lines) is left to bash: the caller gets [`Rc::NeedsShell`] and
//! has it evaluated with the command of [`shell_command`].

use std::io::ErrorKind;
use std::path::Path;

use super::notice::Notice;

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rc {
    /// Its variables, in order.
    Variables(Vec<(String, String)>),
    /// It uses more of the shell than this reader understands.
    NeedsShell,
}

/// Arguments of bash that prints, each followed by a NUL byte, `NAME=value` of the environment after `file` was
/// loaded with every assignment exported.
#[must_use]
pub fn shell_command(file: &Path) -> Vec<std::ffi::OsString> {
    let script = "set -a; . \"$1\" >/dev/null 2>&1; env -0";
    vec!["bash".into(), "-c".into(), script.into(), "bash".into(), file.as_os_str().to_owned()]
}

/// Picks from what [`shell_command`] printed the variables whose names `file_text` assigns.
#[must_use]
pub fn from_shell(output: &[u8], file_text: &str) -> Vec<(String, String)> {
    let names: Vec<&str> =
        file_text.lines().filter_map(|line| assignment(line).map(|(name, _)| name)).collect();
    let split = |entry: &[u8]| {
        let entry = String::from_utf8_lossy(entry).into_owned();
        entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    output
        .split(|byte| *byte == 0)
        .filter_map(split)
        .filter(|(name, _)| names.contains(&name.as_str()))
        .collect()
}

/// Reads `file`. A missing file has no variables.
///
/// # Errors
/// A notice when it can't be read; the drivers go on without it.
pub fn read(file: &Path) -> Result<(Rc, String), Notice> {
    match std::fs::read(file) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Ok((parse(&text), text))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok((Rc::Variables(Vec::new()), String::new())),
        Err(error) => {
            Err(Notice(format!("{}: can't be read: {error}; its variables are unset", file.display())))
        }
    }
}

/// Reads a text of assignments.
#[must_use]
pub fn parse(text: &str) -> Rc {
    let mut variables = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, rest)) = assignment(line) else { return Rc::NeedsShell };
        let Some(value) = word(rest) else { return Rc::NeedsShell };
        variables.push((name.to_owned(), value));
    }
    Rc::Variables(variables)
}

/// `export NAME=rest` or `NAME=rest`.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").map_or(line, str::trim_start);
    let (name, rest) = line.split_once('=')?;
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let good = starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    good.then_some((name, rest))
}

/// One shell word made of bare, single quoted and double quoted parts, then nothing but a comment. `None` when
/// it needs the shell.
fn word(text: &str) -> Option<String> {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => loop {
                match chars.next()? {
                    '\'' => break,
                    c => value.push(c),
                }
            },
            '"' => loop {
                match chars.next()? {
                    '"' => break,
                    '$' | '`' | '\\' | '!' => return None,
                    c => value.push(c),
                }
            },
            ' ' | '\t' => {
                let rest = chars.as_str().trim_start();
                return (rest.is_empty() || rest.starts_with('#')).then_some(value);
            }
            c if c.is_alphanumeric() || "_-./:,+=@%^".contains(c) => value.push(c),
            _ => return None,
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(text: &str) -> Vec<(String, String)> {
        match parse(text) {
            Rc::Variables(variables) => variables,
            Rc::NeedsShell => panic!("needs a shell: {text}"),
        }
    }

    #[test]
    fn the_usual_forms_are_read() {
        let text =
            "# c\n\nPRIORITY=19\nONE_MAD_DEBUG=\nexport A=\"x y\"\nB='$z' # comment\n  C=a\"b c\"'d'\n";
        let expected = [("PRIORITY", "19"), ("ONE_MAD_DEBUG", ""), ("A", "x y"), ("B", "$z"), ("C", "ab cd")];
        let expected: Vec<_> = expected.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        assert_eq!(variables(text), expected);
    }

    #[test]
    fn whatever_needs_a_shell_is_left_to_one() {
        for text in [
            "A=$B",
            "A=\"x\ny\"",
            "A=`id`",
            "A=~/x",
            "A=x y",
            "if true; then",
            "A=\"a\\\"b\"",
            "A='open",
            "A=x;B=y",
            "1A=b",
        ] {
            assert_eq!(parse(text), Rc::NeedsShell, "{text}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn bash_evaluates_the_rest_and_only_names_of_the_file_are_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("my rc");
        let text = "X=\"a b\"\nexport Y=\"$X c\"\nZ=$(printf 'two\\nlines')\necho noise\n";
        std::fs::write(&file, text).expect("written");
        let (rc, read_text) = read(&file).expect("readable");
        assert_eq!((rc, read_text.as_str()), (Rc::NeedsShell, text));
        let words = shell_command(&file);
        let output = std::process::Command::new(&words[0]).args(&words[1..]).output().expect("bash");
        let mut variables = from_shell(&output.stdout, text);
        variables.sort();
        let expected = [("X", "a b"), ("Y", "a b c"), ("Z", "two\nlines")];
        assert_eq!(variables, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn a_missing_file_has_no_variables() {
        assert_eq!(read(Path::new("/nowhere/rc")), Ok((Rc::Variables(Vec::new()), String::new())));
    }
}
