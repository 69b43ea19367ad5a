//! What a plan is made of.

use bytes::Bytes;

use crate::host::job::{HostName, Place};
use crate::vmm::verb::Verb;

/// What one request makes happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The action.
    pub verb: Verb,
    /// Id of the VM.
    pub vm: String,
    /// The main host.
    pub host: HostName,
    /// The second host, where the action works on one.
    pub second: Option<HostName>,
    /// The whole action document.
    pub document: Bytes,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// What SUCCESS says.
    pub info: Info,
    /// Written in front of the info of every reply: the id of the security group or network.
    pub prefix: Option<String>,
}

/// What a SUCCESS reply says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Info {
    /// Nothing at all.
    Nothing,
    /// Stdout of the step with this name, trimmed; `-` when it is empty.
    Output(&'static str),
    /// The deploy id that the step `deploy` printed; without one the action fails.
    DeployId,
    /// The first word that the step with this name printed; without one the action fails.
    FirstWord(&'static str),
    /// The last line that the step with this name printed: `<id> <size> [format]`; without one the action fails.
    LastLine(&'static str),
}

/// Which layer a step belongs to; the log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A script of the hypervisor.
    Vmm,
    /// A script of each network driver in use.
    Network,
    /// A script of a transfer manager driver, on the front-end.
    Transfer,
    /// A script of a datastore driver, on the front-end.
    Datastore,
}

impl Kind {
    /// As the log names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vmm => "virtualization driver",
            Self::Network => "network driver",
            Self::Transfer => "transfer manager driver",
            Self::Datastore => "datastore driver",
        }
    }
}

/// What the failure of a step does to the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// Ends it: what was done is undone, the reply is FAILURE.
    Stop,
    /// It is logged; the action goes on and may succeed.
    GoOn,
    /// As [`OnFailure::GoOn`], but steps that delete data are left out: it is not sure that nobody uses it.
    GoOnKeepingData,
}

/// When the undo of a step itself runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoWhen {
    /// When a later step ends the action after this one was done.
    Done,
    /// Also when it was ended or lost, so that nobody knows whether it took effect.
    Unsure,
    /// Also when it failed by itself.
    Failed,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Name of the operation in the log, and by which its output is found.
    pub name: String,
    /// Its layer.
    pub kind: Kind,
    /// What is called, in order; the first failure ends the step. A network step has a call per driver in use,
    /// none at all when no driver is.
    pub calls: Vec<Call>,
    /// What its failure does.
    pub on_failure: OnFailure,
    /// What undoes it, in this order.
    pub undo: Vec<Undo>,
    /// When.
    pub undo_when: UndoWhen,
    /// Once it is done there is no way back: nothing before it is undone any more.
    pub commits: bool,
    /// It deletes data.
    pub deletes: bool,
    /// A failure of it is tried again as often as `-r` says.
    pub retried: bool,
    /// Left out when the step just before it, in the same list, failed.
    pub needs_previous: bool,
    /// How to find out what became of it when it was lost.
    pub settle: Option<Settle>,
}

/// How to find out whether a step that was lost on its way took effect. Until that is known nothing that was done
/// before it is undone: it may be in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settle {
    /// Each side is asked for the state of the VM.
    Ask {
        /// Asks where the VM is when the step took effect.
        after: Box<Step>,
        /// Asks where the VM is when it did not.
        before: Box<Step>,
    },
    /// Nobody can be asked.
    Unknowable,
}

/// One thing that undoes a step, or the remark that nothing does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Carried out; its failure is reported, not followed.
    Step(Box<Step>),
    /// Stays, and the FAILURE says so.
    Remains(String),
}

/// One program run in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Network driver, in front of what it says.
    pub label: Option<String>,
    /// Where.
    pub place: Place,
    /// What.
    pub program: What,
    /// Its arguments.
    pub args: Vec<Value>,
    /// Its stdin.
    pub stdin: Stdin,
}

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A script of the remotes, by its path below their folder.
    Script(String),
    /// The first of `names` that exists in `folder` of the front-end's remotes.
    Driver {
        /// `tm/ssh`, `datastore/restic`.
        folder: String,
        /// Names of the script, the preferred first.
        names: Vec<String>,
    },
    /// A program of the system, by its absolute path.
    Program(&'static str),
    /// Nothing can be called, for this reason; the call fails.
    Impossible(String),
}

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// This text.
    Text(String),
    /// What `deploy` printed as deploy id, or this text while there is none.
    DeployId(String),
    /// Base64 of the whole document, or `-` when that is longer than one argument may be.
    Document,
    /// This text, or `-` when it is longer than one argument may be.
    Fitting(String),
}

/// What a program reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stdin {
    /// The data.
    pub source: Source,
    /// How it is written.
    pub form: Form,
}

/// Where stdin comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Empty and closed.
    Nothing,
    /// These bytes.
    Data(Bytes),
    /// The contents of this file of the front-end.
    File(String),
    /// The domain that is made from the document.
    Domain,
}

/// How stdin is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Plain,
    /// With a newline behind it: what scripts on hosts get.
    Line,
    /// Base64 in one line, and a newline.
    Base64,
    /// Base64 without any newline: what local scripts of TM and network drivers get.
    Base64Bare,
    /// Base64 in lines of 60 characters.
    Base64Lines,
    /// For a script of the hypervisor on the front-end: as it is for scripts of this project, base64 for those
    /// of OpenNebula.
    LocalScript,
}

impl Step {
    /// A step with one call, whose failure ends the action and that nothing undoes.
    #[must_use]
    pub fn new(kind: Kind, name: impl Into<String>, calls: Vec<Call>) -> Self {
        Self {
            name: name.into(),
            kind,
            calls,
            on_failure: OnFailure::Stop,
            undo: Vec::new(),
            undo_when: UndoWhen::Done,
            commits: false,
            deletes: false,
            retried: false,
            needs_previous: false,
            settle: None,
        }
    }

    /// The same step, undone by `undo` in addition.
    #[must_use]
    pub fn undone_by(mut self, undo: Step) -> Self {
        self.undo.push(Undo::Step(Box::new(undo)));
        self
    }

    /// The same step, of which `what` remains when the action fails later.
    #[must_use]
    pub fn leaves(mut self, what: impl Into<String>) -> Self {
        self.undo.push(Undo::Remains(what.into()));
        self
    }

    /// The same step, undone under other conditions.
    #[must_use]
    pub fn undone(mut self, when: UndoWhen) -> Self {
        self.undo_when = when;
        self
    }

    /// The same step, whose failure is only logged.
    #[must_use]
    pub fn no_fail(mut self) -> Self {
        self.on_failure = OnFailure::GoOn;
        self
    }
}
