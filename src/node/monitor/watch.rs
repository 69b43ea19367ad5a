//! The state loop: events and time wake it up, it looks at all domains, and tells what is news, by TCP at once.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::agent::{Shared, clock};
use super::events::News;
use super::message::Kind;
use super::processes::Actions;
use super::table::{Millis, Rules, Table};

/// Events that come together are answered by one look.
const TOGETHER: Duration = Duration::from_millis(15);
/// Looks behind the start of `virsh event`: it says nothing when it has registered.
const SETTLING: [Duration; 2] = [Duration::from_millis(700), Duration::from_secs(3)];
/// How long a complete list waits for deploys, restores and migrations that run.
const PATIENCE: Duration = Duration::from_secs(600);

/// The state loop's own memory.
pub struct Watcher {
    agent: Shared,
    news: mpsc::UnboundedReceiver<News>,
    table: Table,
    began: Instant,
    following: bool,
    settling: Vec<Instant>,
    sync_due: Instant,
    sync_wanted_since: Option<Instant>,
    look_due: Option<Instant>,
    resend: Duration,
    failing_since: Option<Instant>,
    first: bool,
}

impl Watcher {
    /// A watcher that knows what the agent kept.
    #[must_use]
    pub fn new(agent: Shared, news: mpsc::UnboundedReceiver<News>) -> Self {
        let rules = rules(&agent);
        let rows = agent.kept.lock().unwrap_or_else(PoisonError::into_inner).rows.clone();
        let now = Instant::now();
        Self {
            table: Table::new(rules, rows),
            agent,
            news,
            began: now,
            following: false,
            settling: Vec::new(),
            sync_due: now,
            sync_wanted_since: None,
            look_due: None,
            resend: Duration::ZERO,
            failing_since: None,
            first: true,
        }
    }

