//! What libvirt is asked, through `virsh`. Several commands go to one `virsh` in one argument, separated by `;`; only
//! fixed words and checked UUIDs stand in it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::domstats::{self, Domain};
use super::table::Sight;
use crate::node::tools::{Ask, Tools};

/// Libvirt of this host.
#[derive(Clone)]
pub struct Virsh {
    tools: Arc<dyn Tools>,
    uri: String,
    limit: Duration,
}

/// Separates the outputs of two commands. No line of `domstats` begins so.
const MARK: &str = "=kvmad=";
/// Characters that old versions of virsh fill names up to in lists.
const FILLED: usize = 30;

impl Virsh {
    /// `uri` is that of kvmrc; `limit` is for states and statistics.
    #[must_use]
    pub fn new(tools: Arc<dyn Tools>, uri: &str, limit: Duration) -> Self {
        Self { tools, uri: uri.to_owned(), limit }
    }

    /// The URI.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// What starts programs.
    #[must_use]
    pub fn tools(&self) -> &Arc<dyn Tools> {
        &self.tools
    }

    /// Runs one `virsh` with `args`.
    ///
    /// # Errors
    /// Why there is no good answer, in one line.
    pub async fn run(&self, args: &[&str], stdin: Bytes, limit: Duration) -> Result<String, String> {
        let mut all = vec!["--quiet", "--connect", &self.uri];
        all.extend(args);
        let ask = Ask { stdin, ..Ask::new("virsh", all, limit) };
        self.tools.ask(ask).await?.good("virsh", limit)
    }

    /// All domains, active or not, with their states. A complete list or none at all.
    ///
    /// # Errors
    /// Why libvirt gave none.
    pub async fn look(&self) -> Result<Vec<Sight>, String> {
        let script = format!("domstats --raw --nowait --state; echo {MARK}; list --all --uuid --name");
        let text = self.run(&[&script], Bytes::new(), self.limit).await?;
        read_look(&text).ok_or_else(|| "virsh ended before its list of domains".to_owned())
    }

    /// Statistics of the active domains, and the UUID of each by name.
    ///
    /// `--nowait` leaves out what a busy domain can't tell at once. One whose QEMU has just begun to hang still holds
    /// this question up, until the limit; from then on libvirt knows that it is busy, so it is asked once more.
    ///
    /// # Errors
    /// Why libvirt gave none.
    pub async fn statistics(&self, patience: Duration) -> Result<Vec<(String, Domain)>, String> {
        self.statistics_of("--state --interface --block", patience).await
    }

    /// The same with other groups of statistics (fixed words of `virsh domstats`).
    ///
    /// # Errors
    /// Why libvirt gave none.
    pub async fn statistics_of(
        &self,
        groups: &'static str,
        patience: Duration,
    ) -> Result<Vec<(String, Domain)>, String> {
        let script =
            format!("domstats --raw --nowait --list-active {groups}; echo {MARK}; list --uuid --name");
        let first = patience.min(self.limit);
        let text = match self.run(&[&script], Bytes::new(), first).await {
            Ok(text) => text,
            Err(_) => self.run(&[&script], Bytes::new(), self.limit).await?,
        };
        read_statistics(&text).ok_or_else(|| "virsh ended before its list of domains".to_owned())
    }

    /// `dumpxml` of domains, by UUID; those that could not be had are left out.
    ///
    /// # Errors
    /// Why libvirt gave nothing at all.
    pub async fn xml(&self, uuids: &[String]) -> Result<Vec<(String, String)>, String> {
        let mut found = Vec::new();
        for some in uuids.chunks(50) {
            let commands: Vec<String> = some
                .iter()
                .filter(|uuid| is_uuid(uuid))
                .map(|uuid| format!("echo {MARK}{uuid}=; dumpxml {uuid}; echo {MARK}"))
                .collect();
            if commands.is_empty() {
                continue;
            }
            let text = self.run(&[&commands.join("; ")], Bytes::new(), self.limit).await?;
            for part in text.split(MARK) {
                let Some((uuid, xml)) = part.split_once('=') else { continue };
                if is_uuid(uuid) && xml.trim_end().ends_with("</domain>") {
                    found.push((uuid.to_owned(), xml.trim().to_owned()));
                }
            }
        }
        Ok(found)
    }

    /// One command for the guest agent of a domain; the answer is its JSON.
    ///
    /// # Errors
    /// What virsh says.
    pub async fn guest(&self, uuid: &str, command: &str, limit: Duration) -> Result<String, String> {
        let seconds = limit.as_secs().max(1).to_string();
        let args = ["qemu-agent-command", "--domain", uuid, "--timeout", &seconds, "--cmd", command];
        self.run(&args, Bytes::new(), limit + Duration::from_secs(2)).await
    }
}

/// Whether `text` is a UUID in libvirt's form.
#[must_use]
pub fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
        })
}

/// Splits at the mark that stands at the beginning of a line (a name can't hold a newline).
fn parts(text: &str) -> Option<(&str, &str)> {
    let at = if text.starts_with(MARK) { 0 } else { text.find(&format!("\n{MARK}"))? + 1 };
    Some((&text[..at], &text[at + MARK.len()..]))
}

/// (UUID, name) of `UUID NAME` lines. Names may end in blanks of their own; old versions of virsh also fill them up
/// with blanks to 30 characters, so `is_known` (the names that the statistics have) decides first.
fn list(text: &str, is_known: impl Fn(&str) -> bool) -> Vec<(&str, &str)> {
    let lines = text.lines().filter_map(|line| line.split_once(' ')).filter(|(uuid, _)| is_uuid(uuid));
    let own = |name: &'_ str| is_known(name) || name.chars().count() != FILLED;
    lines.map(|(uuid, name)| (uuid, if own(name) { name } else { name.trim_end() })).collect()
}

