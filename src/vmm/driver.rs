//! The driver between the protocol and the plans: what a request is, and how it stands to other ones.

use crate::mad::actions::{Actions, Answer, Context, Keys, Overtake, Prepared, Request};

use super::execute::Executor;
use super::payload::Action;
use super::plan::{self, Plan};
use super::setup::Setup;
use super::verb::Verb;

/// Serves the requests of the VMM protocol.
#[derive(Debug)]
pub struct Driver {
    setup: Setup,
    executor: Executor,
}

impl Driver {
    /// Plans as `setup` says, carries out by `executor`.
    #[must_use]
    pub fn new(setup: Setup, executor: Executor) -> Self {
        Self { setup, executor }
    }
}

/// What a request comes to.
#[derive(Debug)]
pub enum Work {
    /// It is carried out.
    Plan(Box<Plan>),
    /// It is refused, for this reason, with the prefix that its reply must have.
    Refusal(String),
}

impl Driver {
    fn plan(&self, verb: Verb, action: &Action, request: &Request) -> Result<Box<Plan>, String> {
        if let Some(reason) = other_vm(request, action) {
            return Err(reason);
        }
        plan::plan(verb, action, &self.setup).map(Box::new).map_err(|refusal| refusal.to_string())
    }
}

impl Actions for Driver {
    type Work = Work;

    fn prepare(&self, request: &Request) -> Result<Prepared<Work>, String> {
        let verb = Verb::from_wire(&request.verb)
            .ok_or_else(|| format!("the action {} is not known to this driver", request.verb))?;
        let action =
            Action::from_payload(&request.payload).map_err(|error| format!("Cannot perform {verb}: {error}"));
        let (prefix, planned) = match &action {
            Ok(action) => (plan::prefix(verb, action), self.plan(verb, action, request)),
            Err(reason) => (plan::prefix_of_nothing(verb), Err(reason.clone())),
        };
        let (places, work) = match planned {
            Ok(plan) => (places(&plan), Work::Plan(plan)),
            // oned finds the request by the first word of the reply, also of a FAILURE.
            Err(reason) if prefix.is_some() => (Vec::new(), Work::Refusal(reason)),
            Err(reason) => return Err(reason),
        };
        let keys = Keys { subject: request.number, places };
        Ok(Prepared { keys, overtake: overtake(verb), prefix, work })
    }

    async fn run(&self, work: Work, context: Context) -> Answer {
        match work {
            Work::Plan(plan) => self.executor.run(&plan, &context).await,
            Work::Refusal(reason) => Answer::Failure(reason),
        }
    }
}

/// A document of another VM than that of the request would be carried out under the wrong lock.
fn other_vm(request: &Request, action: &Action) -> Option<String> {
    let same = action.id().parse::<i64>().is_ok_and(|id| id == request.number);
    (request.number >= 0 && !same)
        .then(|| format!("the document is of VM {}, the request of VM {}", action.id(), request.number))
}

fn places(plan: &Plan) -> Vec<String> {
    std::iter::once(&plan.host).chain(&plan.second).map(ToString::to_string).collect()
}

fn overtake(verb: Verb) -> Overtake {
    match verb {
        Verb::Cancel | Verb::Cleanup => Overtake::End,
        Verb::UpdateSg | Verb::UpdateNic => Overtake::Spared,
        Verb::BackupCancel => Overtake::Stop("BACKUP"),
        Verb::Exec | Verb::ExecCancel | Verb::Poll => Overtake::Each,
        _ => Overtake::Wait,
    }
}
