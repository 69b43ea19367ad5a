//! The VMs of a host and what `oned` was told about each: when a state is news, and when it must not be told.
//!
//! Pure: looks and events go in, reports come out, time is a number of milliseconds. The rules:
//!
//! * A state comes from a complete, successful look. A failed one changes nothing.
//! * A VM is off when libvirt says so: it stopped (an event, or the reason of a domain that is defined but off) by
//!   shutdown, destruction, crash or the death of its process, and the look confirms it. Saved, migrated, replaced
//!   by a snapshot is never off. Gone without a word is off after [`Rules::misses`] looks.
//! * A domain that arrives by migration is no news until it has arrived; when that fails, it never was here.
//! * A pause by a user is believed when it lasts [`Rules::doubt`].
//! * While an action of the VM runs on this host nothing is told about it: `oned` gets the action's own answer.
//! * `oned` ignores reports within 30 s of a state change of its own, and never says so: each change is told a
//!   second time after [`Rules::repeat`].
//! * A report counts as told only when it was sent ([`Table::sent`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::{Event, What, Why};
use super::state::{Seen, VmState, seen, vm_id};

/// Milliseconds on some clock that never goes back.
pub type Millis = u64;

/// Limits of the rules, in milliseconds unless said otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How long a pause by a user must last. 2 s.
    pub doubt: Millis,
    /// After this a change is told again. 35 s.
    pub repeat: Millis,
    /// Looks in which a VM may be missing without a word before it counts as off. 5.
    pub misses: u32,
    /// Least time between two of these looks. 5 s (period of STATE_VM).
    pub between_misses: Millis,
    /// How often it is looked whether an action has ended. 500 ms.
    pub recheck: Millis,
    /// How long a VM that was saved or migrated by hand is remembered, in seconds of the wall clock. 12 h.
    pub obsolete: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            doubt: 2000,
            repeat: 35_000,
            misses: 5,
            between_misses: 5000,
            recheck: 500,
            obsolete: 720 * 60,
        }
    }
}

/// One domain in a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// Name.
    pub name: String,
    /// UUID, lower case with dashes.
    pub uuid: String,
    /// State and reason as libvirt numbers them; `None` when they could not be read.
    pub state: Option<(i32, i32)>,
}

/// What is known of a VM; kept over restarts of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// UUID of its domain.
    pub uuid: String,
    /// The last state that was sent.
    pub told: Option<VmState>,
    /// The state to tell, when it is not held back.
    pub state: Option<VmState>,
    /// It lives elsewhere or in a file: saved or migrated, and not by an action of OpenNebula, since this second
    /// of the wall clock.
    pub away: Option<u64>,
    #[serde(skip)]
    moment: Moment,
}

/// What does not outlive the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Moment {
    present: bool,
    arriving: bool,
    stopped: Option<(Why, bool)>,
    doubt: Option<(VmState, Millis)>,
    misses: u32,
    missed_at: Millis,
    repeat_at: Option<Millis>,
    held: bool,
}

/// Says whether an action of the VM (id, UUID) runs on this host now.
pub type Busy<'a> = &'a mut dyn FnMut(i64, &str) -> bool;

/// A STATE_VM text and what it tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The text of the message.
    pub text: String,
    /// Whether it is a complete list.
    pub sync: bool,
    told: Vec<(i64, VmState)>,
}

/// All VMs.
#[derive(Debug, Default)]
pub struct Table {
    rules: Rules,
    rows: BTreeMap<i64, Row>,
}

impl Table {
    /// A table with the rows of an earlier run.
    #[must_use]
    pub fn new(rules: Rules, rows: BTreeMap<i64, Row>) -> Self {
        Self { rules, rows }
    }

    /// The rows, for the state file and for people.
    #[must_use]
    pub fn rows(&self) -> &BTreeMap<i64, Row> {
        &self.rows
    }

    /// Takes an event. True when a look is needed now.
    pub fn event(&mut self, event: &Event, busy: Busy<'_>) -> bool {
        let Some(id) = vm_id(&event.domain) else { return false };
        match event.what {
            What::Other => return false,
            What::Arriving => {
                let row = self.rows.entry(id).or_insert_with(|| Row::new(""));
                // A row of an earlier life (saved, migrated away) starts anew.
                *row = Row::new(&row.uuid);
                row.moment.arriving = true;
            }
            What::Resumed => {
                if let Some(row) = self.rows.get_mut(&id) {
                    row.moment.arriving = false;
                    row.moment.stopped = None;
                }
            }
            What::Stopped(why) => {
                if let Some(row) = self.rows.get_mut(&id) {
                    let by_action = !why.is_off() && busy(id, &row.uuid);
                    row.moment.stopped = Some((why, by_action));
                }
            }
            What::Changed => {
                if let Some(row) = self.rows.get_mut(&id) {
                    row.moment.stopped = row.moment.stopped.filter(|(why, _)| *why == Why::Failed);
                }
            }
        }
        true
    }

