//! Where the domain is after trouble, and what is to be done about it. Pure: what both hosts say goes in, one next move
//! comes out.
//!
//! The rules: nothing is taken away from a host while it may be the only one that has the domain; a domain is resumed on
//! the source only when the target positively has none of it; what runs on the target has arrived.

use super::libvirt::Domain;

/// What a host says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// This.
    Says(Domain),
    /// Nothing, for this reason.
    Silent(String),
}

impl From<Result<Domain, String>> for Side {
    fn from(answer: Result<Domain, String>) -> Self {
        match answer {
            Ok(domain) => Self::Says(domain),
            Err(why) => Self::Silent(why),
        }
    }
}

/// What is known besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The guest ran before the migration.
    pub ran: bool,
    /// The target positively had no such domain before: what it has now is of this migration.
    pub free: bool,
    /// How long both hosts were asked already.
    pub asked: Asked,
}

/// How long both hosts were asked already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// libvirt may still be tidying up by itself.
    Briefly,
    /// It has had the time for that.
    Well,
    /// As long as is to be waited.
    Enough,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask again.
    Wait,
    /// It runs (or stands, when it stood before) on the target and nowhere else.
    Arrived,
    /// It runs on the target; whether the source has something of it is not known.
    ArrivedUnconfirmed,
    /// It is on the source and nothing of it on the target.
    Stayed,
    /// It runs on the source; what the target has is not known, or not ours to take away.
    StayedUnconfirmed,
    /// The target has none of it, and the source can't be asked.
    NotArrived,
    /// Nobody can tell where it runs.
    Unknown,
    /// Neither host has it.
    Lost,
    /// It was cut in two: its memory lies on both hosts.
    Torn,
    /// The source has a copy that stands still, while the target runs: take that away.
    DestroySource,
    /// It runs on both: let the one on the source stand still.
    SuspendSource,
    /// The target has none of it, and the source's stands still: let it run.
    ResumeSource,
    /// The source has it, and what the target has never ran: take that away.
    DestroyTarget,
    /// Only the target has it, and it stands still: let it run.
    ResumeTarget,
}

/// Reasons of libvirt why a domain stands still.
const BY_MIGRATION: u8 = 2;
const STARTING: u8 = 11;
const POSTCOPY: u8 = 12;
const POSTCOPY_FAILED: u8 = 13;
/// Reasons why it runs.
const MIGRATED: u8 = 2;
const RUNNING_POSTCOPY: u8 = 10;
const RUNNING_POSTCOPY_FAILED: u8 = 11;
/// Reasons with which libvirt stops a guest for a migration or on our word; others (a full disk, a watchdog) stay.
const RESUMABLE: [u8; 5] = [0, 1, BY_MIGRATION, STARTING, POSTCOPY];

/// What to do next, when `source` and `target` say this.
#[must_use]
pub fn judge(known: Known, source: &Side, target: &Side) -> Next {
    if let (Side::Says(source), Side::Says(target)) = (source, target)
        && in_two(*source, *target)
    {
        return known.late(if broken(*source, *target) { Next::Torn } else { Next::Unknown });
    }
    match target {
        Side::Says(target) if target.runs() => on_target(known, source, *target),
        Side::Says(target) if target.is_active() => stands_on_target(known, source, *target),
        Side::Says(_) => not_on_target(known, source),
        Side::Silent(_) => target_silent(known, source),
    }
}

impl Known {
    /// `next` when libvirt had time to tidy up.
    fn well(self, next: Next) -> Next {
        if self.asked >= Asked::Well { next } else { Next::Wait }
    }

    /// `next` when there is no more time.
    fn late(self, next: Next) -> Next {
        if self.asked >= Asked::Enough { next } else { Next::Wait }
    }
}

/// Its memory is in the course of being fetched from the source, or that broke off.
fn in_two(source: Domain, target: Domain) -> bool {
    matches!(source, Domain::Active(3, POSTCOPY | POSTCOPY_FAILED))
        && matches!(
            target,
            Domain::Active(1, RUNNING_POSTCOPY | RUNNING_POSTCOPY_FAILED)
                | Domain::Active(3, POSTCOPY | POSTCOPY_FAILED)
        )
}

