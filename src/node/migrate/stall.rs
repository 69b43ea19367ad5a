//! Whether a migration gets anywhere.
//!
//! In each pass over the memory less and less remains, until the pass ends and what the guest has changed meanwhile
//! becomes the next one. So what remains within a pass tells nothing: only what a pass **begins** with must become less.

use std::time::Duration;

use super::job::Job;

/// What the looks so far mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It goes on.
    Moves,
    /// Data flow, but for this time no pass began with less than an earlier one: the guest is too busy.
    Busy(Duration),
    /// For this time nothing was sent at all.
    Dead(Duration),
}

/// Watches one migration.
#[derive(Debug)]
pub struct Watch {
    patience: Option<Duration>,
    moved: u64,
    moved_at: Duration,
    iteration: u64,
    least: u64,
    better_at: Duration,
    passes: u32,
    throttle: u64,
}

/// Passes that must have begun without being smaller before a guest counts as too busy.
const PASSES: u32 = 2;

impl Watch {
    /// Nothing is ever wrong when `patience` is `None`.
    #[must_use]
    pub fn new(patience: Option<Duration>) -> Self {
        let zero = Duration::ZERO;
        Self {
            patience,
            moved: 0,
            moved_at: zero,
            iteration: 0,
            least: u64::MAX,
            better_at: zero,
            passes: 0,
            throttle: 0,
        }
    }

    /// One look, `now` after the start of the migration.
    pub fn look(&mut self, now: Duration, job: &Job) -> Sight {
        if job.moved() != self.moved {
            self.moved = job.moved();
            self.moved_at = now;
        }
        if job.iteration > self.iteration {
            self.iteration = job.iteration;
            self.passes += 1;
            if job.memory_remaining < self.least.saturating_sub(self.least / 20) {
                self.least = job.memory_remaining;
                self.again(now);
            }
        }
        // The disks are copied before the memory. Later they only follow what the guest writes, which is no progress.
        if job.throttle > self.throttle || job.iteration <= 1 {
            self.throttle = job.throttle.max(self.throttle);
            self.again(now);
        }
        let Some(patience) = self.patience else { return Sight::Moves };
        let still = now.saturating_sub(self.moved_at);
        if still >= patience {
            return Sight::Dead(still);
        }
        let busy = now.saturating_sub(self.better_at);
        if busy >= patience && self.passes >= PASSES { Sight::Busy(busy) } else { Sight::Moves }
    }

    /// Something was done about it: the patience begins anew.
    pub fn again(&mut self, now: Duration) {
        self.better_at = now;
        self.passes = 0;
    }

    /// The whole job is another one now.
    pub fn restart(&mut self, now: Duration) {
        *self = Self { moved_at: now, better_at: now, ..Self::new(self.patience) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn job(iteration: u64, remaining: u64, moved: u64) -> Job {
        Job { kind: 2, iteration, memory_remaining: remaining, memory_processed: moved, ..Job::default() }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// Looks once a second at a guest whose passes begin with `sizes` and take 10 s each.
    fn passes(watch: &mut Watch, sizes: &[u64]) -> Vec<Sight> {
        let mut seen = Vec::new();
        let mut now = 0;
        for (number, size) in sizes.iter().enumerate() {
            for tenth in 0..10 {
                now += 1;
                let remaining = size - size * tenth / 10;
                seen.push(watch.look(seconds(now), &job(number as u64 + 1, remaining, now)));
            }
        }
        seen
    }

    #[test]
    fn a_guest_whose_passes_become_smaller_moves_however_long_it_takes() {
        let sizes: Vec<u64> =
            (1..40).map(|n| 1_000_000 * 9_u64.pow(n.min(9)) / 10_u64.pow(n.min(9))).collect();
        let seen = passes(&mut Watch::new(Some(PATIENCE)), &sizes[..9]);
        assert!(seen.iter().all(|sight| *sight == Sight::Moves));
    }

    #[test]
    fn a_guest_whose_passes_stay_is_busy_after_the_patience() {
        let seen = passes(&mut Watch::new(Some(PATIENCE)), &[1000, 500, 498, 501, 499, 500, 500, 500, 500]);
        let first = seen.iter().position(|sight| matches!(sight, Sight::Busy(_))).expect("busy");
        // The second pass, the last one that was smaller, began at 11 s.
        assert_eq!((first + 1, seen[first]), (71, Sight::Busy(PATIENCE)));
    }

    #[test]
    fn a_guest_that_goes_on_writing_its_disks_is_no_less_busy() {
        let mut watch = Watch::new(Some(PATIENCE));
        let busy_at = (1..200).find(|now| {
            // Passes of 10 s, all of one size; each look finds a little of the disks that is not mirrored yet.
            let job =
                Job { disk_remaining: 1 + now % 3, disk_processed: *now, ..job(1 + now / 10, 500, *now) };
            matches!(watch.look(seconds(*now), &job), Sight::Busy(_))
        });
        // The last look at the first pass was after 9 s.
        assert_eq!(busy_at, Some(69));
    }

    #[test]
    fn one_long_pass_is_not_judged_before_the_next_ones_began() {
        let mut watch = Watch::new(Some(PATIENCE));
        for now in 1..500 {
            assert_eq!(watch.look(seconds(now), &job(1, 5000 - now, now)), Sight::Moves);
        }
        for now in 500..700 {
            assert_eq!(watch.look(seconds(now), &job(2, 5000 - now, now)), Sight::Moves);
        }
    }

    #[test]
    fn disks_that_are_copied_are_progress_and_silence_is_none() {
        let mut watch = Watch::new(Some(PATIENCE));
        let disks = |moved| Job { kind: 2, disk_remaining: 9, disk_processed: moved, ..Job::default() };
        for now in 1..300 {
            assert_eq!(watch.look(seconds(now), &disks(now)), Sight::Moves);
        }
        assert_eq!(watch.look(seconds(358), &disks(299)), Sight::Moves);
        assert_eq!(watch.look(seconds(359), &disks(299)), Sight::Dead(PATIENCE));
    }

    #[test]
    fn a_guest_that_is_slowed_more_gets_more_time() {
        let mut watch = Watch::new(Some(PATIENCE));
        let mut now = 0;
        for pass in 1..30 {
            now += 10;
            let slowed = Job { throttle: pass.min(20), ..job(pass, 500, now) };
            let sight = watch.look(seconds(now), &slowed);
            assert_eq!(matches!(sight, Sight::Busy(_)), pass >= 26, "pass {pass}");
        }
    }

    #[test]
    fn without_patience_nothing_is_wrong() {
        let mut watch = Watch::new(None);
        for now in 1..2000 {
            assert_eq!(watch.look(seconds(now), &job(1 + now / 9, 500, 7)), Sight::Moves);
        }
    }
}
