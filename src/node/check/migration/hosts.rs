//! Verdicts about two hosts, without a VM.

use std::net::IpAddr;

use super::side::Side;
use super::told::Told;
use crate::node::check::{Finding, Group, Verdict};

const GROUP: Group = Group::Migration;

/// Names of the two and what each told (or why it told nothing).
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// The host that a VM would leave.
    pub source: (&'a str, &'a Side),
    /// The host that it would go to.
    pub target: (&'a str, &'a Side),
}

/// Largest difference of clocks that is taken for none, beyond what asking took, in milliseconds.
const CLOCKS: u64 = 1000;

/// All checks. `slack` is how many milliseconds may lie between the two looks.
#[must_use]
pub fn findings(pair: Pair<'_>, slack: u64) -> Vec<Finding> {
    let back = Pair { source: pair.target, target: pair.source };
    vec![
        uuids(pair),
        names(pair),
        libvirt_name(pair),
        transport("pair-transport", pair, Verdict::Failure),
        transport("pair-transport-back", back, Verdict::Warning),
        port("pair-port", pair, Verdict::Failure),
        port("pair-port-back", back, Verdict::Warning),
        versions(pair),
        clocks(pair, slack),
    ]
}

fn bad(id: &'static str, verdict: Verdict, evidence: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding::bad(id, GROUP, verdict, evidence, mend)
}

fn unknown(id: &'static str, host: &str, why: impl std::fmt::Display) -> Finding {
    Finding::unchecked(
        id,
        GROUP,
        format!("{host}: {why}"),
        format!("mend libvirt on {host} first: kvmad doctor {host}"),
    )
}

fn uuids(Pair { source, target }: Pair<'_>) -> Finding {
    let id = "pair-host-uuid";
    let told = |(host, side): (&str, &Side)| match &side.uuid {
        Some(Ok(uuid)) => Ok(uuid.clone()),
        Some(Err(why)) => Err(unknown(id, host, why)),
        None => Err(unknown(id, host, "not asked")),
    };
    match (told(source), told(target)) {
        (Err(finding), _) | (_, Err(finding)) => finding,
        (Ok(one), Ok(other)) if one == other => bad(
            id,
            Verdict::Failure,
            format!("{} and {} both have host UUID {one}", source.0, target.0),
            format!(
                "on one of them: host_uuid = \"$(uuidgen)\" in /etc/libvirt/libvirtd.conf (virtqemud.conf where that daemon runs), restart it ({} or {})",
                source.0, target.0
            ),
        ),
        (Ok(one), Ok(other)) => Finding::ok(id, GROUP, format!("{one} and {other}")),
    }
}