fn broken(source: Domain, target: Domain) -> bool {
    matches!(source, Domain::Active(3, POSTCOPY_FAILED))
        || matches!(target, Domain::Active(1, RUNNING_POSTCOPY_FAILED) | Domain::Active(3, POSTCOPY_FAILED))
}

fn on_target(known: Known, source: &Side, target: Domain) -> Next {
    match source {
        Side::Says(source) if source.runs() => match target {
            // The word that it had arrived was lost on the way back, so the source let it run again.
            Domain::Active(_, MIGRATED) if known.free => Next::SuspendSource,
            _ => known.late(Next::Unknown),
        },
        Side::Says(source) if source.is_active() => {
            known.well(if known.free { Next::DestroySource } else { Next::Unknown })
        }
        Side::Says(_) => Next::Arrived,
        Side::Silent(_) => known.late(Next::ArrivedUnconfirmed),
    }
}

fn stands_on_target(known: Known, source: &Side, target: Domain) -> Next {
    let never_ran = matches!(target, Domain::Active(3, BY_MIGRATION | STARTING));
    match source {
        Side::Says(source) if source.is_active() && never_ran && known.free => {
            known.well(Next::DestroyTarget)
        }
        Side::Says(source) if source.runs() => known.late(Next::StayedUnconfirmed),
        Side::Says(source) if source.is_active() => known.late(Next::Unknown),
        Side::Says(_) if !known.ran => Next::Arrived,
        Side::Says(_) if never_ran => {
            known.well(if known.asked == Asked::Enough { Next::Unknown } else { Next::ResumeTarget })
        }
        Side::Says(_) => Next::Arrived,
        Side::Silent(_) => known.late(Next::Unknown),
    }
}

fn not_on_target(known: Known, source: &Side) -> Next {
    match source {
        Side::Says(source) if source.runs() => Next::Stayed,
        Side::Says(Domain::Active(_, reason)) => {
            if known.ran && RESUMABLE.contains(reason) {
                // What is tried in vain must end some time.
                known.well(if known.asked == Asked::Enough { Next::Stayed } else { Next::ResumeSource })
            } else {
                Next::Stayed
            }
        }
        Side::Says(_) => known.well(Next::Lost),
        Side::Silent(_) => known.late(Next::NotArrived),
    }
}

