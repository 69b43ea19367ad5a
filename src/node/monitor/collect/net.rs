//! Traffic of the host's physical interfaces, told by their names: bonds, bridges, taps and VLANs would count the
//! same bytes again.

use crate::node::root::Root;

/// Bytes received and sent since boot, summed over the physical interfaces. `None` when /proc/net/dev can't be read.
#[must_use]
pub fn traffic(root: &Root) -> Option<(u64, u64)> {
    let text = root.read("/proc/net/dev")?;
    let (mut rx, mut tx) = (0_u64, 0_u64);
    for line in text.lines() {
        let Some((name, counters)) = line.split_once(':') else { continue };
        if !is_physical(name.trim()) {
            continue;
        }
        let columns: Vec<u64> = counters.split_whitespace().flat_map(str::parse).collect();
        rx = rx.saturating_add(columns.first().copied().unwrap_or(0));
        tx = tx.saturating_add(columns.get(8).copied().unwrap_or(0));
    }
    Some((rx, tx))
}

/// Whether a name is one that udev or the kernel gives to an Ethernet or InfiniBand interface: `ethN`, `ibN`,
/// `emN[_N]`, `pNpN[_N]`, `enoN`, `ensN[fN]`, `enx` and twelve hexadecimal digits, `en[PN]pNsN[fN]`, `ena…iN`, the
/// middle four also with `n…` or `d…` behind (port name, device port).
#[must_use]
pub fn is_physical(name: &str) -> bool {
    let whole =
        |mut scan: Scan<'_>, steps: &dyn Fn(&mut Scan<'_>) -> bool| steps(&mut scan) && scan.0.is_empty();
    let scan = |prefix: &str| name.strip_prefix(prefix).map(Scan);
    let tries: [(&str, Steps<'_>); 9] = [
        ("eth", &|s| s.digits()),
        ("ib", &|s| s.digits()),
        ("em", &|s| s.digits() && s.maybe("_", Scan::digits)),
        ("p", &|s| s.digits() && s.word("p") && s.digits() && s.maybe("_", Scan::digits)),
        ("eno", &|s| s.digits() && s.port()),
        ("ens", &|s| s.digits() && s.maybe("f", Scan::digits) && s.port()),
        ("enx", &|s| s.hex(12)),
        ("ena", &|s| s.until_last_i()),
        ("en", &|s| {
            s.maybe("P", Scan::digits)
                && s.word("p")
                && s.digits()
                && s.word("s")
                && s.digits()
                && s.maybe("f", Scan::digits)
                && s.port()
        }),
    ];
    tries.iter().any(|(prefix, steps)| scan(prefix).is_some_and(|s| whole(s, steps)))
}

/// What must stand behind a prefix.
type Steps<'a> = &'a dyn Fn(&mut Scan<'_>) -> bool;

/// What is left of a name.
struct Scan<'a>(&'a str);

impl Scan<'_> {
    fn digits(&mut self) -> bool {
        let rest = self.0.trim_start_matches(|c: char| c.is_ascii_digit());
        let some = rest.len() < self.0.len();
        self.0 = rest;
        some
    }

    fn word(&mut self, word: &str) -> bool {
        let rest = self.0.strip_prefix(word);
        if let Some(rest) = rest {
            self.0 = rest;
        }
        rest.is_some()
    }

    fn maybe(&mut self, word: &str, then: impl Fn(&mut Self) -> bool) -> bool {
        !self.word(word) || then(self)
    }

    /// Nothing, or `n` or `d` and a port name without a dot (a dot makes it a VLAN).
    fn port(&mut self) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let good = self.0.starts_with(['n', 'd']) && self.0.len() > 1 && !self.0.contains('.');
        self.0 = "";
        good
    }

    fn hex(&mut self, count: usize) -> bool {
        let good = self.0.len() == count && self.0.bytes().all(|b| b.is_ascii_hexdigit());
        self.0 = "";
        good
    }

    fn until_last_i(&mut self) -> bool {
        let good = self.0.rsplit_once('i').is_some_and(|(before, number)| {
            !before.is_empty()
                && !self.0.contains('.')
                && !number.is_empty()
                && number.bytes().all(|b| b.is_ascii_digit())
        });
        self.0 = "";
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_interfaces_are_known_by_name() {
        for name in [
            "eth0",
            "eth12",
            "ib0",
            "em1",
            "em1_2",
            "p1p2",
            "p1p2_3",
            "eno1",
            "eno1np0",
            "eno1d1",
            "ens3",
            "ens3f0",
            "ens3f0np1",
            "enx001122aabbcc",
            "enp3s0",
            "enp3s0f1",
            "enP2p3s0",
            "enp3s0f1np1",
            "enaqi3",
            "enp3s0d1",
        ] {
            assert!(is_physical(name), "{name}");
        }
        for name in [
            "lo",
            "bond0",
            "br0",
            "eth0.10",
            "enp3s0.7",
            "ens3f0np1.5",
            "vnet0",
            "virbr0",
            "veth0",
            "team0",
            "xeth0",
            "eth",
            "enx0011",
            "onebr1",
            "p1",
            "docker0",
            "",
        ] {
            assert!(!is_physical(name), "{name}");
        }
    }

    #[test]
    fn columns_one_and_nine_are_summed() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("proc/net")).expect("made");
        let text = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\neth0.5: 100 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\nens3:11 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n";
        std::fs::write(dir.path().join("proc/net/dev"), text).expect("written");
        assert_eq!(traffic(&Root::at(dir.path())), Some((111, 9)));
        assert_eq!(traffic(&Root::at("/nonexistent")), None);
    }
}
