//! After trouble: both hosts are asked until it is known where the domain is, and what the broken migration left is put
//! right.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::judge::{Asked, Known, Next, Side, judge};
use super::libvirt::Libvirt;
use super::voice::Voice;

/// How long libvirt has to tidy up by itself.
const OWN_TIDYING: Duration = Duration::from_secs(6);
/// So often something is done about it; what has no effect must end.
const MOVES: u32 = 10;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// For one call when the driver waits for our end.
pub const HURRIED: Duration = Duration::from_secs(4);
/// For all of it then.
const HURRIED_ALL: Duration = Duration::from_secs(12);

/// Both hosts of a migration.
#[derive(Clone)]
pub struct Pair {
    /// Where the domain was.
    pub source: Libvirt,
    /// Where it was to go.
    pub target: Libvirt,
    /// uuid of the domain.
    pub uuid: String,
    /// The guest ran before.
    pub ran: bool,
    /// The target had no such domain before.
    pub free: bool,
}

/// Where it is, and what the user must know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On the target; what is not as it should be.
    Target(Option<String>),
    /// On the source.
    Source {
        /// For people.
        text: String,
        /// Nothing of it is on the target.
        clean: bool,
    },
    /// Not on the target; more is not known.
    NotTarget(String),
    /// Nobody can tell.
    Unknown(String),
}

impl Pair {
    /// Finds out where the domain is, at most for `patience`. Short once `term` asks for the end.
    pub async fn place(&self, patience: Duration, term: &CancellationToken, voice: &Voice) -> Place {
        let begin = Instant::now();
        let mut hurried_at = None;
        let mut moves = 0;
        loop {
            let hurried = term.is_cancelled();
            let since = if hurried { *hurried_at.get_or_insert_with(Instant::now) } else { Instant::now() };
            let pair = if hurried { self.hurried() } else { self.clone() };
            let (source, target) = pair.sides().await;
            let over = begin.elapsed() >= patience || (hurried && since.elapsed() >= HURRIED_ALL);
            let well =
                begin.elapsed() >= OWN_TIDYING.min(patience / 2) || (hurried && since.elapsed() >= PAUSE * 4);
            let asked = match (over, well) {
                (true, _) => Asked::Enough,
                (_, true) => Asked::Well,
                _ => Asked::Briefly,
            };
            let next = judge(Known { ran: self.ran, free: self.free, asked }, &source, &target);
            if let Some(place) = self.told(next, &source, &target) {
                return place;
            }
            if next == Next::DestroyTarget && !pair.quiet(voice).await {
                // As long as the source still sends, the target's may come to run at any moment.
                if over {
                    return Place::Unknown(seen(self, &source, &target));
                }
            } else if next != Next::Wait {
                moves += 1;
                let failed = pair.act(next, voice).await.err();
                if let Some(why) = &failed {
                    voice.warning(why);
                }
                if moves >= MOVES || (over && failed.is_some()) {
                    let why = failed.map(|why| format!("; {why}")).unwrap_or_default();
                    return Place::Unknown(format!("{}{why}", seen(self, &source, &target)));
                }
            }
            sleep(PAUSE).await;
        }
    }

    fn hurried(&self) -> Self {
        Self { source: self.source.hurried(HURRIED), target: self.target.hurried(HURRIED), ..self.clone() }
    }

    /// Whether the source does not send (any more), and the target's copy still never ran. A migration that goes on is
    /// aborted: peer to peer it does so without virsh.
    async fn quiet(&self, voice: &Voice) -> bool {
        match self.source.job(&self.uuid).await {
            Ok(Some(job)) if job.is_migration() => {
                voice.info("the migration still goes on: it is aborted");
                let _ = self.source.call(["domjobabort", &self.uuid]).await;
                false
            }
            // It may have arrived between the look at the hosts and the one at the job.
            Ok(_) => {
                let (source, target) = self.sides().await;
                let known = Known { ran: self.ran, free: self.free, asked: Asked::Well };
                judge(known, &source, &target) == Next::DestroyTarget
            }
            Err(_) => false,
        }
    }

