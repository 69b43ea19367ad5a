//! One job at a host: it gets a connection, runs over it, and its end is told.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{CLOSE_WAIT, Inner, agent};
use crate::host::channel::Channel;
use crate::host::collect::Collector;
use crate::host::connection::Connection;
use crate::host::entry::Entry;
use crate::host::fallback;
use crate::host::helper::{self, Helper};
use crate::host::job::{Job, Program, Purpose, Watch};
use crate::host::stdin::Stdin;
use crate::wire::{EndedBy, Exit, How, Open, Refusal, WhyRefused};

/// Beyond its limit and grace, a helper gets this long to tell the end of a command.
const SLACK: Duration = Duration::from_secs(15);

/// What a cancelled job is told that was never started.
const CANCELLED: Ran = Ran::Exit(Exit { how: How::Signaled(15), by: EndedBy::Request });

/// How a job ended at its place, before it is told as an outcome.
pub(super) enum Ran {
    Exit(Exit),
    Refused(Refusal),
    Lost(String),
    /// Without a sign of life.
    Silent(String),
}

impl Ran {
    /// From what a helper says; `why` tells why it was lost, which may have been `silent`ly.
    pub(super) async fn of_helper(
        ended: helper::Ended,
        silent: bool,
        why: impl AsyncFnOnce() -> String,
    ) -> Self {
        match ended {
            helper::Ended::Exit(exit) => Self::Exit(exit),
            helper::Ended::Refused(refusal) => Self::Refused(refusal),
            helper::Ended::Lost if silent => Self::Silent(why().await),
            helper::Ended::Lost => Self::Lost(why().await),
        }
    }
}

/// What is to be run, and who is told of it meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) open: &'a Open,
    pub(super) stdin: &'a Stdin,
    pub(super) watch: &'a Watch,
}

/// A job at a host.
pub(super) struct At<'a> {
    pub(super) entry: &'a Arc<Entry>,
    pub(super) agent: bool,
    pub(super) job: &'a Job,
}

impl Inner {
    pub(super) async fn run_on_host(&self, at: At<'_>, wanted: Wanted<'_>, output: &mut Collector) -> Ran {
        let watch = wanted.watch;
        let connecting = async {
            match at.job.purpose {
                Purpose::Action => self.connect(at.entry, watch).await,
                Purpose::RollBack => self.connect_for_rollback(at.entry).await,
            }
        };
        let connected = tokio::select! {
            biased;
            () = watch.cancel.cancelled() => return CANCELLED,
            connected = connecting => connected,
        };
        let connection = match connected {
            Ok(connected) => connected,
            Err(reason) => return Ran::Lost(reason),
        };
        let mut ran = self.once(&at, &connection, wanted, output).await;
        if let Ran::Refused(Refusal { why: WhyRefused::Missing, text }) = &ran
            && matches!(at.job.program, Program::Script(_))
            && self.options.push
        {
            ran = match self.push_missing(&at, &connection, text, watch).await {
                Err(text) => Ran::Refused(Refusal { why: WhyRefused::Missing, text }),
                Ok(()) => self.once(&at, &connection, wanted, output).await,
            };
        }
        // A helper or an ssh of its own that went is no word about the host.
        if let Ran::Lost(_) | Ran::Silent(_) = &ran
            && !connection.is_usable().await
        {
            watch.turn.unreachable(&at.entry.name);
        }
        if at.job.purpose == Purpose::RollBack {
            tokio::spawn(connection.close(CLOSE_WAIT));
        }
        ran
    }

    /// A script is not there: the remotes are pushed, once.
    async fn push_missing(
        &self,
        at: &At<'_>,
        connection: &Arc<Connection>,
        text: &str,
        watch: &Watch,
    ) -> Result<(), String> {
        let Program::Script(script) = &at.job.program else { return Err(text.to_owned()) };
        (watch.on_notice)(&format!("{}: {script} is not there, updating the remotes", at.entry.name));
        let pushed = self.push(at.entry, connection, false, watch).await;
        pushed.map(drop).map_err(|reason| format!("{script}: {text}; the remotes were not updated: {reason}"))
    }

    async fn once(
        &self,
        at: &At<'_>,
        connection: &Arc<Connection>,
        wanted: Wanted<'_>,
        output: &mut Collector,
    ) -> Ran {
        let Wanted { open, watch, .. } = wanted;
        let bound = open.limit.map(|limit| limit + open.grace + SLACK);
        let running = async {
            if at.agent {
                return agent::run(self, at.entry, connection, wanted, output).await;
            }
            self.over(at.entry, connection, wanted, output).await
        };
        let bounded = async {
            match bound {
                Some(bound) => timeout(bound, running).await.ok(),
                None => Some(running.await),
            }
        };
        // A cancelled job whose end is not told is given up, too.
        let abandoned = async {
            watch.cancel.cancelled().await;
            sleep(open.grace + SLACK).await;
        };
        tokio::select! {
            ran = bounded => ran.unwrap_or(Ran::Exit(Exit { how: How::Signaled(9), by: EndedBy::Limit })),
            () = abandoned => CANCELLED,
        }
    }

    /// Runs a command over a connection: by the helper, or on a channel of its own.
    pub(super) async fn over(
        &self,
        entry: &Entry,
        connection: &Arc<Connection>,
        wanted: Wanted<'_>,
        output: &mut Collector,
    ) -> Ran {
        let Wanted { open, stdin, watch } = wanted;
        if let Some(helper) = self.helper_of(connection, watch).await {
            let ended = helper.run(open.clone(), stdin.clone(), output, watch).await;
            return Ran::of_helper(ended, helper.is_silent(), async || why_lost(connection, &helper).await)
                .await;
        }
        let channel = entry.channel(connection, watch);
        self.without_helper(channel, wanted, output).await
    }

    /// The host's helper, if it has one and is to be used.
    pub(super) async fn helper_of(&self, connection: &Arc<Connection>, watch: &Watch) -> Option<Arc<Helper>> {
        connection.helper(self.helper_words.as_deref()?, &self.helper_limits, watch).await
    }

    /// Runs a command on the channel that `opening` opens; what comes with the channel is kept as long as that.
    pub(super) async fn without_helper<T>(
        &self,
        opening: impl Future<Output = Result<(Channel, T), String>>,
        wanted: Wanted<'_>,
        output: &mut Collector,
    ) -> Ran {
        let Wanted { open, stdin, watch } = wanted;
        if let Err(text) = fallback::check(open) {
            return Ran::Refused(Refusal { why: WhyRefused::Other, text });
        }
        let opened = tokio::select! {
            opened = opening => opened,
            () = watch.cancel.cancelled() => return CANCELLED,
        };
        let (channel, kept) = match opened {
            Ok(opened) => opened,
            Err(reason) => return Ran::Lost(reason),
        };
        let ended = fallback::run(channel, open, stdin.clone(), output, watch, self.times()).await;
        drop(kept);
        match ended {
            fallback::Ended::Exit(exit) => Ran::Exit(exit),
            fallback::Ended::Refused(refusal) => Ran::Refused(refusal),
            fallback::Ended::Lost(reason) => Ran::Lost(reason),
        }
    }
}

/// ssh's own words when the connection went, else the helper's.
async fn why_lost(connection: &Connection, helper: &Helper) -> String {
    // ssh writes down why it ends a moment after the channel has ended.
    for _ in 0..20 {
        if !connection.is_alive().await {
            return connection.reason();
        }
        sleep(Duration::from_millis(25)).await;
    }
    helper.reason().unwrap_or_else(|| "the helper was lost".to_owned())
}
