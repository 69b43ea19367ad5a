//! Reads the settings: defaults, then `kvmad.conf`, then the environment (`KVMAD_SECTION_KEY`).
//!
//! Flags of a program beat all of them; the program puts those in itself.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ini::{Ini, ParseOption};

use super::notice::Notice;
use super::paths::Paths;
use super::table::{Setting, Settings, TABLE};

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// {file}: can't be read: {source}
    #[error("{file}: can't be read: {source}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// {file}, line {line}: {message}
    #[error("{file}, line {line}: {message}")]
    Syntax {
        /// The file.
        file: PathBuf,
        /// 1-based line.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// {file}, line {line}: {key} in section [{section}]: {message}
    #[error("{file}, line {line}: {key} in section [{section}]: {message}")]
    Value {
        /// The file.
        file: PathBuf,
        /// 1-based line.
        line: usize,
        /// Section of the setting.
        section: String,
        /// Key of the setting.
        key: String,
        /// What is wrong with the value.
        message: String,
    },
    /// environment variable {variable}: {message}
    #[error("environment variable {variable}: {message}")]
    Variable {
        /// Its name.
        variable: String,
        /// What is wrong with its value.
        message: String,
    },
}

impl SettingsError {
    /// The same with what matters first: of the answer to INIT `oned` reads 31 bytes, and 15 are left for the reason.
    #[must_use]
    pub fn key_first(&self) -> String {
        match self {
            Self::Unreadable { .. } => format!("kvmad.conf: {self}"),
            Self::Syntax { line, .. } => format!("line {line} of kvmad.conf: {self}"),
            Self::Value { key, .. } => format!("{key} in kvmad.conf: {self}"),
            Self::Variable { variable, .. } => {
                format!("{}: {self}", variable.strip_prefix("KVMAD_").unwrap_or(variable))
            }
        }
    }
}

/// One thing in a text of settings that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// 1-based line.
    pub line: usize,
    /// The key; empty when the line can't be read.
    pub key: String,
    /// What is wrong.
    pub kind: FlawKind,
}

/// How grave it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlawKind {
    /// The line can't be read, and nothing is; why.
    Syntax(String),
    /// The value can't be used, so the settings can't; why.
    Value(String),
    /// There is no such setting; where. It is ignored.
    Unknown(String),
}

/// Everything that is wrong in `text`, as [`Settings::read`] would find it one by one.
#[must_use]
pub fn flaws(text: &str) -> Vec<Flaw> {
    let ini = match parse(text) {
        Ok(ini) => ini,
        Err((line, why)) => return vec![Flaw { line, key: String::new(), kind: FlawKind::Syntax(why) }],
    };
    let mut settings = Settings::default();
    let mut flaws = Vec::new();
    for (section, properties) in &ini {
        for (key, value) in properties {
            let kind = match find(section.unwrap_or(""), key) {
                None => FlawKind::Unknown(place(section.unwrap_or(""))),
                Some(setting) => match (setting.set)(&mut settings, value.trim()) {
                    Ok(()) => continue,
                    Err(why) => FlawKind::Value(why),
                },
            };
            flaws.push(Flaw { line: line_of(text, section, key), key: key.to_owned(), kind });
        }
    }
    flaws
}

/// The text by sections, or line and reason.
fn parse(text: &str) -> Result<Ini, (usize, String)> {
    let options = ParseOption { enabled_quote: false, enabled_escape: false, ..ParseOption::default() };
    Ini::load_from_str_opt(text, options).map_err(|error| (error.line, error.msg.to_string()))
}

fn place(section: &str) -> String {
    if section.is_empty() { "outside any section".to_owned() } else { format!("in section [{section}]") }
}

impl Settings {
    /// Reads the settings of this process: the file of `paths` and the environment.
    ///
    /// # Errors
    /// See [`Settings::read`].
    pub fn load(paths: &Paths) -> Result<(Self, Vec<Notice>), SettingsError> {
        Self::read(&paths.settings_file(), std::env::vars_os())
    }

    /// Reads `file` (which may be missing) and then `environment`.
    ///
    /// # Errors
    /// [`SettingsError`] names the file and line, or the variable, and what is wrong with it.
    pub fn read(
        file: &Path,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(Self, Vec<Notice>), SettingsError> {
        let mut settings = Self::default();
        let mut notices = Vec::new();
        match std::fs::read_to_string(file) {
            Ok(text) => settings.apply_file(file, &text, &mut notices)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(SettingsError::Unreadable { file: file.to_owned(), source }),
        }
        settings.apply_environment(environment, &mut notices)?;
        Ok((settings, notices))
    }

    fn apply_file(
        &mut self,
        file: &Path,
        text: &str,
        notices: &mut Vec<Notice>,
    ) -> Result<(), SettingsError> {
        let syntax = |(line, message)| SettingsError::Syntax { file: file.to_owned(), line, message };
        let ini = parse(text).map_err(syntax)?;
        for (section, properties) in &ini {
            for (key, value) in properties {
                let line = line_of(text, section, key);
                let section = section.unwrap_or("");
                let Some(setting) = find(section, key) else {
                    let place = place(section);
                    notices.push(Notice(format!(
                        "{}, line {line}: there is no setting {key} {place}; it is ignored",
                        file.display()
                    )));
                    continue;
                };
                (setting.set)(self, value.trim()).map_err(|message| SettingsError::Value {
                    file: file.to_owned(),
                    line,
                    section: section.to_owned(),
                    key: key.to_owned(),
                    message,
                })?;
            }
        }
        Ok(())
    }

    fn apply_environment(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        notices: &mut Vec<Notice>,
    ) -> Result<(), SettingsError> {
        for (name, value) in environment {
            let Some(variable) = name.to_str().filter(|name| name.starts_with("KVMAD_")) else { continue };
            let Some(setting) = TABLE.iter().find(|setting| setting.variable() == variable) else {
                notices.push(Notice(format!(
                    "environment variable {variable}: there is no such setting; it is ignored"
                )));
                continue;
            };
            let result = match value.to_str() {
                Some(value) => (setting.set)(self, value.trim()),
                None => Err("it is not UTF-8".to_owned()),
            };
            result.map_err(|message| SettingsError::Variable { variable: variable.to_owned(), message })?;
        }
        Ok(())
    }
}

fn find(section: &str, key: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|setting| setting.section == section && setting.key == key)
}

