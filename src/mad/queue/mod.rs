//! Which request runs when: slots, hosts, one action a subject, joining, overtaking, cancel. A plain state machine:
//! it is told what happens and says what to do; it knows no clock, thread or pipe.
//!
//! Requests are known by a serial number that grows with their arrival. Rules for starting one:
//!
//! * its subject is free: nothing earlier of it is unanswered. One that ends others waits only for those that run;
//!   one that stops others waits for nothing;
//! * there is a slot. A request that waits for a connection holds none;
//! * its places are free: without parallel mode each runs one request at a time, in the order of arrival; with it a
//!   place may hold its share of the slots, and more only while nobody else could use them: what it holds beyond its
//!   share does not keep others from theirs;
//! * a place that did not answer is tried by one at a time.

mod pick;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::actions::{Keys, Overtake};

/// How many requests run, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Slots.
    pub slots: usize,
    /// Slots beyond these for requests that end or stop others.
    pub extra: usize,
    /// Whether a place may run several requests at once.
    pub parallel: bool,
    /// In parallel mode: how many slots one place may hold while others want them; at least 1.
    pub share: usize,
}

impl Entry {
    fn main_place(&self) -> String {
        self.keys.places.first().cloned().unwrap_or_default()
    }
}

/// A request in the queue.
#[derive(Debug)]
struct Entry {
    verb: String,
    prefix: Option<String>,
    keys: Keys,
    overtake: Overtake,
    state: State,
    cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not begun.
    Queued,
    /// Runs and holds a slot.
    Holding,
    /// Runs, waits for a connection, holds no slot.
    Connecting,
    /// Runs, has its connection, waits for a slot.
    Wanting,
    /// Was told to end and did not: it holds nothing any more and hinders nobody.
    Abandoned,
}

/// What became of a request that was put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// It waits for its turn. Those named here are ended by it: see [`Ended`].
    Queued(Ended),
    /// It is answered by the earlier request of this serial.
    Joined(u64),
}

/// Requests that are to be ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Were never begun; they are gone from the queue.
    pub queued: Vec<u64>,
    /// Run; they stay in the queue until they are finished.
    pub running: Vec<u64>,
}

