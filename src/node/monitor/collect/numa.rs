//! NUMA nodes: cores, memory, huge pages. Hosts without /sys/bus/node give nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::super::text::vector;
use super::cpu::expand;
use super::memory::kib;
use crate::node::root::Root;

const NODES: &str = "/sys/bus/node/devices";

/// Numbers of the nodes, ascending.
fn nodes(root: &Root) -> Vec<u32> {
    numbered(root, NODES, "node")
}

/// Numbers N of the entries `<prefix>N` in a folder, ascending.
fn numbered(root: &Root, folder: &str, prefix: &str) -> Vec<u32> {
    let names = root.names(folder);
    let mut all: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
    all.sort_unstable();
    all
}

/// What the nodes are: HUGEPAGE, CORE and MEMORY_NODE blocks, for SYSTEM_HOST.
pub fn shape(root: &Root, text: &mut String) {
    let nodes = nodes(root);
    for (at, node) in nodes.iter().enumerate() {
        let id = ("NODE_ID", node.to_string());
        for (size, folder) in huge_pages(root, *node) {
            let pages = root.number::<u64>(format!("{folder}/nr_hugepages")).unwrap_or(0);
            vector(text, "HUGEPAGE", &[id.clone(), ("SIZE", size.to_string()), ("PAGES", pages.to_string())]);
        }
        for (core, cpus) in cores(root, *node) {
            vector(text, "CORE", &[id.clone(), ("ID", core.to_string()), ("CPUS", join(&cpus, ","))]);
        }
        let meminfo = root.read(format!("{NODES}/node{node}/meminfo")).unwrap_or_default();
        let total = kib(&meminfo, "MemTotal").unwrap_or(0).to_string();
        let distance = join(&nearest(root, *node, at, nodes.len()), " ");
        vector(text, "MEMORY_NODE", &[id, ("TOTAL", total), ("DISTANCE", distance)]);
    }
}

/// What of the nodes is used: HUGEPAGE and MEMORY_NODE blocks, for MONITOR_HOST.
pub fn usage(root: &Root, text: &mut String) {
    for node in nodes(root) {
        let id = ("NODE_ID", node.to_string());
        for (size, folder) in huge_pages(root, node) {
            let free = root.number::<u64>(format!("{folder}/free_hugepages")).unwrap_or(0);
            vector(text, "HUGEPAGE", &[id.clone(), ("SIZE", size.to_string()), ("FREE", free.to_string())]);
        }
        let meminfo = root.read(format!("{NODES}/node{node}/meminfo")).unwrap_or_default();
        let free = kib(&meminfo, "MemFree").unwrap_or(0);
        let rest = || kib(&meminfo, "MemTotal").unwrap_or(0).saturating_sub(free);
        let used = kib(&meminfo, "MemUsed").unwrap_or_else(rest);
        vector(text, "MEMORY_NODE", &[id, ("FREE", free.to_string()), ("USED", used.to_string())]);
    }
}

/// Sizes in KiB of the huge pages of a node, with the folder of each.
fn huge_pages(root: &Root, node: u32) -> Vec<(u64, String)> {
    let folder = format!("{NODES}/node{node}/hugepages");
    let names = root.names(&folder);
    let size = |name: &String| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
    let mut all: Vec<(u64, String)> =
        names.iter().filter_map(|name| Some((size(name)?, format!("{folder}/{name}")))).collect();
    all.sort_unstable();
    all
}

/// The cores of a node: a number that is theirs alone in the node, and their CPUs.
///
/// Receivers know a core by node and number and keep only the first of two with the same, and read a range as its
/// first CPU: so ranges are written out, and when packages in one node number their cores alike, the later ones
/// get numbers behind the highest.
fn cores(root: &Root, node: u32) -> Vec<(u64, Vec<u32>)> {
    let mut found: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
    for cpu in numbered(root, &format!("{NODES}/node{node}"), "cpu") {
        let folder = format!("{NODES}/node{node}/cpu{cpu}/topology");
        let Some(core) = root.number::<u64>(format!("{folder}/core_id")) else { continue };
        let siblings = expand(&root.line(format!("{folder}/thread_siblings_list")).unwrap_or_default());
        let siblings = if siblings.is_empty() { vec![cpu] } else { siblings };
        found.entry(siblings).or_insert(core);
    }
    let mut next = found.values().max().map_or(0, |highest| highest + 1);
    let mut taken = BTreeSet::new();
    let mut cores: Vec<(u64, Vec<u32>)> = Vec::new();
    for (cpus, core) in found {
        let core = if taken.insert(core) {
            core
        } else {
            next += 1;
            next - 1
        };
        cores.push((core, cpus));
    }
    cores
}

