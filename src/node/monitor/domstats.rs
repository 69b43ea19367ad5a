//! The output of `virsh domstats --raw`: blocks of `  key=value` lines under `Domain: 'NAME'`.

use std::collections::BTreeMap;

/// Statistics of one domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domain {
    /// Name, as libvirt has it.
    pub name: String,
    /// virDomainState, see [`super::state`].
    pub state: Option<i32>,
    /// Reason within the state.
    pub reason: Option<i32>,
    /// Sum of the bytes received by its interfaces.
    pub net_rx: u64,
    /// Sum of the bytes sent.
    pub net_tx: u64,
    /// Sum of the bytes read from its disks.
    pub read_bytes: u64,
    /// Sum of the bytes written.
    pub write_bytes: u64,
    /// Sum of the read requests.
    pub reads: u64,
    /// Sum of the write requests.
    pub writes: u64,
    /// Its maximum memory in KiB, when that was asked for.
    pub max_memory: u64,
    /// Whether it has statistics of interfaces.
    pub has_net: bool,
    /// Whether it has statistics of disks (a domain that is busy is asked for none).
    pub has_block: bool,
}

/// Reads the whole output. A name may hold anything but a newline, also text that looks like the output itself:
/// a block starts only at a line `Domain: '...'` without indentation.
#[must_use]
pub fn parse(text: &str) -> Vec<Domain> {
    let mut domains: Vec<Domain> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("Domain: '").and_then(|rest| rest.strip_suffix('\'')) {
            domains.push(Domain { name: name.to_owned(), ..Domain::default() });
        } else if let (Some(domain), Some(pair)) = (domains.last_mut(), line.strip_prefix("  "))
            && let Some((key, value)) = pair.split_once('=')
        {
            domain.take(key, value);
        }
    }
    domains
}

/// The same by name; of two blocks with one name the last counts.
#[must_use]
pub fn by_name(text: &str) -> BTreeMap<String, Domain> {
    parse(text).into_iter().map(|domain| (domain.name.clone(), domain)).collect()
}

impl Domain {
    fn take(&mut self, key: &str, value: &str) {
        let (group, rest) = key.split_once('.').unwrap_or((key, ""));
        // net.0.rx.bytes, block.1.rd.reqs: the middle is an index; block.0.name and such hold free text.
        let counter = rest.split_once('.').map_or("", |(index, counter)| {
            if index.bytes().all(|b| b.is_ascii_digit()) { counter } else { "" }
        });
        let sum = |total: &mut u64| *total = total.saturating_add(value.trim().parse().unwrap_or(0));
        match (group, counter) {
            ("state", "") if rest == "state" => self.state = value.trim().parse().ok(),
            ("state", "") if rest == "reason" => self.reason = value.trim().parse().ok(),
            ("balloon", "") if rest == "maximum" => self.max_memory = value.trim().parse().unwrap_or(0),
            ("net", "rx.bytes") => {
                self.has_net = true;
                sum(&mut self.net_rx);
            }
            ("net", "tx.bytes") => sum(&mut self.net_tx),
            ("block", "rd.bytes") => {
                self.has_block = true;
                sum(&mut self.read_bytes);
            }
            ("block", "wr.bytes") => sum(&mut self.write_bytes),
            ("block", "rd.reqs") => sum(&mut self.reads),
            ("block", "wr.reqs") => sum(&mut self.writes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "Domain: 'one-7'\n  state.state=1\n  state.reason=1\n  net.count=2\n  net.0.name=vnet0\n  net.0.rx.bytes=100\n  net.0.rx.pkts=3\n  net.0.tx.bytes=5\n  net.1.rx.bytes=11\n  net.1.tx.bytes=2\n  block.count=1\n  block.0.name=vda\n  block.0.path=/x=y/rd.bytes=9\n  block.0.rd.reqs=4\n  block.0.rd.bytes=4096\n  block.0.wr.reqs=1\n  block.0.wr.bytes=512\n\nDomain: 'it's a name'\n  state.state=3\n  state.reason=5\n\n";

    #[test]
    fn counters_are_summed_over_devices() {
        let domains = parse(TWO);
        assert_eq!(domains.len(), 2);
        let one = &domains[0];
        assert_eq!((one.name.as_str(), one.state, one.reason), ("one-7", Some(1), Some(1)));
        assert_eq!((one.net_rx, one.net_tx), (111, 7));
        assert_eq!((one.read_bytes, one.write_bytes, one.reads, one.writes), (4096, 512, 4, 1));
        assert!(one.has_net && one.has_block);
        assert_eq!(
            (domains[1].name.as_str(), domains[1].state, domains[1].has_block),
            ("it's a name", Some(3), false)
        );
    }

    #[test]
    fn an_ejected_cd_has_no_counters_and_takes_none_away() {
        // As libvirt 9 tells a drive without a medium: a name, no path, perhaps no counters.
        let text = "Domain: 'one-7'\n  state.state=1\n  block.count=2\n  block.0.name=vda\n  block.0.rd.reqs=4\n  block.0.rd.bytes=4096\n  block.1.name=hda\n\n";
        let domain = &parse(text)[0];
        assert_eq!((domain.reads, domain.read_bytes, domain.has_block), (4, 4096, true));
    }

    #[test]
    fn a_value_that_imitates_a_block_starts_none() {
        let text = "Domain: 'a'\n  block.0.path=Domain: 'one-1'\n  state.state=1\nDomain: 'x'  state.state=5'\n  junk\nstate.state=9\n";
        let domains = parse(text);
        assert_eq!(domains.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["a", "x'  state.state=5"]);
        assert_eq!((domains[0].state, domains[1].state), (Some(1), None));
    }

    #[test]
    fn garbage_and_huge_numbers_do_no_harm() {
        let domains = parse(
            "Domain: 'a'\n  net.0.rx.bytes=18446744073709551615\n  net.1.rx.bytes=5\n  net.x.rx.bytes=1\n  state.state=abc\n=\n  =\n",
        );
        assert_eq!((domains[0].net_rx, domains[0].state), (u64::MAX, None));
        assert!(parse("\u{0}\u{1}\n\n").is_empty());
    }
}
