//! Steps on the front-end: scripts of transfer manager and datastore drivers.

use bytes::Bytes;

use crate::host::job::Place;

use super::build::{Builder, name, text};
use super::{Call, Form, Kind, Refusal, Source, Stdin, Step, Value, What};

/// A command for a transfer manager driver: `VERB[.SUFFIX] DRIVER WORD...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// The verb without its suffix.
    pub(crate) verb: String,
    /// The suffix with its dot, or nothing.
    pub(crate) suffix: String,
    /// The driver.
    pub(crate) driver: String,
    /// What follows.
    pub(crate) words: Vec<String>,
}

impl Command {
    /// Takes one line apart; words are separated by blanks, as `oned` writes them.
    pub(crate) fn parse(line: &str) -> Result<Self, Refusal> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let verb = words.next().unwrap_or_default();
        let driver = words.next().unwrap_or_default();
        let verb = name("the transfer command", &verb)?;
        let driver = name("the transfer driver", &driver)?;
        let (verb, suffix) = match verb.find('.') {
            Some(at) => (verb[..at].to_owned(), verb[at..].to_owned()),
            None => (verb, String::new()),
        };
        Ok(Self { verb, suffix, driver, words: words.collect() })
    }

    /// The same command for another verb.
    pub(crate) fn as_verb(&self, verb: impl Into<String>) -> Self {
        Self { verb: verb.into(), ..self.clone() }
    }

    /// The step that runs it, reading nothing.
    pub(crate) fn step(&self, name: &str) -> Step {
        self.step_reading(name, Stdin::nothing())
    }

    /// The step that runs it, reading `stdin`.
    pub(crate) fn step_reading(&self, name: &str, stdin: Stdin) -> Step {
        let plain = self.verb.to_lowercase();
        let mut names = vec![plain.clone()];
        if !self.suffix.is_empty() {
            names.insert(0, format!("{plain}{}", self.suffix.to_lowercase()));
        }
        let call = Call {
            label: None,
            place: Place::Local,
            program: What::Driver { folder: format!("tm/{}", self.driver), names },
            args: self.words.iter().map(text).collect(),
            stdin,
        };
        Step::new(Kind::Transfer, name, vec![call])
    }
}

impl Builder<'_> {
    /// The TM_COMMAND that the action can't do without.
    pub(crate) fn command(&self) -> Result<Command, Refusal> {
        Command::parse(&self.need("TM_COMMAND")?)
    }

    /// The step that makes the context disk again, when `oned` asks for it.
    pub(crate) fn context(&self) -> Result<Option<Step>, Refusal> {
        let Some(line) = self.action.filled("TM_COMMAND") else { return Ok(None) };
        Ok(Some(Command::parse(&line)?.step("tm_context")))
    }

    /// The VM element as `form`.
    pub(crate) fn vm_stdin(&self, form: Form) -> Stdin {
        Stdin { source: Source::Data(self.action.slice(self.action.vm())), form }
    }

    /// A script of a datastore driver, on the front-end.
    pub(crate) fn datastore(
        &self,
        driver: &str,
        script: &str,
        words: &[String],
        stdin: Stdin,
    ) -> Result<Step, Refusal> {
        let driver = name("DATASTORE/DS_MAD", driver)?;
        let call = Call {
            label: None,
            place: Place::Local,
            program: What::Driver { folder: format!("datastore/{driver}"), names: vec![script.to_owned()] },
            args: words.iter().map(text).collect::<Vec<Value>>(),
            stdin,
        };
        Ok(Step::new(Kind::Datastore, script, vec![call]))
    }

    /// The document of datastore scripts: DATASTORE and VM.
    pub(crate) fn datastore_stdin(&self) -> Stdin {
        let datastore = self.action.root().child("DATASTORE").map_or("", |ds| self.action.source_of(ds));
        let vm = self.action.source_of(self.action.vm());
        let all = format!("<DS_DRIVER_ACTION_DATA>{datastore}{vm}</DS_DRIVER_ACTION_DATA>");
        Stdin { source: Source::Data(Bytes::from(all)), form: Form::Plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_taken_apart_at_its_blanks() {
        let command = Command::parse("CLONE.ssh shared  fe:/a b:/c/disk.0 7 101\n").expect("good");
        assert_eq!((command.verb.as_str(), command.suffix.as_str()), ("CLONE", ".ssh"));
        assert_eq!(command.driver, "shared");
        assert_eq!(command.words, ["fe:/a", "b:/c/disk.0", "7", "101"]);
    }

    #[test]
    fn the_script_with_the_suffix_comes_before_the_one_without() {
        let step = Command::parse("CLONE.ssh shared a").expect("good").step("tm_attach");
        let names = vec!["clone.ssh".to_owned(), "clone".to_owned()];
        assert_eq!(step.calls[0].program, What::Driver { folder: "tm/shared".to_owned(), names });
    }

    #[test]
    fn a_command_can_not_leave_the_folder_of_drivers() {
        for line in
            ["CLONE ../x a", "CLONE", "", "../CLONE ssh a", "CLONE /x", "CLONE -x", "A;B ssh", ".. ssh"]
        {
            assert!(Command::parse(line).is_err(), "{line}");
        }
    }
}
