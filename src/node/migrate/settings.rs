//! What kvmrc and the VM say about how it is to be migrated.

use std::time::Duration;

/// What is done about a migration that does not get anywhere or takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// QEMU slows the guest more and more (auto-converge).
    Slow,
    /// The guest goes on at the target at once and fetches the rest of its memory from there.
    PostCopy,
    /// The guest stands still until all of its memory is at the target.
    Suspend,
    /// The migration is given up; the guest goes on where it was.
    Abort,
}

/// auto-converge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Converge {
    /// Percent by which the guest is slowed first. `None`: QEMU's own value.
    pub initial: Option<u8>,
    /// Percent by which it is slowed more, as long as that is not enough.
    pub increment: Option<u8>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// MIGRATE_AUTO_CONVERGE.
    pub converge: Option<Converge>,
    /// MIGRATE_COMPRESSED.
    pub compressed: bool,
    /// MIGRATE_PARALLEL: connections for the memory; 0 and 1 are one.
    pub parallel: u64,
    /// MIGRATE_BANDWIDTH: MiB a second at most; 0 for no limit.
    pub bandwidth: u64,
    /// MIGRATE_MAX_DOWNTIME: milliseconds for which the guest may stand still; 0 for libvirt's value.
    pub max_downtime: u64,
    /// MIGRATE_TIMEOUT.
    pub time_limit: Option<Duration>,
    /// MIGRATE_ON_TIMEOUT.
    pub on_timeout: Vec<Remedy>,
    /// MIGRATE_STALL_TIMEOUT.
    pub stall: Option<Duration>,
    /// MIGRATE_ON_STALL.
    pub on_stall: Vec<Remedy>,
    /// MIGRATE_PROGRESS.
    pub progress: Option<Duration>,
    /// MIGRATE_SETTLE_TIMEOUT: how long both hosts are asked where the domain is, after trouble.
    pub settle: Duration,
    /// MIGRATE_TLS.
    pub tls: bool,
    /// MIGRATE_OPTIONS: further words for virsh migrate.
    pub options: Vec<String>,
    /// VIRSH_TIMEOUT.
    pub ask: Duration,
    /// VIRSH_JOB_TIMEOUT.
    pub job: Duration,
    /// SYNC_TIME.
    pub sync_time: bool,
    /// CLEANUP_MEMORY_ON_STOP.
    pub compact: bool,
    /// LIBVIRT_URI.
    pub libvirt_uri: String,
    /// QEMU_PROTOCOL.
    pub protocol: String,
}

/// Settings that a VM may have of its own, as attributes of the same name in FEATURES.
pub const OF_THE_VM: [&str; 9] = [
    "MIGRATE_AUTO_CONVERGE",
    "MIGRATE_COMPRESSED",
    "MIGRATE_PARALLEL",
    "MIGRATE_BANDWIDTH",
    "MIGRATE_MAX_DOWNTIME",
    "MIGRATE_TIMEOUT",
    "MIGRATE_ON_TIMEOUT",
    "MIGRATE_STALL_TIMEOUT",
    "MIGRATE_ON_STALL",
];

/// Reads single settings and collects what is wrong with them.
struct Reader<'a> {
    kvmrc: &'a dyn Fn(&str) -> Option<String>,
    vm: &'a dyn Fn(&str) -> Option<String>,
    notes: Vec<String>,
}

