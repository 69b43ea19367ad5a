//! What was found, for people and for programs.

use serde_json::{Value, json};

use super::places::Seen;
use super::{explain, front};
use crate::node::check::report::Chosen;
use crate::node::check::{Check, Finding, Verdict};

/// Findings of two hosts about each other.
#[derive(Debug)]
pub struct Pair {
    /// One.
    pub from: String,
    /// The other.
    pub to: String,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// Everything.
#[derive(Debug)]
pub struct Summary {
    /// Each host.
    pub hosts: Vec<Seen>,
    /// Every two of them.
    pub pairs: Vec<Pair>,
}

impl Summary {
    /// Adds why there is nothing of a check that was named: it does not apply.
    pub fn skip_named(&mut self, chosen: &Chosen) {
        let pairs = !self.pairs.is_empty();
        for check in chosen.only.iter().filter_map(|id| explain::find(id).ok()) {
            let of_pair = pairs && check.id.starts_with("pair-");
            let hosts = self.hosts.iter_mut().filter(|_| !of_pair);
            for seen in hosts.filter(|seen| seen.report.is_some()) {
                let why = not_made(check, seen.host.is_some(), chosen);
                skip(&mut seen.findings, check, why);
            }
            for pair in self.pairs.iter_mut().filter(|_| of_pair) {
                skip(&mut pair.findings, check, "it does not apply to these hosts");
            }
        }
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        let pairs = self.pairs.iter().flat_map(|pair| &pair.findings);
        self.hosts.iter().flat_map(|seen| &seen.findings).chain(pairs)
    }

    /// The exit status.
    #[must_use]
    pub fn status(&self) -> u8 {
        let has = |verdict| self.findings().any(|finding| finding.verdict == verdict);
        match (has(Verdict::Failure), has(Verdict::CouldNotCheck)) {
            (true, _) => crate::cli::FINDING,
            (false, true) => crate::cli::UNCHECKED,
            (false, false) => crate::cli::FINE,
        }
    }

    /// For people. `all`: also what is well.
    #[must_use]
    pub fn text(&self, all: bool) -> String {
        let mut text = String::new();
        for seen in &self.hosts {
            text.push_str(&section(&seen.title(), &seen.findings, all));
        }
        for pair in &self.pairs {
            text.push_str(&section(&format!("{} and {}", pair.from, pair.to), &pair.findings, all));
        }
        crate::cli::plain(&text)
    }

    /// For programs.
    ///
    /// # Errors
    /// When it can't be written as JSON.
    pub fn json(&self) -> Result<String, String> {
        let hosts: Vec<Value> = self
            .hosts
            .iter()
            .map(|seen| {
                json!({
                    "host": seen.name(),
                    "user": seen.report.as_ref().map(|report| &report.user),
                    "root": seen.report.as_ref().map(|report| report.root),
                    "version": seen.report.as_ref().map(|report| &report.version),
                    "facts": seen.report.as_ref().map(|report| &report.facts),
                    "findings": seen.findings.iter().map(value).collect::<Vec<_>>(),
                })
            })
            .collect();
        let pairs: Vec<Value> = self
            .pairs
            .iter()
            .map(|pair| {
                json!({
                    "from": pair.from,
                    "to": pair.to,
                    "findings": pair.findings.iter().map(value).collect::<Vec<_>>(),
                })
            })
            .collect();
        let text =
            serde_json::to_string_pretty(&json!({ "status": self.status(), "hosts": hosts, "pairs": pairs }));
        text.map(|text| text + "\n").map_err(|error| error.to_string())
    }
}

/// Unless there is a finding of it, or nothing of the kind could be checked.
fn skip(findings: &mut Vec<Finding>, check: &Check, why: &'static str) {
    if !findings.iter().any(|f| f.id == check.id || f.verdict == Verdict::CouldNotCheck) {
        findings.push(Finding::skipped(check.id, check.group, why));
    }
}

/// Why a check is not made of a host. `remote`: it was named, not this machine.
fn not_made(check: &Check, remote: bool, chosen: &Chosen) -> &'static str {
    let between = front::CHECKS.iter().any(|one| one.id == check.id);
    if !chosen.groups.is_empty() && !chosen.groups.contains(&check.group) {
        "it is in none of the groups that --group names"
    } else if check.id.starts_with("pair-") {
        "it is made of two hosts: name both (not as root@HOST)"
    } else if check.id.starts_with("vm-") {
        "it is made of a VM: kvmad migrate-check VM HOST"
    } else if between && !remote {
        "it is made between the front-end and a host: name the host"
    } else {
        "it does not apply here"
    }
}

fn value(finding: &Finding) -> Value {
    json!({
        "id": finding.id,
        "group": finding.group,
        "verdict": finding.verdict,
        "evidence": finding.evidence,
        "why": why(finding),
        "mend": finding.mend,
        "fixable": finding.fix.is_some(),
    })
}

fn why(finding: &Finding) -> &'static str {
    explain::all().find(|check| check.id == finding.id).map_or("", |check| check.why)
}

/// How grave, the gravest first.
const ORDER: [Verdict; 5] =
    [Verdict::Failure, Verdict::CouldNotCheck, Verdict::Warning, Verdict::Skipped, Verdict::Ok];