/// 1-based line on which the last `key` of `section` stands. The ini reader keeps no places; the form is simple
/// enough to find it again.
fn line_of(text: &str, section: Option<&str>, key: &str) -> usize {
    let mut current = None;
    let mut found = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            current = Some(name.trim());
        } else if current == section && line.split(['=', ':']).next().is_some_and(|name| name.trim() == key) {
            found = index + 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(text: &str, environment: &[(&str, &str)]) -> Result<(Settings, Vec<Notice>), SettingsError> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("kvmad.conf");
        std::fs::write(&file, text).expect("written");
        Settings::read(&file, environment.iter().map(|(n, v)| (n.into(), v.into())))
    }

    #[test]
    fn a_missing_file_gives_the_documented_defaults() {
        let (settings, notices) = Settings::read(Path::new("/nowhere/kvmad.conf"), []).expect("fine");
        assert_eq!(settings, Settings::default());
        assert!(notices.is_empty());
        assert_eq!(settings.mad.log_buffer.0, 8 << 20);
        assert_eq!(settings.mad.info_limit.0, 4096);
        assert_eq!(settings.action.rollback_timeout, Duration::from_secs(60));
        assert_eq!(settings.host.connections, 128);
    }

    #[test]
    fn the_file_beats_the_defaults_and_the_environment_beats_the_file() {
        let text =
            "# a comment\n[host]\nidle = 5m\nping=1s\n; another\n[log]\nlevel = debug,kvmad::host=trace\n";
        let (settings, notices) = read(text, &[("KVMAD_HOST_PING", "2s"), ("HOME", "x")]).expect("fine");
        assert_eq!(settings.host.idle, Duration::from_secs(300));
        assert_eq!(settings.host.ping, Duration::from_secs(2));
        assert_eq!(settings.log.level, "debug,kvmad::host=trace");
        assert!(notices.is_empty(), "{notices:?}");
    }

    #[test]
    fn quotes_and_backslashes_are_kept_as_they_are() {
        let (settings, _) = read("[log]\ntarget = /a\\n\"b'\n", &[]).expect("fine");
        assert_eq!(settings.log.target, "/a\\n\"b'");
    }

    #[test]
    fn a_bad_value_is_named_by_file_line_and_key() {
        let error = read("[mad]\n\n[host]\n# idle = 3\nidle = soon\n", &[]).expect_err("bad");
        let text = error.to_string();
        assert!(text.contains("kvmad.conf, line 5: idle in section [host]: \"soon\" is not"), "{text}");
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        let error = read("[host]\nidle = 1\nwhat is this\n", &[]).expect_err("bad");
        assert!(matches!(&error, SettingsError::Syntax { .. }), "{error}");
        assert!(error.to_string().contains("kvmad.conf, line "), "{error}");
    }

    #[test]
    fn a_bad_variable_is_named() {
        let error = read("", &[("KVMAD_MAD_LOG_BUFFER", "lots")]).expect_err("bad");
        assert!(error.to_string().starts_with("environment variable KVMAD_MAD_LOG_BUFFER: "), "{error}");
    }

    #[test]
    fn unknown_keys_are_told_and_ignored() {
        let (settings, notices) = read("[host]\nidel = 3\n", &[("KVMAD_HOST_IDEL", "3")]).expect("fine");
        assert_eq!(settings, Settings::default());
        assert_eq!(notices.len(), 2);
        assert!(notices[0].0.contains("line 2: there is no setting idel in section [host]"), "{notices:?}");
    }

    #[test]
    fn all_flaws_of_a_text_are_found_with_their_lines() {
        let found = flaws("x = 1\n[host]\nidel = 3\nidle = soon\nping = 1s\n[mad]\nlog_buffer = lots\n");
        let places: Vec<(usize, &str)> = found.iter().map(|flaw| (flaw.line, flaw.key.as_str())).collect();
        assert_eq!(places, [(1, "x"), (3, "idel"), (4, "idle"), (7, "log_buffer")]);
        assert!(matches!(found[1].kind, FlawKind::Unknown(_)) && matches!(found[2].kind, FlawKind::Value(_)));
        assert!(matches!(flaws("[host]\nwhat\n")[..], [Flaw { kind: FlawKind::Syntax(_), .. }]));
        assert_eq!(flaws("# nothing\n[host]\nidle = 5m\n"), []);
    }

    #[test]
    fn a_folder_in_the_place_of_the_file_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = Settings::read(folder.path(), []).expect_err("bad");
        assert!(matches!(error, SettingsError::Unreadable { .. }));
    }
}