    fn now(&self) -> Millis {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// The first look: its text is a part of the reply to START. It is complete, and counts as sent.
    ///
    /// # Errors
    /// Why libvirt gives no list.
    pub async fn first_text(&mut self) -> Result<String, String> {
        let sights = self.agent.virsh.look().await?;
        self.table.look(&sights, self.now(), clock(), true);
        self.first = false;
        let actions = Actions::running(&self.agent.root);
        let sync = !actions.arriving();
        let now = self.now();
        let report = self.table.report(sync, now, &mut |vm, uuid| actions.of(vm, uuid));
        let Some(report) = report else { return Ok(String::new()) };
        self.table.sent(&report, now);
        if report.sync {
            self.sync_due = Instant::now() + self.agent.config.periods.sync;
        }
        self.keep();
        Ok(report.text)
    }

    /// Watches until the agent ends.
    pub async fn run(mut self) {
        loop {
            let wanted = self.wait().await;
            if wanted {
                self.look_and_tell().await;
            }
        }
    }

    /// Waits for the next reason to look; false when there was none after all.
    async fn wait(&mut self) -> bool {
        let wake = self.next_wake();
        let agent = self.agent.clone();
        tokio::select! {
            news = self.news.recv() => {
                let Some(news) = news else { return std::future::pending().await };
                let mut wanted = self.take(news);
                if wanted {
                    tokio::time::sleep(TOGETHER).await;
                }
                while let Ok(more) = self.news.try_recv() {
                    wanted |= self.take(more);
                }
                wanted
            }
            () = agent.look_now.notified() => true,
            () = sleep_until(wake) => self.is_due(),
        }
    }

    fn next_wake(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(3600);
        let table = self.table.due(self.now()).map(|due| self.began + Duration::from_millis(due));
        // While an action stands before the news it is asked for in short steps; else nothing is due sooner than now.
        let table = table.map(|due| due.max(Instant::now() + Duration::from_millis(50)));
        let settling = self.settling.iter().min().copied();
        [Some(self.sync_due), self.look_due, settling, table].into_iter().flatten().min().unwrap_or(far)
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let before = self.settling.len();
        self.settling.retain(|due| *due > now);
        if self.settling.len() < before || self.sync_due <= now || self.look_due.is_some_and(|due| due <= now)
        {
            return true;
        }
        let actions = Actions::running(&self.agent.root);
        self.table.needs_look(self.now(), &mut |vm, uuid| actions.of(vm, uuid))
    }

    /// Takes news; true when a look is needed.
    fn take(&mut self, news: News) -> bool {
        let now = Instant::now();
        match news {
            News::Event(event) => {
                self.agent.journal.record().events_seen += 1;
                let root = self.agent.root.clone();
                let mut actions = None;
                self.table.event(&event, &mut |vm, uuid| {
                    actions.get_or_insert_with(|| Actions::running(&root)).of(vm, uuid)
                })
            }
            News::Started => {
                self.following = true;
                self.agent.journal.record().events = true;
                self.settling = SETTLING.iter().map(|wait| now + *wait).collect();
                false
            }
            News::Lost(reason) => {
                self.following = false;
                self.agent.journal.record().events = false;
                self.agent.fault(format!("libvirt's events are lost: {reason}"));
                self.sync_due = now;
                true
            }
        }
    }

    async fn look_and_tell(&mut self) {
        self.look_due = None;
        // A list is told only when no event came since; events in a storm end it after some rounds.
        for _ in 0..5 {
            let began = Instant::now();
            let sights = match self.agent.virsh.look().await {
                Ok(sights) => sights,
                Err(reason) => return self.failed(&reason, began),
            };
            self.answered();
            let (now, wall) = (self.now(), clock());
            self.table.look(&sights, now, wall, self.first);
            self.first = false;
            let mut again = false;
            while let Ok(news) = self.news.try_recv() {
                again |= self.take(news);
            }
            if !again {
                break;
            }
        }
        self.tell().await;
        if !self.following {
            self.look_again(self.agent.config.periods.state);
        }
    }

    fn look_again(&mut self, after: Duration) {
        let due = Instant::now() + after;
        self.look_due = Some(self.look_due.map_or(due, |earlier| earlier.min(due)));
    }

    async fn tell(&mut self) {
        let actions = Actions::running(&self.agent.root);
        let sync = self.may_sync(&actions);
        let now = self.now();
        let report = self.table.report(sync, now, &mut |vm, uuid| actions.of(vm, uuid));
        let Some(report) = report else { return };
        match self.agent.send(Kind::State, true, &report.text).await {
            Ok(()) => {
                self.table.sent(&report, self.now());
                self.resend = Duration::ZERO;
                if report.sync {
                    self.sync_due = Instant::now() + self.agent.config.periods.sync;
                    self.sync_wanted_since = None;
                }
                self.agent.journal.record().queue = 0;
            }
            Err(_) => {
                self.resend = (self.resend * 2).clamp(Duration::from_secs(1), self.agent.limits.resend);
                self.agent.journal.record().queue =
                    report.text.lines().filter(|l| l.starts_with("VM")).count();
                if report.sync {
                    self.sync_due = Instant::now() + self.resend;
                }
                self.look_again(self.resend);
            }
        }
        self.keep();
    }

    /// Whether a complete list is due and nothing is about to appear that it would miss.
    fn may_sync(&mut self, actions: &Actions) -> bool {
        let now = Instant::now();
        if self.sync_due > now {
            return false;
        }
        let since = *self.sync_wanted_since.get_or_insert(now);
        if actions.arriving() && now < since + PATIENCE {
            self.sync_due = now + self.agent.config.periods.state;
            return false;
        }
        true
    }

    fn failed(&mut self, reason: &str, began: Instant) {
        let now = Instant::now();
        let since = *self.failing_since.get_or_insert(began);
        self.agent.fault(format!("libvirt gives no list of domains: {reason}"));
        // Nothing is known, so nothing is told; the rows stay as they are.
        self.sync_due = now + self.agent.config.periods.sync;
        self.look_again(self.agent.config.periods.state);
        if now >= since + self.agent.limits.trouble_after {
            let told = format!("libvirt gave no answer for {} s: {reason}", (now - since).as_secs());
            self.agent.journal.record().trouble = Some(told.clone());
            self.agent.trouble.send_if_modified(|trouble| {
                let new = trouble.is_none();
                *trouble = Some(told);
                new
            });
        }
    }

    fn answered(&mut self) {
        if self.failing_since.take().is_none() {
            return;
        }
        self.sync_due = Instant::now();
        self.settling = SETTLING.iter().map(|wait| Instant::now() + *wait).collect();
        self.agent.journal.record().trouble = None;
        if self.agent.trouble.send_if_modified(|trouble| trouble.take().is_some()) {
            // The host was reported as failed, so oned put its VMs to UNKNOWN; only SYSTEM_HOST mends the host.
            self.table.forget_told();
            self.agent.system_now.notify_one();
        }
    }

    fn keep(&self) {
        let rows = self.table.rows().clone();
        self.agent.keep(|kept| kept.rows = rows);
    }
}

fn rules(agent: &Shared) -> Rules {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Rules {
        doubt: millis(agent.limits.pause_wait),
        repeat: millis(agent.limits.repeat),
        misses: u32::try_from(agent.limits.misses).unwrap_or(u32::MAX),
        between_misses: millis(agent.config.periods.state),
        obsolete: agent.limits.obsolete.as_secs(),
        ..Rules::default()
    }
}
