//! What may start now.

use std::collections::{HashMap, HashSet};

use super::{Entry, Limits, Overtake, Queue, State};

impl Entry {
    /// Whether it goes before others and may use the slots beyond the limit.
    pub(super) fn hurries(&self) -> bool {
        matches!(self.overtake, Overtake::End | Overtake::Stop(_))
    }
}

impl Queue {
    /// Gives slots to running requests that want theirs again, then starts what may start. Gives both: the
    /// serials that have a slot again, and the serials to start, in order.
    pub fn pick(&mut self) -> (Vec<u64>, Vec<u64>) {
        let mut scan = Scan::of(self);
        let granted = scan.grant(self);
        let mut started = Vec::new();
        let hurried: Vec<u64> = self.hurried.iter().copied().collect();
        scan.start(self, hurried.into_iter(), false, &mut started);
        self.mark(&started);
        let lent = scan.lent() > 0;
        if scan.is_full(false, lent) {
            return (granted, started);
        }
        let before = started.len();
        // In parallel mode everybody has a share first; what is left over then is for anybody.
        if self.limits.parallel && (lent || self.wanted.len() > 1) {
            scan.start(self, self.queued(), true, &mut started);
            self.mark(&started[before..]);
            scan.forget_queued(self);
        }
        let before = started.len();
        scan.start(self, self.queued(), false, &mut started);
        self.mark(&started[before..]);
        (granted, started)
    }

    fn queued(&self) -> impl Iterator<Item = u64> {
        let ordinary = |entry: &Entry| entry.state == State::Queued && !entry.hurries();
        self.entries.iter().filter(move |(_, entry)| ordinary(entry)).map(|(serial, _)| *serial)
    }

    fn mark(&mut self, started: &[u64]) {
        for serial in started {
            self.leave_queue(*serial);
            self.running.insert(*serial);
            if let Some(entry) = self.entries.get_mut(serial) {
                entry.state = State::Holding;
            }
        }
    }
}

/// What runs on a place.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// That hold a slot.
    held: usize,
    /// That hold one or want theirs again.
    holding: usize,
    running: usize,
}

/// One look at the queue: what is taken already, kept up to date while requests are started.
struct Scan {
    limits: Limits,
    held: usize,
    /// Of these, by those that hurry.
    hurried: usize,
    places: HashMap<String, Load>,
    /// Subjects of which something runs.
    busy: HashSet<i64>,
    /// Subjects of which something earlier is still queued.
    queued: HashSet<i64>,
    /// Places that an earlier one waits for. Only without parallel mode: it keeps the order of arrival.
    claimed: HashSet<String>,
}

impl Scan {
    fn of(queue: &Queue) -> Self {
        let mut scan = Self {
            limits: queue.limits,
            held: 0,
            hurried: 0,
            places: HashMap::new(),
            busy: HashSet::new(),
            queued: HashSet::new(),
            claimed: HashSet::new(),
        };
        for entry in queue.running.iter().filter_map(|serial| queue.entries.get(serial)) {
            scan.count(entry, entry.state);
        }
        scan.forget_queued(queue);
        scan
    }

    /// Starts over with what is queued.
    fn forget_queued(&mut self, queue: &Queue) {
        let hurried = queue.hurried.iter().filter_map(|serial| queue.entries.get(serial));
        self.queued = hurried.map(|entry| entry.keys.subject).collect();
        self.claimed.clear();
    }

    fn count(&mut self, entry: &Entry, state: State) {
        self.busy.insert(entry.keys.subject);
        self.held += usize::from(state == State::Holding);
        self.hurried += usize::from(state == State::Holding && entry.hurries());
        for place in &entry.keys.places {
            let load = self.places.entry(place.clone()).or_default();
            load.running += 1;
            load.held += usize::from(state == State::Holding);
            load.holding += usize::from(matches!(state, State::Holding | State::Wanting));
        }
    }

