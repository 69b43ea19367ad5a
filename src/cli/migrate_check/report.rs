//! Findings, for people and for programs.

use serde::Serialize;

use crate::node::check::{Finding, Verdict};

/// What was checked.
#[derive(Debug, Clone, Serialize)]
pub struct Report<'a> {
    /// The domain.
    pub vm: &'a str,
    /// The host that it would leave.
    pub source: &'a str,
    /// The host that it would go to.
    pub target: &'a str,
    /// The worst verdict that counts.
    pub verdict: Verdict,
    /// Every check.
    pub findings: &'a [Finding],
}

impl<'a> Report<'a> {
    /// Of these findings.
    #[must_use]
    pub fn new(vm: &'a str, source: &'a str, target: &'a str, findings: &'a [Finding]) -> Self {
        let has = |verdict| findings.iter().any(|finding| finding.verdict == verdict);
        let order = [Verdict::Failure, Verdict::CouldNotCheck, Verdict::Warning];
        let verdict = order.into_iter().find(|verdict| has(*verdict)).unwrap_or(Verdict::Ok);
        Self { vm, source, target, verdict, findings }
    }

    /// The exit status: a failure is a finding, what could not be checked is unchecked; warnings are fine.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self.verdict {
            Verdict::Failure => crate::cli::FINDING,
            Verdict::CouldNotCheck => crate::cli::UNCHECKED,
            Verdict::Ok | Verdict::Warning | Verdict::Skipped => crate::cli::FINE,
        }
    }

    /// For people: a line a check, with what to do below it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{} from {} to {}\n", self.vm, self.source, self.target);
        for finding in self.findings {
            text.push_str(&format!(
                "  {:<11} {:<20} {}\n",
                finding.verdict.word(),
                finding.id,
                finding.evidence
            ));
            if !finding.mend.is_empty() {
                text.push_str(&format!("  {:<11} {:<20} -> {}\n", "", "", finding.mend));
            }
        }
        text.push_str(match self.verdict {
            Verdict::Failure => "It can't be migrated like this.\n",
            Verdict::CouldNotCheck => "Nothing speaks against it, but not everything could be checked.\n",
            Verdict::Warning => "It can be migrated; mind the warnings.\n",
            Verdict::Ok | Verdict::Skipped => "It can be migrated.\n",
        });
        crate::cli::plain(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::check::Group;

    fn of(verdicts: &[Verdict]) -> Vec<Finding> {
        let one =
            |verdict: &Verdict| Finding::bad("vm-x", Group::Migration, *verdict, "seen\u{1b}[2J", "mend");
        verdicts.iter().map(one).collect()
    }

    #[test]
    fn the_exit_status_is_that_of_the_worst() {
        use Verdict::{CouldNotCheck, Failure, Ok, Skipped, Warning};
        for (verdicts, status) in [
            (&[][..], 0),
            (&[Ok, Skipped, Warning][..], 0),
            (&[CouldNotCheck, Warning][..], 3),
            (&[CouldNotCheck, Failure][..], 1),
        ] {
            assert_eq!(Report::new("one-7", "a", "b", &of(verdicts)).status(), status, "{verdicts:?}");
        }
    }

    #[test]
    fn people_see_the_mend_and_no_control_characters() {
        let findings = of(&[Verdict::Failure]);
        let text = Report::new("one-7", "a", "b", &findings).text();
        assert!(
            text.contains("FAILURE     vm-x") && text.contains("-> mend") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}