impl Settings {
    /// Reads them. `kvmrc` gives variables of the host, `vm` attributes of FEATURES of the VM, which win. A value that
    /// can't be used is noted; the next one counts: the VM's, the host's, the default.
    #[must_use]
    pub fn read(
        kvmrc: &dyn Fn(&str) -> Option<String>,
        vm: &dyn Fn(&str) -> Option<String>,
    ) -> (Self, Vec<String>) {
        let mut from = Reader { kvmrc, vm, notes: Vec::new() };
        let settings = Self {
            converge: from.value("MIGRATE_AUTO_CONVERGE", None, converge),
            compressed: from.value("MIGRATE_COMPRESSED", false, switch),
            parallel: from.value("MIGRATE_PARALLEL", 0, |text| whole(text, 255)),
            bandwidth: from.value("MIGRATE_BANDWIDTH", 0, |text| whole(text, 1 << 40)),
            max_downtime: from.value("MIGRATE_MAX_DOWNTIME", 0, |text| whole(text, 2_000_000)),
            time_limit: from.value("MIGRATE_TIMEOUT", None, seconds),
            on_timeout: from.value("MIGRATE_ON_TIMEOUT", vec![Remedy::Abort], remedies),
            stall: from.value("MIGRATE_STALL_TIMEOUT", Some(Duration::from_secs(120)), seconds),
            on_stall: from.value("MIGRATE_ON_STALL", vec![Remedy::Slow, Remedy::Abort], remedies),
            progress: from.value("MIGRATE_PROGRESS", Some(Duration::from_secs(10)), seconds),
            settle: from.value("MIGRATE_SETTLE_TIMEOUT", Duration::from_secs(60), positive),
            tls: from.value("MIGRATE_TLS", false, switch),
            options: from.value("MIGRATE_OPTIONS", Vec::new(), words),
            ask: from.value("VIRSH_TIMEOUT", Duration::from_secs(60), positive),
            job: from.value("VIRSH_JOB_TIMEOUT", Duration::from_secs(21_600), positive),
            sync_time: from.value("SYNC_TIME", false, yes_no),
            compact: from.value("CLEANUP_MEMORY_ON_STOP", false, yes_no),
            libvirt_uri: from.value("LIBVIRT_URI", "qemu:///system".to_owned(), text),
            protocol: from.value("QEMU_PROTOCOL", "qemu+ssh".to_owned(), text),
        };
        (settings, from.notes)
    }

    /// Whether `remedy` may come to be used.
    #[must_use]
    pub fn may(&self, remedy: Remedy) -> bool {
        let stalls = self.stall.is_some() && self.on_stall.contains(&remedy);
        stalls || (self.time_limit.is_some() && self.on_timeout.contains(&remedy))
    }

    /// auto-converge, also when it is only a remedy: QEMU can't switch it on later.
    #[must_use]
    pub fn converges(&self) -> Option<Converge> {
        let default = Converge { initial: None, increment: None };
        self.converge.or_else(|| self.may(Remedy::Slow).then_some(default))
    }
}

impl Reader<'_> {
    fn value<T>(&mut self, name: &str, default: T, read: impl Fn(&str) -> Option<T>) -> T {
        let of_the_vm = if OF_THE_VM.contains(&name) { (self.vm)(name) } else { None };
        for (value, place) in [(of_the_vm, "FEATURES of the VM"), ((self.kvmrc)(name), "kvmrc")] {
            let Some(value) = value.filter(|value| !value.trim().is_empty()) else { continue };
            match read(value.trim()) {
                Some(value) => return value,
                None => self
                    .notes
                    .push(format!("{name} in {place} is {value:?}, which can't be used; it is left out")),
            }
        }
        default
    }
}

/// yes and no, as the scripts read them.
fn yes_no(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// yes, no, and what else switches are called.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" => Some(true),
        "no" | "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn whole(text: &str, most: u64) -> Option<u64> {
    text.parse().ok().filter(|value| *value <= most)
}

/// Seconds; 0 is none.
fn seconds(text: &str) -> Option<Option<Duration>> {
    let count = whole(text, 31_536_000)?;
    Some((count > 0).then(|| Duration::from_secs(count)))
}