    async fn sides(&self) -> (Side, Side) {
        let (source, target) = tokio::join!(self.source.domain(&self.uuid), self.target.domain(&self.uuid));
        (source.into(), target.into())
    }

    /// Does what `next` says.
    async fn act(&self, next: Next, voice: &Voice) -> Result<(), String> {
        let (libvirt, verb, text) = match next {
            Next::DestroySource => {
                (&self.source, "destroy", "the copy that was left behind stands still and is removed from")
            }
            Next::SuspendSource => {
                (&self.source, "suspend", "it runs on both hosts; the older one is stopped on")
            }
            Next::ResumeSource => (&self.source, "resume", "it goes on on"),
            Next::DestroyTarget => (&self.target, "destroy", "what never came to run is removed from"),
            Next::ResumeTarget => (&self.target, "resume", "it goes on on"),
            _ => return Ok(()),
        };
        voice.info(&format!("domain {}: {text} {}", self.uuid, libvirt.host()));
        libvirt.call([verb, &self.uuid]).await.map(|_| ())
    }

    /// The end, if `next` is one.
    fn told(&self, next: Next, source: &Side, target: &Side) -> Option<Place> {
        let (here, there) = (self.source.host(), self.target.host());
        let why = |side: &Side| match side {
            Side::Silent(why) => why.clone(),
            Side::Says(domain) => format!("{domain:?}"),
        };
        Some(match next {
            Next::Arrived => Place::Target(None),
            Next::ArrivedUnconfirmed => Place::Target(Some(format!(
                "host {here} could not be asked whether something of it is left there ({})",
                why(source)
            ))),
            Next::Stayed if matches!(source, Side::Says(domain) if domain.runs() == self.ran) => {
                let text = format!("the VM is on host {here} as before and nothing of it on host {there}");
                Place::Source { text, clean: true }
            }
            Next::Stayed => {
                let text =
                    format!("the VM is on host {here} but stands still; nothing of it is on host {there}");
                Place::Source { text, clean: true }
            }
            Next::StayedUnconfirmed => {
                let text = match target {
                    Side::Silent(why) => format!(
                        "the VM is on host {here} as before; host {there} could not be asked, something may be left there ({why})"
                    ),
                    Side::Says(_) => format!(
                        "the VM is on host {here} as before; host {there} has a domain of this uuid, which was not touched"
                    ),
                };
                Place::Source { text, clean: false }
            }
            Next::NotArrived => Place::NotTarget(format!(
                "host {there} has nothing of the VM; host {here} could not be asked ({}); nothing was removed",
                why(source)
            )),
            Next::Lost => {
                Place::NotTarget(format!("the VM ended: neither host {here} nor host {there} has it"))
            }
            Next::Torn => Place::Unknown(format!(
                "the VM's memory lies on both hosts, because post-copy broke off; it stands still; nothing was removed; on host \
                 {here}: virsh migrate --live --postcopy --postcopy-resume {} {}",
                self.uuid,
                self.target.uri()
            )),
            Next::Unknown => Place::Unknown(format!("{}; nothing was removed", seen(self, source, target))),
            Next::Wait
            | Next::DestroySource
            | Next::SuspendSource
            | Next::ResumeSource
            | Next::DestroyTarget
            | Next::ResumeTarget => return None,
        })
    }
}

fn seen(pair: &Pair, source: &Side, target: &Side) -> String {
    use super::libvirt::Domain;
    let says = |side: &Side| match side {
        Side::Says(Domain::Gone) => "it is not there".to_owned(),
        Side::Says(Domain::Off) => "it is off".to_owned(),
        Side::Says(domain) if domain.runs() => "it runs".to_owned(),
        Side::Says(Domain::Active(_, reason)) => format!("it stands still (reason {reason})"),
        Side::Silent(why) => why.clone(),
    };
    format!(
        "where the VM runs can't be told; host {}: {}; host {}: {}",
        pair.source.host(),
        says(source),
        pair.target.host(),
        says(target)
    )
}