fn is_loopback(addresses: &[IpAddr]) -> bool {
    addresses.iter().any(IpAddr::is_loopback)
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn names(Pair { source, target }: Pair<'_>) -> Finding {
    let id = "pair-name";
    for ((host, side), other) in [(source, target.0), (target, source.0)] {
        match &side.peer {
            None => return unknown(id, host, "not asked"),
            Some(Err(why)) => {
                let mend = format!("on {host}: an entry for {other} in DNS or /etc/hosts");
                return bad(id, Verdict::Failure, format!("{host}: {why}"), mend);
            }
            Some(Ok(addresses)) if is_loopback(addresses) => {
                let mend = format!("on {host}: the real address of {other} in DNS or /etc/hosts");
                let evidence = format!("on {host} the name {other} leads to loopback ({})", list(addresses));
                return bad(id, Verdict::Failure, evidence, mend);
            }
            Some(Ok(_)) => {}
        }
    }
    Finding::ok(id, GROUP, format!("{} and {} know each other by name", source.0, target.0))
}

fn libvirt_name(Pair { source, target }: Pair<'_>) -> Finding {
    let id = "pair-libvirt-name";
    let Some((name, at_home)) = &target.1.own else {
        return unknown(id, target.0, "libvirt told no name of the host");
    };
    if let Some(address) = &source.1.data {
        let evidence = format!("not needed: MIGRATE_URI on {} sends the memory to {address}", source.0);
        return Finding::ok(id, GROUP, evidence);
    }
    let mend = format!(
        "on {host}: a line in /etc/hosts with its real address and {name} (not 127.0.1.1); or MIGRATE_URI in kvmrc, which names the address itself",
        host = target.0
    );
    if let Ok(addresses) = at_home
        && is_loopback(addresses)
    {
        let evidence = format!("on {} its own name {name} leads to loopback ({})", target.0, list(addresses));
        return bad(id, Verdict::Failure, evidence, mend);
    }
    let seen: &Told<Vec<IpAddr>> = match &source.1.peer_own {
        Some((_, seen)) => seen,
        None => return unknown(id, source.0, "not asked"),
    };
    match seen {
        Err(why) => {
            let mend = format!("on {}: an entry for {name} in DNS or /etc/hosts; or {mend}", source.0);
            bad(
                id,
                Verdict::Failure,
                format!("libvirt of {} calls it {name}; {}: {why}", target.0, source.0),
                mend,
            )
        }
        Ok(addresses) if is_loopback(addresses) => {
            let evidence = format!("on {} the name {name} leads to loopback ({})", source.0, list(addresses));
            bad(
                id,
                Verdict::Failure,
                evidence,
                format!("on {}: the real address of {name} in /etc/hosts", source.0),
            )
        }
        Ok(addresses) => Finding::ok(id, GROUP, format!("{name} is {} on {}", list(addresses), source.0)),
    }
}

fn transport(id: &'static str, Pair { source, target }: Pair<'_>, verdict: Verdict) -> Finding {
    let protocol = source.1.protocol.as_str();
    match &source.1.control {
        None => unknown(id, source.0, "not asked"),
        Some(Ok(name)) => match &target.1.own {
            Some((own, _)) if own != name => bad(
                id,
                Verdict::Failure,
                format!("{protocol} to {} reaches a host that calls itself {name}, not {own}", target.0),
                format!("on {}: the address of {} in DNS or /etc/hosts", source.0, target.0),
            ),
            _ => Finding::ok(id, GROUP, format!("{} reaches {} by {protocol}", source.0, target.0)),
        },
        Some(Err(why)) => {
            let host = target.0;
            let mend = if protocol.contains("ssh") {
                format!(
                    "as oneadmin on {}: ssh {host} virsh -c qemu:///system hostname must work without a question (authorized_keys, known_hosts; nc on {host})",
                    source.0
                )
            } else if protocol.contains("tls") {
                format!(
                    "on {host}: listen_tls and its server certificate; on {}: the client certificate; the name in the certificate must be {host}",
                    source.0
                )
            } else {
                format!(
                    "on {host}: listen_tcp = 1 and auth_tcp in /etc/libvirt/libvirtd.conf, libvirtd --listen or systemctl enable --now libvirtd-tcp.socket; port 16509 open"
                )
            };
            bad(id, verdict, format!("{}: {why}", source.0), mend)
        }
    }
}

fn port(id: &'static str, Pair { source, target }: Pair<'_>, verdict: Verdict) -> Finding {
    match &source.1.stream {
        None => unknown(id, target.0, "no port listens there"),
        Some(Ok(port)) => Finding::ok(id, GROUP, format!("{} reaches port {port} of {}", source.0, target.0)),
        Some(Err(why)) => {
            let mend = format!(
                "let {} through the firewall of {}: tcp 49152-49215 (or migration_port_min and migration_port_max of qemu.conf)",
                source.0, target.0
            );
            bad(id, verdict, format!("{} can't connect to {why}", source.0), mend)
        }
    }
}

/// The numbers in a version, for comparison.
fn numbers(version: &str) -> Vec<u64> {
    let digits = version.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.split('.').map_while(|part| part.parse().ok()).collect()
}

fn versions(Pair { source, target }: Pair<'_>) -> Finding {
    let id = "pair-versions";
    let told = |(host, side): (&str, &Side)| match &side.versions {
        Some(Ok(versions)) => Ok(versions.clone()),
        Some(Err(why)) => Err(unknown(id, host, why)),
        None => Err(unknown(id, host, "not asked")),
    };
    let (from, to) = match (told(source), told(target)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(finding), _) | (_, Err(finding)) => return finding,
    };
    let shown =
        format!("{}: libvirt {}, {}; {}: libvirt {}, {}", source.0, from.0, from.1, target.0, to.0, to.1);
    if numbers(&to.1) < numbers(&from.1) || numbers(&to.0) < numbers(&from.0) {
        let mend =
            format!("upgrade {} first; until then VMs started on {} may not go there", target.0, source.0);
        return bad(id, Verdict::Warning, shown, mend);
    }
    Finding::ok(id, GROUP, shown)
}