fn positive(text: &str) -> Option<Duration> {
    seconds(text).flatten()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Words as a shell splits them; `None` when a quote is not closed.
pub(crate) fn words(text: &str) -> Option<Vec<String>> {
    shell_words::split(text).ok()
}

/// `no`, `yes`, `INITIAL` or `INITIAL,INCREMENT` in percent.
pub(crate) fn converge(text: &str) -> Option<Option<Converge>> {
    if let Some(on) = switch(text).filter(|_| text != "1" && text != "0") {
        return Some(on.then_some(Converge { initial: None, increment: None }));
    }
    let percent =
        |text: &str| whole(text.trim(), 99).filter(|value| *value > 0).and_then(|v| u8::try_from(v).ok());
    let (initial, increment) = match text.split_once(',') {
        Some((initial, increment)) => (initial, Some(percent(increment)?)),
        None => (text, None),
    };
    Some(Some(Converge { initial: Some(percent(initial)?), increment }))
}

/// Words, in the order in which they are to be tried, between them commas or blanks; `none` for nothing.
pub(crate) fn remedies(text: &str) -> Option<Vec<Remedy>> {
    let words = text.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let mut all = Vec::new();
    for word in words {
        all.push(match word.to_ascii_lowercase().as_str() {
            "slow" => Remedy::Slow,
            "postcopy" | "post-copy" => Remedy::PostCopy,
            "suspend" => Remedy::Suspend,
            "abort" => Remedy::Abort,
            "none" if text.trim().eq_ignore_ascii_case("none") => return Some(all),
            _ => return None,
        });
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_says_of_the_right_ones_that_a_vm_may_have_them() {
        use crate::conf::kvmrc::VARIABLES;
        let first = VARIABLES.iter().position(|key| key.name == "MIGRATE_BANDWIDTH").expect("there");
        let said = VARIABLES[first].text;
        let below = VARIABLES[first..].iter().map(|key| key.name).filter(|name| name.starts_with("MIGRATE_"));
        let mut may: Vec<&str> =
            below.filter(|name| *name == "MIGRATE_BANDWIDTH" || !said.contains(name)).collect();
        let mut right = OF_THE_VM.to_vec();
        may.sort_unstable();
        right.sort_unstable();
        assert_eq!(may, right);
    }

    type Pairs = &'static [(&'static str, &'static str)];

    fn read(kvmrc: Pairs, vm: Pairs) -> (Settings, Vec<String>) {
        let look =
            |all: Pairs| move |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Settings::read(&look(kvmrc), &look(vm))
    }

    #[test]
    fn the_vm_wins_over_the_host_where_it_may() {
        let (settings, notes) = read(
            &[("MIGRATE_BANDWIDTH", "100"), ("MIGRATE_TLS", "yes"), ("MIGRATE_TIMEOUT", "30")],
            &[("MIGRATE_BANDWIDTH", "50"), ("MIGRATE_TLS", "no"), ("MIGRATE_OPTIONS", "--p2p")],
        );
        assert_eq!((settings.bandwidth, settings.tls, settings.options.len()), (50, true, 0));
        assert_eq!(settings.time_limit, Some(Duration::from_secs(30)));
        assert!(notes.is_empty());
    }

    #[test]
    fn what_can_t_be_used_is_noted_and_the_next_value_counts() {
        let (settings, notes) = read(
            &[("MIGRATE_BANDWIDTH", "100")],
            &[("MIGRATE_BANDWIDTH", "fast"), ("MIGRATE_ON_STALL", "pray")],
        );
        assert_eq!(settings.bandwidth, 100);
        assert_eq!(settings.on_stall, [Remedy::Slow, Remedy::Abort]);
        assert_eq!(notes.len(), 2);
        assert!(notes[0].contains("MIGRATE_BANDWIDTH in FEATURES of the VM is \"fast\""), "{notes:?}");
    }

    #[test]
    fn auto_converge_is_initial_and_increment() {
        let converge = |text| super::converge(text);
        let some = |initial, increment| Some(Some(Converge { initial, increment }));
        assert_eq!(converge("30"), some(Some(30), None));
        assert_eq!(converge("30,5"), some(Some(30), Some(5)));
        assert_eq!(converge("1"), some(Some(1), None));
        assert_eq!(converge("YES"), some(None, None));
        assert_eq!(converge("no"), Some(None));
        for bad in ["0", "100", "30,", ",5", "a", "30,5,1", "-3"] {
            assert_eq!(converge(bad), None, "{bad}");
        }
    }

    #[test]
    fn remedies_are_words_in_their_order() {
        assert_eq!(remedies("slow, post-copy suspend,abort").expect("remedies").len(), 4);
        assert_eq!(remedies("suspend"), Some(vec![Remedy::Suspend]));
        assert_eq!(remedies("none"), Some(vec![]));
        assert_eq!(remedies("slow none"), None);
        assert_eq!(remedies("slow;abort"), None);
    }

    #[test]
    fn slowing_is_prepared_when_it_may_be_needed() {
        assert!(read(&[], &[]).0.converges().is_some());
        assert_eq!(read(&[("MIGRATE_ON_STALL", "abort")], &[]).0.converges(), None);
        assert_eq!(read(&[("MIGRATE_STALL_TIMEOUT", "0")], &[]).0.converges(), None);
        assert!(
            !read(&[("MIGRATE_ON_TIMEOUT", "postcopy")], &[]).0.may(Remedy::PostCopy),
            "there is no limit"
        );
        assert!(
            read(&[("MIGRATE_ON_TIMEOUT", "postcopy")], &[("MIGRATE_TIMEOUT", "9")]).0.may(Remedy::PostCopy)
        );
    }
}
