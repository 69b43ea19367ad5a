//! What a check finds.

use std::ops::Range;
use std::path::Path;

use clap::ValueEnum;

use crate::conf::findings::FINDINGS;
use crate::template::text::{Gravity, Notice, SyntaxError, offset_of};
use crate::template::{Level, Origin};

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// vmm_exec_kvm.conf
    Conf,
    /// kvmrc
    Kvmrc,
    /// kvmad.conf
    Settings,
    /// A VM, as template or document
    Vm,
}

impl Kind {
    /// Tells it from the name.
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().to_ascii_lowercase();
        if name.contains("kvmrc") {
            Self::Kvmrc
        } else if name.starts_with("kvmad.conf") {
            Self::Settings
        } else if name.ends_with(".tmpl") || name.ends_with(".xml") {
            Self::Vm
        } else {
            Self::Conf
        }
    }

    /// The word for it in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Conf => "vmm_exec_kvm.conf",
            Self::Kvmrc => "kvmrc",
            Self::Settings => "kvmad.conf",
            Self::Vm => "vm",
        }
    }
}

/// One file after its check.
#[derive(Debug)]
pub struct Checked {
    /// Its name for people.
    pub file: String,
    /// What it is.
    pub kind: Kind,
    /// Its text, for pictures; empty when it is no text.
    pub text: String,
    /// What was found, in order of place.
    pub findings: Vec<Finding>,
    /// What could not be checked, and why.
    pub unchecked: Vec<String>,
}

/// One thing that is wrong, or probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A word for its class that stays the same between versions.
    pub id: &'static str,
    /// How grave it is.
    pub gravity: Gravity,
    /// The key or variable; may be empty.
    pub key: String,
    /// Line and column from 1, and the bytes, when there is a place.
    pub place: Option<(usize, usize, Range<usize>)>,
    /// What is the case.
    pub why: String,
    /// What to do.
    pub mend: String,
}

impl Checked {
    /// A file of which nothing is known yet.
    pub fn new(file: &str, kind: Kind, text: &str) -> Self {
        Self {
            file: file.to_owned(),
            kind,
            text: text.to_owned(),
            findings: Vec::new(),
            unchecked: Vec::new(),
        }
    }

    /// Adds a finding at a place of the text, marked to the end of its line.
    pub fn find(
        &mut self,
        id: &'static str,
        gravity: Gravity,
        key: String,
        at: Option<&Origin>,
        why: String,
        mend: impl Into<String>,
    ) {
        let place = at.filter(|origin| origin.line > 0).map(|origin| {
            let (line, column) = (origin.line as usize, origin.column.max(1) as usize);
            (line, column, self.to_end_of_line(line, column))
        });
        debug_assert!(FINDINGS.iter().any(|(known, _)| *known == id), "{id} is not in the table");
        self.findings.push(Finding { id, gravity, key, place, why, mend: mend.into() });
    }

    fn to_end_of_line(&self, line: usize, column: usize) -> Range<usize> {
        let start = offset_of(&self.text, line, column);
        let rest = self.text[start..].split('\n').next().unwrap_or("");
        start..start + rest.trim_end().len().max(1).min(self.text.len() - start)
    }

    /// Adds what the parser of template text has to say.
    pub fn add_text(&mut self, error: Option<&SyntaxError>, notices: &[Notice]) {
        if let Some(error) = error {
            self.findings.push(Finding {
                id: "syntax",
                gravity: Gravity::Error,
                key: String::new(),
                place: Some((error.line, error.column, error.span.clone())),
                why: format!("{}; everything from here on is lost", error.message),
                mend: error.help.unwrap_or("see docs/conf.md for the syntax").to_owned(),
            });
        }
        for notice in notices {
            self.findings.push(Finding {
                id: notice.kind.id(),
                gravity: notice.kind.gravity(),
                key: notice.key.clone(),
                place: Some((notice.line, notice.column, notice.span.clone())),
                why: notice.kind.message(),
                mend: notice.kind.help().to_owned(),
            });
        }
    }

    /// Puts the findings in order of place; those without one come last.
    pub fn sorted(mut self) -> Self {
        self.findings.sort_by_key(|finding| finding.place.as_ref().map_or(usize::MAX, |place| place.2.start));
        self
    }
}

/// A place in a kvmrc.
pub fn line_of_kvmrc(line: Option<u32>) -> Option<Origin> {
    line.map(|line| Origin { level: Level::Kvmrc, file: None, line, column: 1 })
}
