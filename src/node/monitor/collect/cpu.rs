//! CPUs: how many, what they are, how busy.

use crate::node::root::Root;

/// Number of CPUs: those present, as `lscpu` counts them in its line `CPU(s):`.
#[must_use]
pub fn count(root: &Root) -> u64 {
    let listed = |file| root.line(file).map(|list| expand(&list).len() as u64).filter(|n| *n > 0);
    listed("/sys/devices/system/cpu/present")
        .or_else(|| listed("/sys/devices/system/cpu/online"))
        .unwrap_or_else(|| processors(root))
}

/// Number of `processor` lines in /proc/cpuinfo, at least 1.
#[must_use]
pub fn processors(root: &Root) -> u64 {
    let text = root.read("/proc/cpuinfo").unwrap_or_default();
    let count = text.lines().filter(|line| field(line).is_some_and(|(name, _)| name == "processor")).count();
    (count as u64).max(1)
}

/// The first `model name` line of /proc/cpuinfo, else the first `cpu` line.
#[must_use]
pub fn model(root: &Root) -> Option<String> {
    value(root, "model name").or_else(|| value(root, "cpu"))
}

/// Speed in MHz, rounded: `cpu MHz` of /proc/cpuinfo, else the highest frequency that sysfs tells, else 0.
#[must_use]
pub fn speed(root: &Root) -> u64 {
    let told = value(root, "cpu MHz").and_then(|text| text.parse::<f64>().ok());
    let highest = || {
        root.number::<f64>("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").map(|khz| khz / 1000.0)
    };
    let mhz = told.or_else(highest).unwrap_or(0.0).round();
    if (0.0..1e9).contains(&mhz) { mhz as u64 } else { 0 }
}

/// Whether /proc/cpuinfo lists `flag`.
#[must_use]
pub fn has_flag(root: &Root, flag: &str) -> bool {
    value(root, "flags").is_some_and(|flags| flags.split_whitespace().any(|f| f == flag))
}

fn value(root: &Root, name: &str) -> Option<String> {
    let text = root.read("/proc/cpuinfo")?;
    let found = text.lines().filter_map(field).find(|(n, v)| *n == name && !v.is_empty())?;
    Some(found.1.to_owned())
}

fn field(line: &str) -> Option<(&str, &str)> {
    line.split_once(':').map(|(name, value)| (name.trim(), value.trim()))
}

/// A list of CPUs such as `0-3,8`, as numbers in its order. Odd parts are left out.
#[must_use]
pub fn expand(list: &str) -> Vec<u32> {
    let mut all = Vec::new();
    for part in list.split(',').map(str::trim) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>())
            && to.saturating_sub(from) < 65_536
        {
            all.extend(from..=to);
        }
    }
    all
}

/// Times of all CPUs together since boot, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Idle (without waiting for disks).
    pub idle: u64,
    /// All columns but the two guest ones (which are contained in others).
    pub total: u64,
}

impl Times {
    /// Reads the first line of /proc/stat.
    #[must_use]
    pub fn read(root: &Root) -> Option<Self> {
        let text = root.line("/proc/stat")?;
        let columns: Vec<u64> = text.strip_prefix("cpu ")?.split_whitespace().flat_map(str::parse).collect();
        let idle = *columns.get(3)?;
        Some(Self { idle, total: columns.iter().take(8).sum() })
    }

    /// Free and used CPU in hundredths of one CPU since `earlier`, for `count` CPUs: whole numbers whose sum is
    /// 100 for each CPU. The share that is idle is rounded to whole percent, as `vmstat` shows it.
    #[must_use]
    pub fn usage_since(self, earlier: Self, count: u64) -> (u64, u64) {
        let all = count * 100;
        let total = self.total.saturating_sub(earlier.total);
        if total == 0 {
            return (all, 0);
        }
        let idle = self.idle.saturating_sub(earlier.idle).min(total);
        let percent = (idle * 100 + total / 2) / total;
        let free = all * percent / 100;
        (free, all - free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) X @ 2.60GHz\ncpu MHz\t\t: 2599.996\nflags\t\t: fpu vmx sse\n\nprocessor\t: 1\nmodel name\t: other\n";

    #[test]
    fn the_first_processor_speaks_for_all() {
        let (_dir, root) = root(&[("proc/cpuinfo", CPUINFO), ("sys/devices/system/cpu/present", "0-3,8\n")]);
        assert_eq!(model(&root).as_deref(), Some("Intel(R) X @ 2.60GHz"));
        assert_eq!((speed(&root), count(&root), processors(&root)), (2600, 5, 2));
        assert!(has_flag(&root, "vmx") && !has_flag(&root, "svm") && !has_flag(&root, "vm"));
    }

    #[test]
    fn other_architectures_have_other_lines() {
        let power = "processor\t: 0\ncpu\t\t: POWER9\n";
        let (_dir, root) = root(&[
            ("proc/cpuinfo", power),
            ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3800000\n"),
        ]);
        assert_eq!((model(&root).as_deref(), speed(&root), count(&root)), (Some("POWER9"), 3800, 1));
    }

    #[test]
    fn nothing_readable_is_nothing() {
        let (_dir, root) = root(&[]);
        assert_eq!((model(&root), speed(&root), count(&root), Times::read(&root)), (None, 0, 1, None));
    }

    #[test]
    fn lists_are_expanded() {
        assert_eq!(expand("0-2,8,10-11"), [0, 1, 2, 8, 10, 11]);
        assert!(expand("x,,5-3").is_empty());
    }

    #[test]
    fn usage_is_the_share_of_ticks() {
        let (_dir, root) = root(&[("proc/stat", "cpu  10 0 10 100 20 0 0 0 5 5\ncpu0 1\n")]);
        let first = Times::read(&root).expect("there");
        assert_eq!(first, Times { idle: 100, total: 140 });
        let later = Times { idle: 175, total: 240 };
        assert_eq!(later.usage_since(first, 8), (600, 200));
        assert_eq!(first.usage_since(first, 2), (200, 0));
    }
}