    /// Takes a complete look at `now`; `wall` is the time of day in seconds.
    pub fn look(&mut self, sights: &[Sight], now: Millis, wall: u64, first: bool) {
        let ours: BTreeMap<i64, &Sight> =
            sights.iter().filter_map(|sight| vm_id(&sight.name).map(|id| (id, sight))).collect();
        for (id, sight) in &ours {
            self.see(*id, sight, now, wall, first);
        }
        let rules = self.rules;
        for (id, row) in &mut self.rows {
            if !ours.contains_key(id) {
                row.ended(None, now, wall, &rules);
            }
        }
        self.rows.retain(|_, row| !row.is_forgotten(wall, &rules));
    }

    fn see(&mut self, id: i64, sight: &Sight, now: Millis, wall: u64, first: bool) {
        let rules = self.rules;
        let known = self.rows.contains_key(&id);
        let Some((state, reason)) = sight.state else {
            // There, but its state could not be read: whatever was known stays.
            if let Some(row) = self.rows.get_mut(&id) {
                row.moment.misses = 0;
            }
            return;
        };
        let what = seen(state, reason);
        if let (Seen::Off(_), false) = (what, known) {
            return;
        }
        let row = self.rows.entry(id).or_insert_with(|| Row::new(&sight.uuid));
        if row.uuid != sight.uuid {
            let arriving = row.moment.arriving;
            *row = Row::new(&sight.uuid);
            row.moment.arriving = arriving;
        }
        match what {
            Seen::Active(state) => row.active(state),
            Seen::Doubtful(state) => row.doubtful(state, now, first || rules.doubt == 0, &rules),
            Seen::Migrating => {
                if known && row.moment.present && !row.moment.arriving {
                    row.active(VmState::Running);
                } else {
                    row.moment.arriving = true;
                }
            }
            Seen::Off(why) => row.ended(Some(why), now, wall, &rules),
        }
    }

    /// The time of the next thing to do without any event: a look, or asking whether an action has ended.
    #[must_use]
    pub fn due(&self, now: Millis) -> Option<Millis> {
        self.rows.values().filter_map(|row| row.due(now, &self.rules)).min()
    }

    /// Whether a look is needed at `now`: something is due and no action stands before it.
    pub fn needs_look(&self, now: Millis, busy: Busy<'_>) -> bool {
        self.rows.iter().any(|(id, row)| {
            if row.moment.held && !busy(*id, &row.uuid) {
                return true;
            }
            row.due(now, &self.rules).is_some_and(|due| due <= now && !row.moment.held)
        })
    }

    /// What is to be told now: the news, or with `sync` the complete list. `None` when there is nothing.
    ///
    /// Only right behind a successful look, with no event since: a list that is older than the last event could
    /// power off a VM that was just started.
    pub fn report(&mut self, sync: bool, now: Millis, busy: Busy<'_>) -> Option<Report> {
        let mut told = Vec::new();
        let mut text = String::new();
        if sync {
            text.push_str("SYNC_STATE=yes\nMISSING_STATE=POWEROFF\n");
        }
        for (id, row) in &mut self.rows {
            row.moment.held = row.is_news(now) && busy(*id, &row.uuid);
            let news = row.is_news(now) && !row.moment.held;
            let state = if news { row.state } else { sync.then(|| row.listed()).flatten() };
            let Some(state) = state else { continue };
            text.push_str(&format!(
                "VM = [ ID=\"{id}\", DEPLOY_ID=\"{}\",  STATE=\"{}\" ]\n",
                row.uuid,
                state.name()
            ));
            if news {
                told.push((*id, state));
            }
        }
        (sync || !told.is_empty()).then_some(Report { text, sync, told })
    }

    /// The report was sent: what it told is told.
    pub fn sent(&mut self, report: &Report, now: Millis) {
        for (id, state) in &report.told {
            let Some(row) = self.rows.get_mut(id) else { continue };
            row.moment.repeat_at = match row.moment.repeat_at {
                Some(due) if due <= now && row.told == Some(*state) => None,
                _ => Some(now + self.rules.repeat),
            };
            row.told = Some(*state);
        }
    }