fn read_look(text: &str) -> Option<Vec<Sight>> {
    let (stats, listed) = parts(text)?;
    let states = domstats::by_name(stats);
    let sight = |(uuid, name): (&str, &str)| {
        let state = states.get(name).and_then(|domain| Some((domain.state?, domain.reason.unwrap_or(0))));
        Sight { name: name.to_owned(), uuid: uuid.to_owned(), state }
    };
    Some(list(listed, |name| states.contains_key(name)).into_iter().map(sight).collect())
}

fn read_statistics(text: &str) -> Option<Vec<(String, Domain)>> {
    let (stats, listed) = parts(text)?;
    let mut domains = domstats::by_name(stats);
    let named = list(listed, |name| domains.contains_key(name));
    let known = |(uuid, name): (&str, &str)| {
        let empty = || Domain { name: name.to_owned(), ..Domain::default() };
        (uuid.to_owned(), domains.remove(name).unwrap_or_else(empty))
    };
    Some(named.into_iter().map(known).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::fake::Fake;

    const A: &str = "19062f04-b7aa-4e3e-8fcd-de3db72803d6";
    const B: &str = "d5927dae-fd85-4012-87a5-8fcb225a4f22";

    fn virsh(answer: impl Fn(&Ask) -> Result<String, (i32, String)> + Send + Sync + 'static) -> Virsh {
        Virsh::new(Arc::new(Fake(answer)), "qemu:///system", Duration::from_secs(9))
    }

    #[tokio::test]
    async fn a_look_is_what_virsh_printed() {
        // As libvirt 9.0.0 prints it: the echo ends no line.
        let text = format!(
            "Domain: 'st 1'\n  state.state=1\n  state.reason=2\n\nDomain: 'one-5001'\n  state.state=3\n  state.reason=1\n{MARK}{A} st 1\n{B} one-5001\n"
        );
        let sights = virsh(move |ask| {
            assert_eq!(ask.args[..3], ["--quiet", "--connect", "qemu:///system"]);
            Ok(text.clone())
        })
        .look()
        .await
        .expect("a list");
        assert_eq!(sights.len(), 2);
        assert_eq!(
            (sights[0].name.as_str(), sights[0].uuid.as_str(), sights[0].state),
            ("st 1", A, Some((1, 2)))
        );
        assert_eq!(sights[1].state, Some((3, 1)));
    }

    #[tokio::test]
    async fn a_domain_without_statistics_is_there_in_an_unknown_state() {
        let text = format!("{MARK}\n{A} one-1\n\n");
        let sights = virsh(move |_| Ok(text.clone())).look().await.expect("a list");
        assert_eq!(sights, [Sight { name: "one-1".into(), uuid: A.into(), state: None }]);
    }

    #[tokio::test]
    async fn blanks_at_the_end_of_a_name_are_its_own_unless_virsh_filled_it_up() {
        let text = format!(
            "Domain: 'one-7 '\n  state.state=1\n\nDomain: 'one-8'\n  state.state=1\n\n{MARK}{A} one-7 \n{B} {:30}\n",
            "one-8"
        );
        let names = |sights: Vec<Sight>| sights.into_iter().map(|s| s.name).collect::<Vec<_>>();
        let of = text.clone();
        assert_eq!(
            names(virsh(move |_| Ok(text.clone())).look().await.expect("a list")),
            ["one-7 ", "one-8"]
        );
        let all = virsh(move |_| Ok(of.clone())).statistics(Duration::from_secs(9)).await.expect("told");
        assert_eq!(all.iter().map(|(_, d)| d.name.as_str()).collect::<Vec<_>>(), ["one-7 ", "one-8"]);
    }

    #[tokio::test]
    async fn an_output_that_ends_early_or_a_failure_is_no_list() {
        assert!(virsh(|_| Ok("Domain: 'one-1'\n  state.state=1\n".into())).look().await.is_err());
        let down = virsh(|_| Err((1, "error: failed to connect to the hypervisor\n".into())));
        let reason = down.look().await.expect_err("down");
        assert_eq!(reason, "virsh failed (exit status 1): error: failed to connect to the hypervisor");
    }

    #[tokio::test]
    async fn a_name_that_imitates_the_mark_is_a_name() {
        let text = format!("Domain: '{MARK}{A} one-9'\n  state.state=1\n{MARK}{B} {MARK}{A} one-9\n");
        let sights = virsh(move |_| Ok(text.clone())).look().await.expect("a list");
        assert_eq!(sights.len(), 1);
        assert_eq!(sights[0].name, format!("{MARK}{A} one-9"));
    }

    #[tokio::test]
    async fn xml_comes_by_uuid_and_what_fails_is_left_out() {
        let text = format!("{MARK}{A}=<domain>\n<name>a=b</name></domain>\n\n{MARK}{MARK}{B}={MARK}");
        let found = virsh(move |ask| {
            assert!(!ask.args.iter().any(|a| a.contains("rm -rf")));
            Ok(text.clone())
        })
        .xml(&[A.to_owned(), B.to_owned(), "x; rm -rf /".to_owned()])
        .await
        .expect("answered");
        assert_eq!(found, [(A.to_owned(), "<domain>\n<name>a=b</name></domain>".to_owned())]);
    }
}
