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

impl Actions for Driver {
    type Work = Box<Plan>;

    fn prepare(&self, request: &Request) -> Result<Prepared<Self::Work>, String> {
        let verb = Verb::from_wire(&request.verb)
            .ok_or_else(|| format!("the action {} is not known to this driver", request.verb))?;
        // These two are found by the first word of their info, also when they fail.
        let refuse = |prefix: Option<&str>, reason: String| match prefix {
            Some(prefix) => format!("{prefix} {reason}"),
            None => reason,
        };
        let unread = matches!(verb, Verb::UpdateSg | Verb::UpdateNic).then_some("-1");
        let action = Action::from_payload(&request.payload)
            .map_err(|error| refuse(unread, format!("Cannot perform {verb}: {error}")))?;
        let prefix = plan::prefix(verb, &action);
        let prefix = prefix.as_deref();
        if let Some(reason) = other_vm(request, &action) {
            return Err(refuse(prefix, reason));
        }
        let plan =
            plan::plan(verb, &action, &self.setup).map_err(|refusal| refuse(prefix, refusal.to_string()))?;
        Ok(Prepared {
            keys: Keys { subject: request.number, places: places(&plan) },
            overtake: overtake(verb),
            prefix: plan.prefix.clone(),
            work: Box::new(plan),
        })
    }

    async fn run(&self, work: Self::Work, context: Context) -> Answer {
        self.executor.run(&work, &context).await
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