    /// After trouble: `oned` has put the VMs to UNKNOWN, so all states are news again.
    pub fn forget_told(&mut self) {
        for row in self.rows.values_mut() {
            row.told = None;
        }
    }
}

impl Row {
    fn new(uuid: &str) -> Self {
        Self { uuid: uuid.to_owned(), told: None, state: None, away: None, moment: Moment::default() }
    }

    fn active(&mut self, state: VmState) {
        self.state = Some(state);
        if self.away.take().is_some() {
            self.told = None;
        }
        self.moment = Moment {
            present: true,
            repeat_at: self.moment.repeat_at,
            held: self.moment.held,
            ..Moment::default()
        };
    }

    fn doubtful(&mut self, state: VmState, now: Millis, at_once: bool, rules: &Rules) {
        let since = match self.moment.doubt {
            Some((doubted, since)) if doubted == state => since,
            _ => now,
        };
        if at_once || self.state == Some(state) || now >= since + rules.doubt {
            self.active(state);
            return;
        }
        self.active(self.state.filter(|s| *s != VmState::Poweroff).unwrap_or(VmState::Running));
        self.moment.doubt = Some((state, since));
    }

    /// It is not there, or defined but off for the reason `off`.
    fn ended(&mut self, off: Option<Why>, now: Millis, wall: u64, rules: &Rules) {
        if self.away.is_some() || (self.state == Some(VmState::Poweroff) && !self.moment.present) {
            return;
        }
        let by_event = self.moment.stopped;
        let why = match off {
            Some(why) if why != Why::Unknown => Some((why, by_event.is_some_and(|(_, by_action)| by_action))),
            _ => by_event.filter(|(why, _)| *why != Why::Unknown),
        };
        match why {
            Some(_) if self.moment.arriving => self.forget(),
            Some((why, _)) if why.is_off() => self.off(),
            Some((_, true)) => self.forget(),
            Some((_, false)) => {
                self.away = Some(wall);
                self.moment = Moment::default();
            }
            None => self.missed(now, rules),
        }
    }

    fn missed(&mut self, now: Millis, rules: &Rules) {
        if self.moment.misses > 0 && now < self.moment.missed_at + rules.between_misses {
            return;
        }
        self.moment.misses += 1;
        self.moment.missed_at = now;
        if self.moment.misses > rules.misses {
            if self.moment.arriving { self.forget() } else { self.off() }
        }
    }

    fn off(&mut self) {
        self.state = Some(VmState::Poweroff);
        let Moment { repeat_at, held, .. } = self.moment;
        self.moment = Moment { repeat_at, held, ..Moment::default() };
    }

    /// Marks the row for removal: no state, not here, not arriving.
    fn forget(&mut self) {
        self.state = None;
        self.away = Some(0);
        self.moment = Moment::default();
    }

    fn is_forgotten(&self, wall: u64, rules: &Rules) -> bool {
        let off = self.state == Some(VmState::Poweroff) && self.told == self.state;
        (off && !self.moment.present && self.moment.repeat_at.is_none())
            || self.away.is_some_and(|since| since.saturating_add(rules.obsolete) < wall)
    }

    fn is_news(&self, now: Millis) -> bool {
        if self.state.is_none() || self.away.is_some() || self.moment.arriving {
            return false;
        }
        self.told != self.state || self.moment.repeat_at.is_some_and(|due| due <= now)
    }

    /// Its state in a complete list.
    fn listed(&self) -> Option<VmState> {
        if self.away.is_some() {
            return Some(VmState::Unknown);
        }
        if self.moment.arriving {
            return Some(VmState::Running);
        }
        if self.state == Some(VmState::Poweroff) {
            // Held back: as it was. Told: absence says the same.
            return self.told.filter(|told| *told != VmState::Poweroff);
        }
        self.state
    }

    fn due(&self, now: Millis, rules: &Rules) -> Option<Millis> {
        let missing = (self.moment.misses > 0).then(|| self.moment.missed_at + rules.between_misses);
        let doubt = self.moment.doubt.map(|(_, since)| since + rules.doubt);
        let held = self.moment.held.then_some(now + rules.recheck);
        let repeat = if self.moment.held { None } else { self.moment.repeat_at };
        [missing, doubt, held, repeat].into_iter().flatten().min()
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