impl Ended {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<u64> {
        self.queued.iter().chain(&self.running).copied().collect()
    }
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    entries: BTreeMap<u64, Entry>,
    /// Those of the entries that run and are not abandoned.
    running: BTreeSet<u64>,
    /// Those of the entries that are queued and go before others.
    hurried: BTreeSet<u64>,
    /// How many of the other queued ones there are for each main place.
    wanted: HashMap<String, usize>,
    /// Places that did not answer the last time.
    silent: HashSet<String>,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            running: BTreeSet::new(),
            hurried: BTreeSet::new(),
            wanted: HashMap::new(),
            silent: HashSet::new(),
        }
    }

    /// Puts in a request. `is_open` says whether an earlier one can still be joined (is not answered yet).
    pub fn accept(
        &mut self,
        serial: u64,
        verb: &str,
        prefix: Option<&str>,
        keys: Keys,
        overtake: Overtake,
        is_open: impl Fn(u64) -> bool,
    ) -> Accepted {
        if matches!(overtake, Overtake::Wait | Overtake::End)
            && let Some(first) = self.to_join(verb, prefix, keys.subject)
            && is_open(first)
        {
            return Accepted::Joined(first);
        }
        let ended = match overtake {
            Overtake::End => self.cancel(keys.subject),
            _ => Ended::default(),
        };
        let entry = Entry {
            verb: verb.to_owned(),
            prefix: prefix.map(str::to_owned),
            keys,
            overtake,
            state: State::Queued,
            cancelled: false,
        };
        if entry.hurries() {
            self.hurried.insert(serial);
        } else {
            *self.wanted.entry(entry.main_place()).or_default() += 1;
        }
        self.entries.insert(serial, entry);
        Accepted::Queued(ended)
    }

    /// The newest request of the subject, if it has the same verb and prefix and has not been ended. Requests that
    /// are spared stand outside of this order.
    fn to_join(&self, verb: &str, prefix: Option<&str>, subject: i64) -> Option<u64> {
        let spared = |entry: &Entry| entry.overtake == Overtake::Spared;
        let (serial, newest) =
            self.entries.iter().rev().find(|(_, entry)| entry.keys.subject == subject && !spared(entry))?;
        let same = newest.verb == verb && newest.prefix.as_deref() == prefix;
        (same && !newest.cancelled && newest.overtake != Overtake::Each).then_some(*serial)
    }

    /// Ends the requests of a subject, but those that are spared.
    pub fn cancel(&mut self, subject: i64) -> Ended {
        self.end(|entry| entry.keys.subject == subject && entry.overtake != Overtake::Spared)
    }

    /// Ends all requests.
    pub fn cancel_all(&mut self) -> Ended {
        self.end(|_| true)
    }

    /// Drops all requests that are not begun, and gives them.
    pub fn drop_queued(&mut self) -> Vec<u64> {
        self.end(|entry| entry.state == State::Queued).queued
    }

    /// Ends the requests of `verb` of the subject of `serial` that came before it; with `queued_only` not those
    /// that run.
    pub fn stop(&mut self, serial: u64, verb: &str, queued_only: bool) -> Ended {
        let targets: HashSet<u64> = self.stoppable(serial, verb).into_iter().collect();
        self.end_with(|serial, entry| {
            targets.contains(&serial) && (!queued_only || entry.state == State::Queued)
        })
    }

    /// The requests that [`Queue::stop`] would end.
    #[must_use]
    pub fn stoppable(&self, serial: u64, verb: &str) -> Vec<u64> {
        let Some(stopper) = self.entries.get(&serial) else { return Vec::new() };
        let same = |entry: &Entry| entry.keys.subject == stopper.keys.subject && entry.verb == verb;
        self.entries.range(..serial).filter(|(_, entry)| same(entry)).map(|(serial, _)| *serial).collect()
    }

    fn end(&mut self, which: impl Fn(&Entry) -> bool) -> Ended {
        self.end_with(|_, entry| which(entry))
    }

    fn end_with(&mut self, which: impl Fn(u64, &Entry) -> bool) -> Ended {
        let mut ended = Ended::default();
        for (serial, entry) in &mut self.entries {
            if entry.cancelled || !which(*serial, entry) {
                continue;
            }
            entry.cancelled = true;
            if entry.state == State::Queued {
                ended.queued.push(*serial);
            } else {
                ended.running.push(*serial);
            }
        }
        for serial in &ended.queued {
            self.leave_queue(*serial);
            self.entries.remove(serial);
        }
        ended
    }

    /// Takes a queued request out of the counts.
    fn leave_queue(&mut self, serial: u64) {
        let Some(entry) = self.entries.get(&serial) else { return };
        if entry.hurries() {
            self.hurried.remove(&serial);
            return;
        }
        let place = entry.main_place();
        if let Some(count) = self.wanted.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.wanted.remove(&place);
            }
        }
    }

    /// The run of a request is over.
    pub fn finished(&mut self, serial: u64) {
        self.running.remove(&serial);
        self.entries.remove(&serial);
    }

    /// Time is up for those that `serial` has ended: what still runs of its subject hinders nobody any more. Gives
    /// them.
    pub fn abandon_for(&mut self, serial: u64) -> Vec<u64> {
        let Some(ender) = self.entries.get(&serial).filter(|entry| entry.state == State::Queued) else {
            return Vec::new();
        };
        let subject = ender.keys.subject;
        let mut abandoned = Vec::new();
        for (earlier, entry) in self.entries.range_mut(..serial) {
            let runs = !matches!(entry.state, State::Queued | State::Abandoned);
            if runs && entry.keys.subject == subject {
                entry.state = State::Abandoned;
                self.running.remove(earlier);
                abandoned.push(*earlier);
            }
        }
        abandoned
    }

    /// A running request waits for a connection to `place`, and gives its slot back.
    pub fn waiting(&mut self, serial: u64) {
        self.step(serial, State::Holding, State::Connecting);
        self.step(serial, State::Wanting, State::Connecting);
    }

    /// `place` answers; the request wants its slot again. True when it holds one already.
    pub fn ready(&mut self, serial: u64, place: &str) -> bool {
        self.silent.remove(place);
        self.step(serial, State::Connecting, State::Wanting);
        !self.entries.get(&serial).is_some_and(|entry| entry.state == State::Wanting)
    }

    /// `place` does not answer.
    pub fn unreachable(&mut self, place: &str) {
        self.silent.insert(place.to_owned());
    }

    fn step(&mut self, serial: u64, from: State, to: State) {
        if let Some(entry) = self.entries.get_mut(&serial).filter(|entry| entry.state == from) {
            entry.state = to;
        }
    }

    /// Whether nothing is queued and nothing runs, but what was abandoned.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.entries.values().all(|entry| entry.state == State::Abandoned)
    }
}
