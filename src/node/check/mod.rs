//! Whether a host is fit for KVM. Each check gives one [`Finding`]: a verdict, what was found, and what mends it. "Could
//! not check" is never mistaken for a failure. Shared by the monitoring agent, the doctor and the check of migrations.

pub mod access;
pub mod account;
mod account_checks;
mod agents;
pub mod command;
pub mod edit;
pub mod host;
mod kvm;
pub mod libvirt_conf;
pub mod migration;
pub mod mounts;
mod network;
mod policy;
mod qemu_conf;
pub mod report;
pub mod session;
mod storage;
#[cfg(test)]
mod tests;
mod transport;

use std::borrow::Cow;

use edit::Edit;

use crate::node::monitor::virsh::Virsh;
use crate::node::root::Root;

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, with a limit or a risk.
    Warning,
    /// VMs will not run, or not as they should.
    Failure,
    /// Does not apply here.
    Skipped,
    /// It could not be found out.
    CouldNotCheck,
}

/// For what a check counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// What VMs of OpenNebula need.
    Kvm,
    /// What cloud-image VMs (`kvmad vm`) need on top.
    Cloud,
    /// What migration between hosts needs.
    Migration,
    /// What OpenNebula and its drivers need: users, permissions, ssh, the remotes.
    Opennebula,
}

/// A check as its documentation tells it: `kvmad doctor --explain ID`, docs/doctor.md. Every module of checks has a table
/// of those that it makes.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Stable name of the check: lower case, digits and `-`.
    pub id: &'static str,
    /// For what it counts.
    pub group: Group,
    /// What is looked at and what is wanted, in one sentence.
    pub what: &'static str,
    /// Why it matters: what goes wrong otherwise.
    pub why: &'static str,
    /// What mends it, in general; a finding has the exact command.
    pub mend: &'static str,
}

/// The tables of all checks that one host makes of itself, in the order of the documentation.
pub const TABLES: &[&[Check]] = &[
    kvm::CHECKS,
    account_checks::CHECKS,
    qemu_conf::CHECKS,
    policy::CHECKS,
    storage::CHECKS,
    session::CHECKS,
    agents::CHECKS,
    network::CHECKS,
    transport::CHECKS,
    migration::CHECKS,
];

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Finding {
    /// Stable name of the check: lower case, digits and `-`.
    pub id: Cow<'static, str>,
    /// For what it counts.
    pub group: Group,
    /// What it came to.
    pub verdict: Verdict,
    /// What was found, for people.
    pub evidence: String,
    /// The command or edit that mends it; empty when nothing is to be mended.
    pub mend: String,
    /// What `kvmad doctor --fix` may do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<Box<Fix>>,
}

/// What `kvmad doctor --fix` may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fix {
    /// The edits, in order.
    pub edits: Vec<Edit>,
    /// What a person must do after them, for them to count; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub after: String,
}

impl Verdict {
    /// The word for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "FAILURE",
            Self::Skipped => "skipped",
            Self::CouldNotCheck => "unchecked",
        }
    }
}

impl Group {
    /// The word of the command line and of the documentation.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Cloud => "cloud",
            Self::Migration => "migration",
            Self::Opennebula => "opennebula",
        }
    }
}

impl Finding {
    /// All well.
    pub fn ok(id: &'static str, group: Group, evidence: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            group,
            verdict: Verdict::Ok,
            evidence: evidence.into(),
            mend: String::new(),
            fix: None,
        }
    }

    /// It does not apply here; `evidence` says why.
    pub fn skipped(id: &'static str, group: Group, evidence: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped, ..Self::ok(id, group, evidence) }
    }

    /// It could not be found out; `evidence` says why, `mend` what to do so that it can.
    pub fn unchecked(
        id: &'static str,
        group: Group,
        evidence: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::bad(id, group, Verdict::CouldNotCheck, evidence, mend)
    }

    /// Anything else, with its mend.
    pub fn bad(
        id: &'static str,
        group: Group,
        verdict: Verdict,
        evidence: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { verdict, mend: mend.into(), ..Self::ok(id, group, evidence) }
    }

    /// The same with what `--fix` may do about it.
    #[must_use]
    pub fn with_edits(self, edits: impl IntoIterator<Item = Edit>) -> Self {
        let fix = Fix { edits: edits.into_iter().collect(), after: String::new() };
        Self { fix: Some(Box::new(fix)), ..self }
    }

    /// The same with what a person must do after the edits.
    #[must_use]
    pub fn after(self, words: impl Into<String>) -> Self {
        let fix = Fix { after: words.into(), ..self.fix.map(|fix| *fix).unwrap_or_default() };
        Self { fix: Some(Box::new(fix)), ..self }
    }
}

/// All checks of whether a host can run VMs. `emulated` is for hosts that are meant for type qemu, which need no
/// /dev/kvm.
pub async fn readiness(root: &Root, virsh: &Virsh, machine: &str, emulated: bool) -> Vec<Finding> {
    let mut all = vec![kvm::cpu(root), kvm::device(root, emulated), kvm::modules(root), kvm::virsh(root)];
    all.push(kvm::libvirt(virsh).await);
    all.extend(kvm::tools(root, machine));
    all
}

/// The findings as monitoring attributes: KVMAD_READY (YES unless a check of the kvm group failed),
/// KVMAD_CHECKS_FAILED, KVMAD_CHECKS_WARNING and KVMAD_CHECKS_UNKNOWN (lists of checks, empty when there are none).
pub fn attributes(findings: &[Finding], text: &mut String) {
    let named = |verdict: Verdict| {
        let ids: Vec<&str> =
            findings.iter().filter(|f| f.verdict == verdict).map(|f| f.id.as_ref()).collect();
        ids.join(",")
    };
    let ready = !findings.iter().any(|f| f.group == Group::Kvm && f.verdict == Verdict::Failure);
    text.push_str(&format!("KVMAD_READY={}\n", if ready { "YES" } else { "NO" }));
    for (name, verdict) in
        [("FAILED", Verdict::Failure), ("WARNING", Verdict::Warning), ("UNKNOWN", Verdict::CouldNotCheck)]
    {
        text.push_str(&format!("KVMAD_CHECKS_{name}=\"{}\"\n", named(verdict)));
    }
}

#[cfg(test)]
mod ready_tests {
    use super::*;

    #[test]
    fn only_a_failure_of_the_kvm_group_makes_a_host_unfit() {
        let of = |group, verdict| Finding::bad("x", group, verdict, "e", "m");
        for (findings, ready) in [
            (vec![], "YES"),
            (vec![of(Group::Cloud, Verdict::Failure), of(Group::Kvm, Verdict::Warning)], "YES"),
            (vec![of(Group::Kvm, Verdict::CouldNotCheck)], "YES"),
            (vec![of(Group::Kvm, Verdict::Failure)], "NO"),
        ] {
            let mut text = String::new();
            attributes(&findings, &mut text);
            assert!(text.starts_with(&format!("KVMAD_READY={ready}\nKVMAD_CHECKS_FAILED=\"")), "{text}");
            assert_eq!(crate::node::monitor::text::check(&text), Ok(()));
        }
    }
}