fn section(title: &str, findings: &[Finding], all: bool) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let plural = |number: usize, word: &str| match number {
        0 => None,
        1 => Some(format!("1 {word}")),
        n => Some(format!("{n} {word}s")),
    };
    let parts = [
        plural(count(Verdict::Failure), "failure"),
        Some(count(Verdict::CouldNotCheck)).filter(|n| *n > 0).map(|n| format!("{n} could not be checked")),
        plural(count(Verdict::Warning), "warning"),
        Some(format!("{} ok", count(Verdict::Ok))),
        Some(count(Verdict::Skipped)).filter(|n| *n > 0).map(|n| format!("{n} skipped")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let mut text = format!("{title}: {}\n", parts.join(", "));
    for verdict in ORDER {
        let quiet = matches!(verdict, Verdict::Ok | Verdict::Skipped);
        for finding in findings.iter().filter(|finding| finding.verdict == verdict && (all || !quiet)) {
            text.push_str(&format!(
                "  {:<9} {:<20} {}\n",
                verdict.word(),
                finding.id,
                indented(&finding.evidence)
            ));
            if quiet {
                continue;
            }
            let why = why(finding);
            for (word, words) in
                [("why", why), ("mend", finding.mend.as_str())].iter().filter(|(_, words)| !words.is_empty())
            {
                text.push_str(&format!("  {:<9} {word:<20} {}\n", "", indented(words)));
            }
        }
    }
    text
}

/// Further lines stand below the first one.
fn indented(text: &str) -> String {
    text.replace('\n', &format!("\n{}", " ".repeat(33)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostName;
    use crate::node::check::Group;
    use crate::node::check::report::Report;

    fn of(verdicts: &[Verdict]) -> Summary {
        let one = |verdict: &Verdict| {
            Finding::bad("group-kvm", Group::Opennebula, *verdict, "seen\u{1b}[2J", "a\nb")
        };
        Summary { hosts: vec![Seen::of("n", verdicts.iter().map(one).collect())], pairs: vec![] }
    }

    #[test]
    fn the_exit_status_is_that_of_the_worst() {
        use Verdict::{CouldNotCheck, Failure, Ok, Skipped, Warning};
        for (verdicts, status) in [
            (&[][..], 0),
            (&[Ok, Skipped, Warning], 0),
            (&[Warning, CouldNotCheck], 3),
            (&[CouldNotCheck, Failure], 1),
        ] {
            assert_eq!(of(verdicts).status(), status, "{verdicts:?}");
        }
    }

    #[test]
    fn people_see_what_is_wrong_first_with_why_and_mend() {
        let text = of(&[Verdict::Ok, Verdict::Warning, Verdict::Failure]).text(false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "n: 1 failure, 1 warning, 1 ok");
        assert!(
            lines[1].starts_with("  FAILURE   group-kvm") && lines[2].contains("QEMU runs as this user"),
            "{text}"
        );
        assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["mend", "a"]);
        assert_eq!(lines[4].trim(), "b");
        assert!(!text.contains('\u{1b}') && !text.contains("  ok"), "{text}");
        assert!(of(&[Verdict::Ok]).text(true).contains("  ok        group-kvm"));
    }

    #[test]
    fn a_check_that_was_named_and_does_not_apply_is_skipped_with_the_reason() {
        let only = |ids: &[&str], groups: &[Group]| Chosen {
            groups: groups.to_vec(),
            only: ids.iter().map(|id| (*id).to_owned()).collect(),
        };
        let host = |name: Option<&str>, told: bool| Seen {
            host: name.map(|name| HostName::new(name).expect("a name")),
            report: told.then(Report::default),
            ..Seen::of("n", vec![])
        };
        let none = &[][..];
        for (seen, id, groups, part) in [
            (host(None, true), "clock", none, "name the host"),
            (host(Some("n"), true), "pair-name", none, "name both"),
            (host(Some("n"), true), "vm-cpu", none, "migrate-check"),
            (host(Some("n"), true), "clock", &[Group::Kvm][..], "--group"),
            (host(Some("n"), true), "clock", none, "does not apply"),
        ] {
            let mut summary = Summary { hosts: vec![seen], pairs: vec![] };
            summary.skip_named(&only(&[id], groups));
            let [found] = &summary.hosts[0].findings[..] else { panic!("{id}: {summary:?}") };
            assert_eq!((found.id.as_ref(), found.verdict), (id, Verdict::Skipped));
            assert!(found.evidence.contains(part), "{id}: {found:?}");
            assert!(summary.text(true).contains("0 ok, 1 skipped\n"), "{}", summary.text(true));
        }
        let mut silent = Summary { hosts: vec![host(Some("n"), false)], pairs: vec![] };
        silent.skip_named(&only(&["clock"], &[]));
        assert!(silent.hosts[0].findings.is_empty(), "{silent:?}");
    }

    #[test]
    fn programs_get_an_object_with_the_reasons() {
        let value: Value =
            serde_json::from_str(&of(&[Verdict::Failure]).json().expect("JSON")).expect("JSON");
        let finding = &value["hosts"][0]["findings"][0];
        assert_eq!((value["status"].as_u64(), finding["verdict"].as_str()), (Some(1), Some("failure")));
        assert!(finding["why"].as_str().is_some_and(|why| !why.is_empty()));
    }
}