fn target_silent(known: Known, source: &Side) -> Next {
    match source {
        Side::Says(source) if source.runs() || (source.is_active() && !known.ran) => {
            known.late(Next::StayedUnconfirmed)
        }
        _ => known.late(Next::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: Domain = Domain::Active(1, 1);
    const ARRIVED: Domain = Domain::Active(1, MIGRATED);
    const WAITS: Domain = Domain::Active(3, BY_MIGRATION);
    const ALL: [Asked; 3] = [Asked::Briefly, Asked::Well, Asked::Enough];

    fn silent() -> Side {
        Side::Silent("no answer".to_owned())
    }

    /// The moves after a short, a fair and the longest time.
    fn moves(source: Side, target: Side) -> [Next; 3] {
        ALL.map(|asked| judge(Known { ran: true, free: true, asked }, &source, &target))
    }

    fn says(source: Domain, target: Domain) -> [Next; 3] {
        moves(Side::Says(source), Side::Says(target))
    }

    #[test]
    fn what_runs_on_one_side_only_is_there() {
        for gone in [Domain::Gone, Domain::Off] {
            assert_eq!(says(gone, ARRIVED), [Next::Arrived; 3]);
            assert_eq!(says(RUNS, gone), [Next::Stayed; 3]);
            assert_eq!(says(gone, Domain::Gone), [Next::Wait, Next::Lost, Next::Lost]);
        }
    }

    #[test]
    fn what_stands_on_the_source_runs_on_when_the_target_has_none() {
        assert_eq!(says(WAITS, Domain::Gone), [Next::Wait, Next::ResumeSource, Next::Stayed]);
        let full_disk = Domain::Active(3, 5);
        assert_eq!(says(full_disk, Domain::Gone), [Next::Stayed; 3]);
        let known = Known { ran: false, free: true, asked: Asked::Well };
        assert_eq!(judge(known, &Side::Says(Domain::Active(3, 1)), &Side::Says(Domain::Gone)), Next::Stayed);
    }

    #[test]
    fn nothing_moves_on_the_source_while_the_target_is_silent() {
        assert_eq!(moves(Side::Says(WAITS), silent()), [Next::Wait, Next::Wait, Next::Unknown]);
        assert_eq!(moves(Side::Says(Domain::Gone), silent()), [Next::Wait, Next::Wait, Next::Unknown]);
        let runs = moves(Side::Says(RUNS), silent());
        assert_eq!(runs, [Next::Wait, Next::Wait, Next::StayedUnconfirmed], "it may answer in a moment");
    }

    #[test]
    fn the_target_is_cleaned_only_when_it_never_ran_and_the_source_has_it() {
        assert_eq!(says(RUNS, WAITS), [Next::Wait, Next::DestroyTarget, Next::DestroyTarget]);
        assert_eq!(says(WAITS, WAITS), [Next::Wait, Next::DestroyTarget, Next::DestroyTarget]);
        assert_eq!(moves(silent(), Side::Says(WAITS)), [Next::Wait, Next::Wait, Next::Unknown]);
        let paused_by_hand = Domain::Active(3, 1);
        assert_eq!(says(RUNS, paused_by_hand), [Next::Wait, Next::Wait, Next::StayedUnconfirmed]);
        for source in [Domain::Gone, Domain::Off] {
            for next in says(source, WAITS) {
                assert_ne!(next, Next::DestroyTarget, "it may be the only one");
            }
        }
    }

    #[test]
    fn a_domain_that_was_there_before_is_not_ours() {
        for asked in ALL {
            let known = Known { ran: true, free: false, asked };
            for source in [RUNS, WAITS] {
                for target in [ARRIVED, WAITS] {
                    let next = judge(known, &Side::Says(source), &Side::Says(target));
                    assert!(
                        matches!(next, Next::Wait | Next::StayedUnconfirmed | Next::Unknown),
                        "{source:?} {target:?}: {next:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_runs_twice_stands_still_on_the_source_at_once_and_goes_then() {
        assert_eq!(says(Domain::Active(1, 6), ARRIVED), [Next::SuspendSource; 3]);
        assert_eq!(
            says(Domain::Active(3, 1), ARRIVED),
            [Next::Wait, Next::DestroySource, Next::DestroySource]
        );
        // It runs on the target for another reason than a migration: whose is it?
        assert_eq!(says(RUNS, RUNS), [Next::Wait, Next::Wait, Next::Unknown]);
    }

    #[test]
    fn a_silent_source_does_not_make_the_arrival_undone() {
        assert_eq!(moves(silent(), Side::Says(ARRIVED)), [Next::Wait, Next::Wait, Next::ArrivedUnconfirmed]);
        assert_eq!(moves(silent(), Side::Says(Domain::Gone)), [Next::Wait, Next::Wait, Next::NotArrived]);
        assert_eq!(moves(silent(), silent()), [Next::Wait, Next::Wait, Next::Unknown]);
    }

    #[test]
    fn a_guest_cut_in_two_is_never_touched() {
        let halves = [
            (Domain::Active(3, POSTCOPY), Domain::Active(1, RUNNING_POSTCOPY), Next::Unknown),
            (Domain::Active(3, POSTCOPY_FAILED), Domain::Active(3, POSTCOPY_FAILED), Next::Torn),
            (Domain::Active(3, POSTCOPY_FAILED), Domain::Active(1, RUNNING_POSTCOPY_FAILED), Next::Torn),
        ];
        for (source, target, end) in halves {
            assert_eq!(says(source, target), [Next::Wait, Next::Wait, end]);
        }
    }

    #[test]
    fn the_only_one_that_is_left_is_let_run_and_never_destroyed() {
        assert_eq!(says(Domain::Gone, WAITS), [Next::Wait, Next::ResumeTarget, Next::Unknown]);
        let known = Known { ran: false, free: true, asked: Asked::Well };
        assert_eq!(judge(known, &Side::Says(Domain::Gone), &Side::Says(Domain::Active(3, 1))), Next::Arrived);
    }
}
