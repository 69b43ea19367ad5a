//! What the plans are made of: calls of each layer with the arguments that scripts expect.

use crate::host::job::{HostName, Place};
use crate::vmm::payload::Action;
use crate::vmm::setup::Setup;
use crate::vmm::verb::Verb;

use super::{Call, Form, Kind, Refusal, Source, Stdin, Step, Value, What};

/// What a planner has at hand.
pub(crate) struct Builder<'a> {
    pub(crate) verb: Verb,
    pub(crate) action: &'a Action,
    pub(crate) setup: &'a Setup,
    agent: bool,
}

/// Steps and what SUCCESS says.
pub(crate) type Planned = Result<(Vec<Step>, super::Info), Refusal>;

impl<'a> Builder<'a> {
    pub(crate) fn new(verb: Verb, action: &'a Action, setup: &'a Setup) -> Self {
        let agent = setup.delegates(&[verb.action(), verb.wire()]);
        Self { verb, action, setup, agent }
    }

    /// The text at `path`, which must be there.
    pub(crate) fn need(&self, path: &str) -> Result<String, Refusal> {
        self.action.filled(path).ok_or_else(|| self.expecting(path))
    }

    pub(crate) fn expecting(&self, path: &str) -> Refusal {
        Refusal::Expecting { verb: self.verb, path: path.to_owned() }
    }

    /// The id that an earlier DEPLOY returned.
    pub(crate) fn deploy_id(&self) -> Result<Value, Refusal> {
        self.need("DEPLOY_ID").map(|id| text(id.trim()))
    }

    /// The main host, as an argument.
    pub(crate) fn host(&self) -> Value {
        text(self.action.host().as_str())
    }

    pub(crate) fn place(&self, host: &HostName) -> Place {
        Place::Host { name: host.clone(), agent: self.agent }
    }

    /// A script of the hypervisor on the main host.
    pub(crate) fn vmm(&self, script: &str, args: impl IntoIterator<Item = Value>) -> Step {
        self.vmm_at(self.action.host(), script, args)
    }

    /// A script of the hypervisor on `host`; it gets `args`, the VM's id and the host, and reads the document.
    pub(crate) fn vmm_at(
        &self,
        host: &HostName,
        script: &str,
        args: impl IntoIterator<Item = Value>,
    ) -> Step {
        let mut args: Vec<Value> = args.into_iter().collect();
        args.push(text(self.action.id()));
        args.push(text(host.as_str()));
        let (place, script_name) = self.place_of(script, self.place(host));
        self.vmm_step(script, place, script_name, args)
    }

    /// A script that always had a connection of its own: never delegated, tried again with `-r`.
    pub(crate) fn direct(&self, script: &str, args: Vec<Value>) -> Step {
        let place = Place::Host { name: self.action.host().clone(), agent: false };
        let (place, script_name) = self.place_of(script, place);
        let mut step = self.vmm_step(script, place, script_name, args);
        step.retried = true;
        step
    }

    /// `args` with the VM's id and the host behind them.
    pub(crate) fn with_tail(&self, args: impl IntoIterator<Item = Value>) -> Vec<Value> {
        args.into_iter().chain([text(self.action.id()), self.host()]).collect()
    }

    fn place_of(&self, script: &str, remote: Place) -> (Place, String) {
        match self.setup.local_script(script) {
            Some(local) => (Place::Local, local),
            None => (remote, script.to_owned()),
        }
    }

    fn vmm_step(&self, name: &str, place: Place, script: String, args: Vec<Value>) -> Step {
        let form = if place == Place::Local { Form::LocalScript } else { Form::Line };
        let program = What::Script(format!("vmm/{}/{script}", self.setup.hypervisor));
        let stdin = Stdin { source: Source::Data(self.action.bytes()), form };
        Step::new(Kind::Vmm, name, vec![Call { label: None, place, program, args, stdin }])
    }
}

/// A given argument.
pub(crate) fn text(value: impl Into<String>) -> Value {
    Value::Text(value.into())
}

/// `value` as a part of a path that names a driver or script.
pub(crate) fn name(what: &'static str, value: &str) -> Result<String, Refusal> {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if value.is_empty() || value.starts_with(['.', '-']) || !value.bytes().all(inside) {
        return Err(Refusal::BadName { what, value: value.to_owned() });
    }
    Ok(value.to_owned())
}

impl Stdin {
    /// Empty and closed.
    pub(crate) fn nothing() -> Self {
        Self { source: Source::Nothing, form: Form::Plain }
    }
}
