//! Memory of the host, in KiB.

use crate::node::root::Root;

/// What /proc/meminfo tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// MemTotal.
    pub total: u64,
    /// MemTotal - MemFree - Buffers - Cached.
    pub used: u64,
    /// total - used.
    pub free: u64,
}

impl Memory {
    /// Reads it; all 0 when it can't be read.
    #[must_use]
    pub fn read(root: &Root) -> Self {
        let text = root.read("/proc/meminfo").unwrap_or_default();
        let field = |name| kib(&text, name).unwrap_or(0);
        let total = field("MemTotal");
        let used = total.saturating_sub(field("MemFree") + field("Buffers") + field("Cached"));
        Self { total, used, free: total - used }
    }
}

/// Value of the line `NAME:  N kB` (or `Node 0 NAME: N kB`) in a meminfo text.
#[must_use]
pub fn kib(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.split_whitespace().last()? == name).then(|| value.split_whitespace().next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_and_cache_count_as_free() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("proc")).expect("made");
        let text = "MemTotal:       16000 kB\nMemFree:  1000 kB\nMemAvailable: 9 kB\nBuffers: 200 kB\nCached: 3000 kB\nSwapCached: 7 kB\n";
        std::fs::write(dir.path().join("proc/meminfo"), text).expect("written");
        let memory = Memory::read(&Root::at(dir.path()));
        assert_eq!(memory, Memory { total: 16000, used: 11800, free: 4200 });
        assert_eq!(Memory::read(&Root::at("/nonexistent")), Memory::default());
    }

    #[test]
    fn lines_of_a_node_are_read_too() {
        assert_eq!(kib("Node 1 MemTotal:  77 kB\nNode 1 MemFree: 5 kB\n", "MemFree"), Some(5));
        assert_eq!(kib("MemFree:\n", "MemFree"), None);
    }
}