    /// Slots that places hold beyond their share. They were lent to them while nobody else waited; who comes
    /// later within a share of its own does not wait for them to come back.
    fn lent(&self) -> usize {
        if !self.limits.parallel {
            return 0;
        }
        self.places.values().map(|load| load.held.saturating_sub(self.limits.share)).sum()
    }

    /// Whether no slot is left for one that hurries, or for another; with `shares` for one within the share of its
    /// places. Those that hurry have the extra slots, whatever was lent.
    fn is_full(&self, hurries: bool, shares: bool) -> bool {
        let Limits { slots, extra, .. } = self.limits;
        if hurries {
            return self.held >= slots + extra && self.hurried >= extra;
        }
        self.held >= slots + if shares { self.lent() } else { 0 }
    }

    /// Whether all places of an entry keep within their share.
    fn within_shares(&self, entry: &Entry) -> bool {
        let holding = |place| self.places.get(place).map_or(0, |load: &Load| load.holding);
        self.limits.parallel && entry.keys.places.iter().all(|place| holding(place) <= self.limits.share)
    }

    fn grant(&mut self, queue: &mut Queue) -> Vec<u64> {
        let mut granted = Vec::new();
        for serial in &queue.running {
            let Some(entry) = queue.entries.get_mut(serial) else { continue };
            let full = self.is_full(entry.hurries(), self.within_shares(entry));
            if entry.state == State::Wanting && !full {
                entry.state = State::Holding;
                self.held += 1;
                self.hurried += usize::from(entry.hurries());
                for place in &entry.keys.places {
                    self.places.entry(place.clone()).or_default().held += 1;
                }
                granted.push(*serial);
            }
        }
        granted
    }

    /// Finds those of `candidates` that may start; with `shares` only within the share of their places.
    fn start(
        &mut self,
        queue: &Queue,
        candidates: impl Iterator<Item = u64>,
        shares: bool,
        started: &mut Vec<u64>,
    ) {
        // Main places that nothing more can start on; when all are, the rest need not be looked at.
        let mut hopeless: HashSet<&str> = HashSet::new();
        for serial in candidates {
            let Some(entry) = queue.entries.get(&serial) else { continue };
            if self.is_full(entry.hurries(), shares) {
                return;
            }
            if self.subject_is_free(entry) && self.places_are_free(queue, entry, shares) {
                self.count(entry, State::Holding);
                started.push(serial);
            } else {
                self.queued.insert(entry.keys.subject);
                if !self.limits.parallel {
                    self.claimed.extend(entry.keys.places.iter().cloned());
                }
            }
            let main = entry.keys.places.first().filter(|place| !self.place_is_free(queue, place, shares));
            if let Some(main) = main.filter(|_| !entry.hurries()) {
                hopeless.insert(main);
                if hopeless.len() >= queue.wanted.len() {
                    return;
                }
            }
        }
    }

    fn subject_is_free(&self, entry: &Entry) -> bool {
        let subject = &entry.keys.subject;
        match entry.overtake {
            Overtake::Stop(_) => true,
            Overtake::End => !self.busy.contains(subject),
            _ => !self.busy.contains(subject) && !self.queued.contains(subject),
        }
    }

    fn places_are_free(&self, queue: &Queue, entry: &Entry, shares: bool) -> bool {
        match (entry.overtake, self.limits.parallel) {
            (Overtake::Stop(_), _) | (Overtake::End, true) => true,
            _ => entry.keys.places.iter().all(|place| self.place_is_free(queue, place, shares)),
        }
    }

    fn place_is_free(&self, queue: &Queue, place: &str, shares: bool) -> bool {
        let Load { holding, running, .. } = self.places.get(place).copied().unwrap_or_default();
        if !self.limits.parallel {
            return running == 0 && !self.claimed.contains(place);
        }
        // A place that does not answer has one slot at most. Those that wait for a connection hold none, but there
        // is no use in ever more of them.
        !(queue.silent.contains(place) && holding > 0)
            && running < self.limits.slots
            && (!shares || holding < self.limits.share)
    }
}