fn clocks(Pair { source, target }: Pair<'_>, slack: u64) -> Finding {
    let id = "pair-clocks";
    let (one, other) = (source.1.clock, target.1.clock);
    if one == 0 || other == 0 {
        return unknown(id, if one == 0 { source.0 } else { target.0 }, "not asked");
    }
    let apart = one.abs_diff(other);
    if apart > CLOCKS + slack {
        let evidence = format!("{} and {} are {:.1} s apart", source.0, target.0, apart as f64 / 1000.0);
        return bad(id, Verdict::Warning, evidence, "set both by NTP (chrony, systemd-timesyncd)");
    }
    Finding::ok(id, GROUP, format!("{} and {} agree", source.0, target.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Vec<IpAddr> {
        vec![IpAddr::from([10, 77, 0, last])]
    }

    fn side(uuid: &str, own: &str, last: u8, peer: &str, peer_last: u8) -> Side {
        Side {
            uuid: Some(Ok(uuid.into())),
            versions: Some(Ok(("9.0.0".into(), "QEMU 7.2.22".into()))),
            own: Some((own.into(), Ok(address(last)))),
            protocol: "qemu+ssh".into(),
            peer: Some(Ok(address(peer_last))),
            peer_own: Some((peer.into(), Ok(address(peer_last)))),
            control: Some(Ok(peer.into())),
            stream: Some(Ok(49215)),
            clock: 1_000_000,
            ..Side::default()
        }
    }

    fn good() -> (Side, Side) {
        (side("u1", "node1", 11, "node2", 12), side("u2", "node2", 12, "node1", 11))
    }

    /// Ids and verdicts of everything that is not well.
    fn trouble(change: impl Fn(&mut Side, &mut Side)) -> Vec<(String, Verdict)> {
        let (mut source, mut target) = good();
        change(&mut source, &mut target);
        let pair = Pair { source: ("node1", &source), target: ("node2", &target) };
        let all = findings(pair, 500);
        let bad = all.iter().filter(|finding| finding.verdict != Verdict::Ok);
        assert!(bad.clone().all(|finding| !finding.mend.is_empty()), "each has a mend");
        bad.map(|finding| (finding.id.to_string(), finding.verdict)).collect()
    }

    #[test]
    fn two_good_hosts_are_fine() {
        assert_eq!(trouble(|_, _| {}), []);
    }

    #[test]
    fn each_trouble_is_found_and_nothing_else() {
        let one = |id: &str, verdict| vec![(id.to_owned(), verdict)];
        use Verdict::{CouldNotCheck, Failure, Warning};
        let loopback = || vec![IpAddr::from([127, 0, 1, 1])];
        assert_eq!(trouble(|_, t| t.uuid = Some(Ok("u1".into()))), one("pair-host-uuid", Failure));
        assert_eq!(trouble(|s, _| s.uuid = Some(Err("down".into()))), one("pair-host-uuid", CouldNotCheck));
        assert_eq!(trouble(|s, _| s.peer = Some(Err("not known".into()))), one("pair-name", Failure));
        assert_eq!(trouble(|_, t| t.peer = Some(Ok(loopback()))), one("pair-name", Failure));
        assert_eq!(
            trouble(|_, t| t.own = Some(("node2".into(), Ok(loopback())))),
            one("pair-libvirt-name", Failure)
        );
        let named = |s: &mut Side, t: &mut Side| {
            t.own = Some(("node2".into(), Ok(loopback())));
            s.data = Some("10.9.0.2".into());
        };
        assert_eq!(trouble(named), [], "libvirt's own name is not asked for");
        let unknown =
            |s: &mut Side, _: &mut Side| s.peer_own = Some(("node2".into(), Err("not known".into())));
        assert_eq!(trouble(unknown), one("pair-libvirt-name", Failure));
        assert_eq!(trouble(|s, _| s.control = Some(Err("denied".into()))), one("pair-transport", Failure));
        assert_eq!(trouble(|s, _| s.control = Some(Ok("node9".into()))), one("pair-transport", Failure));
        assert_eq!(
            trouble(|_, t| t.control = Some(Err("denied".into()))),
            one("pair-transport-back", Warning)
        );
        assert_eq!(trouble(|s, _| s.stream = Some(Err("refused".into()))), one("pair-port", Failure));
        assert_eq!(trouble(|s, _| s.stream = None), one("pair-port", CouldNotCheck));
        assert_eq!(trouble(|_, t| t.stream = Some(Err("refused".into()))), one("pair-port-back", Warning));
        let older = |_: &mut Side, t: &mut Side| t.versions = Some(Ok(("9.0.0".into(), "QEMU 7.2.9".into())));
        assert_eq!(trouble(older), one("pair-versions", Warning));
        assert_eq!(trouble(|_, t| t.clock += 1501), one("pair-clocks", Warning));
        assert_eq!(trouble(|_, t| t.clock += 1500), []);
    }

    #[test]
    fn versions_are_numbers_not_text() {
        assert!(numbers("QEMU 7.2.9") < numbers("QEMU 7.2.22"));
        assert!(numbers("9.0.0") < numbers("10.0.0"));
        assert!(numbers("QEMU 10.0") > numbers("QEMU 9.2.50"));
    }
}