/// Positions of all nodes as seen from the one at position `own`, nearest first; equal ones by position.
fn nearest(root: &Root, node: u32, own: usize, count: usize) -> Vec<usize> {
    let line = root.line(format!("{NODES}/node{node}/distance")).unwrap_or_default();
    let mut distances: Vec<(u64, usize)> =
        line.split_whitespace().enumerate().map(|(at, d)| (d.parse().unwrap_or(u64::MAX), at)).collect();
    if distances.len() != count {
        distances = (0..count).map(|at| (u64::from(at != own), at)).collect();
    }
    distances.sort_unstable();
    distances.into_iter().map(|(_, at)| at).collect()
}

fn join<T: ToString>(all: &[T], between: &str) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = dir.path().join("sys/bus/node/devices").join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn a_node_is_told_in_blocks() {
        let (_dir, root) = host(&[
            ("node0/meminfo", "Node 0 MemTotal: 800 kB\nNode 0 MemFree: 300 kB\nNode 0 MemUsed: 500 kB\n"),
            ("node0/distance", "10 21\n"),
            ("node0/cpu0/topology/core_id", "0\n"),
            ("node0/cpu0/topology/thread_siblings_list", "0,2\n"),
            ("node0/cpu2/topology/core_id", "0\n"),
            ("node0/cpu2/topology/thread_siblings_list", "0,2\n"),
            ("node0/hugepages/hugepages-2048kB/nr_hugepages", "8\n"),
            ("node0/hugepages/hugepages-2048kB/free_hugepages", "5\n"),
            ("node1/meminfo", "Node 1 MemTotal: 900 kB\n"),
            ("node1/distance", "21 10\n"),
            ("node1/cpu1/topology/core_id", "0\n"),
            ("node1/cpu1/topology/thread_siblings_list", "1\n"),
        ]);
        let mut text = String::new();
        shape(&root, &mut text);
        assert_eq!(
            text,
            "HUGEPAGE = [ NODE_ID = \"0\", SIZE = \"2048\", PAGES = \"8\" ]\n\
CORE = [ NODE_ID = \"0\", ID = \"0\", CPUS = \"0,2\" ]\n\
MEMORY_NODE = [ NODE_ID = \"0\", TOTAL = \"800\", DISTANCE = \"0 1\" ]\n\
CORE = [ NODE_ID = \"1\", ID = \"0\", CPUS = \"1\" ]\n\
MEMORY_NODE = [ NODE_ID = \"1\", TOTAL = \"900\", DISTANCE = \"1 0\" ]\n"
        );
        let mut text = String::new();
        usage(&root, &mut text);
        assert!(text.starts_with("HUGEPAGE = [ NODE_ID = \"0\", SIZE = \"2048\", FREE = \"5\" ]\nMEMORY_NODE = [ NODE_ID = \"0\", FREE = \"300\", USED = \"500\" ]\n"));
    }

    #[test]
    fn ranges_are_written_out_and_cores_of_two_packages_kept_apart() {
        let (_dir, root) = host(&[
            ("node0/cpu0/topology/core_id", "0"),
            ("node0/cpu0/topology/thread_siblings_list", "0-1"),
            ("node0/cpu1/topology/core_id", "0"),
            ("node0/cpu1/topology/thread_siblings_list", "0-1"),
            ("node0/cpu2/topology/core_id", "0"),
            ("node0/cpu2/topology/thread_siblings_list", "2-3"),
            ("node0/cpu4/topology/core_id", "1"),
            ("node0/cpu4/topology/thread_siblings_list", "4"),
        ]);
        assert_eq!(cores(&root, 0), [(0, vec![0, 1]), (2, vec![2, 3]), (1, vec![4])]);
    }

    #[test]
    fn all_nodes_stand_in_the_distance_also_at_the_same_one() {
        let (_dir, root) = host(&[("node0/distance", "10 21 21 21"), ("node2/distance", "")]);
        assert_eq!(nearest(&root, 0, 0, 4), [0, 1, 2, 3]);
        assert_eq!(nearest(&root, 2, 2, 4), [2, 0, 1, 3]);
    }

    #[test]
    fn a_host_without_nodes_gives_nothing() {
        let mut text = String::new();
        shape(&Root::at("/nonexistent"), &mut text);
        usage(&Root::at("/nonexistent"), &mut text);
        assert!(text.is_empty());
    }
}
