//! NUMA cells, their distances, and where their memory comes from.

use super::context::Context;
use super::provenance::Provenance;
use super::refusal::Refusal;
use super::tree::Element;
use super::value::{Sourced, as_attribute, attribute_meaning, given};
use crate::template::lookup::Text;
use crate::template::value::Vector;

/// Most NUMA nodes of a VM; libvirt and QEMU take fewer, and distances grow with the square.
const NODES_MOST: usize = 256;

/// What NUMA means for other parts of the domain.
#[derive(Default)]
pub struct Numa {
    /// `numatune`.
    pub tune: Option<Element>,
    /// Size of the huge pages in KiB that back the memory, and where it stands.
    pub pages: Option<Sourced>,
}

/// Adds `numa` to `cpu` when there are nodes.
///
/// # Errors
/// [`Refusal::TooMany`] beyond [`NODES_MOST`].
pub fn cells(
    context: &Context<'_>,
    topology: Option<Vector<'_>>,
    nodes: &[Vector<'_>],
    cpu: &mut Element,
) -> Result<Numa, Refusal> {
    let pages = topology.and_then(|topology| huge_pages(context, topology));
    let Some(first) = nodes.first() else { return Ok(Numa { tune: None, pages }) };
    if nodes.len() > NODES_MOST {
        let given =
            super::provenance::Given { attribute: "NUMA_NODE".to_owned(), origin: first.origin.clone() };
        return Err(Refusal::TooMany { what: "NUMA nodes", given, limit: 256 });
    }
    let access = topology.and_then(|topology| access(context, topology, pages.is_some()));
    let mut numa = Element::new("numa");
    let mut next: u64 = 0;
    for node in nodes {
        let mut cell = Element::new("cell")
            .attr("id", Sourced::computed(node.index, "number of the NUMA_NODE", []))
            .attr("memory", node.text("MEMORY").map_or_else(|| "".into(), as_attribute))
            .because(Provenance::Given(super::provenance::Given {
                attribute: format!("NUMA_NODE[{}]", node.index),
                origin: node.origin.clone(),
            }));
        let count = node.unsigned("TOTAL_CPUS", 0);
        if count.value > 0 {
            let last = next + u64::from(count.value) - 1;
            let cpus = format!("{next}-{last}");
            cell.set("cpus", Sourced::computed(cpus, "TOTAL_CPUS of the nodes so far", count.at.map(given)));
            next = last + 1;
        }
        if let Some(access) = &access {
            cell.set("memAccess", access.clone());
        }
        if let Some(distance) = node.filled_text("DISTANCE") {
            cell.push(distances(distance, node.index, nodes.len()));
        }
        numa.push(cell);
    }
    cpu.push(numa);
    Ok(Numa { tune: tune(context, nodes), pages })
}

fn huge_pages(context: &Context<'_>, topology: Vector<'_>) -> Option<Sourced> {
    let size = topology.int("HUGEPAGE_SIZE", 0);
    let from = size.at.map(given);
    // OpenNebula writes a negative size; libvirt knows none.
    (size.value > 0 || (size.value < 0 && !context.mended))
        .then(|| Sourced::computed(i64::from(size.value) * 1024, "TOPOLOGY.HUGEPAGE_SIZE in KiB", from))
}

/// `MEMORY_ACCESS`: checked with huge pages, and when quirks are mended.
fn access(context: &Context<'_>, topology: Vector<'_>, huge: bool) -> Option<Sourced> {
    let text = topology.filled_text("MEMORY_ACCESS")?;
    if !huge && !context.mended {
        return Some(as_attribute(text));
    }
    let value = text.value.to_ascii_lowercase();
    matches!(value.as_str(), "private" | "shared")
        .then(|| Sourced { value, from: Provenance::Given(given(text.at)) })
}

/// `distances` of node `own`: 10 to itself, 20 to the others, changed by a list of `ids:value`.
fn distances(text: Text<'_>, own: usize, nodes: usize) -> Element {
    let mut values: Vec<u64> = (0..nodes).map(|node| if node == own { 10 } else { 20 }).collect();
    let mut named = vec![false; nodes];
    for entry in text.value.split(',').filter(|entry| !entry.is_empty()) {
        let Some((ids, value)) = two(entry, ':') else { continue };
        let ends: Vec<&str> = ids.split('-').filter(|piece| !piece.is_empty()).collect();
        let (from, to) = match ends.as_slice() {
            [one] => (digits(one), digits(one)),
            [from, to] => (digits(from).min(digits(to)), digits(from).max(digits(to))),
            _ => continue,
        };
        for node in from..=to.min(nodes.saturating_sub(1) as u64) {
            let node = usize::try_from(node).unwrap_or(usize::MAX);
            values[node] = digits(value);
            named[node] = true;
        }
    }
    let mut distances = Element::new("distances").because(Provenance::Given(given(text.at)));
    for (node, value) in values.into_iter().enumerate() {
        let value = if named[node] {
            Sourced { value: value.to_string(), from: Provenance::Given(given(text.at)) }
        } else {
            Sourced { value: value.to_string(), from: Provenance::BuiltIn }
        };
        let id = Sourced::computed(node, "number of the NUMA_NODE", []);
        distances.push(Element::new("sibling").attr("id", id).attr("value", value));
    }
    distances
}

/// The two pieces of `text` around `separator`, empty pieces dropped.
fn two(text: &str, separator: char) -> Option<(&str, &str)> {
    let mut pieces = text.split(separator).filter(|piece| !piece.is_empty());
    match (pieces.next(), pieces.next(), pieces.next()) {
        (Some(first), Some(second), None) => Some((first, second)),
        _ => None,
    }
}

/// A number of digits only; anything else counts as 0.
fn digits(text: &str) -> u64 {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().unwrap_or(u64::from(u32::MAX))
    } else {
        0
    }
}

fn tune(context: &Context<'_>, nodes: &[Vector<'_>]) -> Option<Element> {
    let mut tune = Element::new("numatune");
    let mut sets = Vec::new();
    for node in nodes {
        let Some(id) = node.filled_text("MEMORY_NODE_ID") else { continue };
        let element = Element::new("memnode")
            .attr("cellid", Sourced::computed(node.index, "number of the NUMA_NODE", []))
            .attr("mode", "strict")
            .attr("nodeset", as_attribute(id));
        tune.push(element);
        sets.push(id);
    }
    if sets.is_empty() {
        return (!context.mended).then_some(tune);
    }
    let joined: Vec<String> = sets.iter().map(|id| attribute_meaning(id.value)).collect();
    let nodeset =
        Sourced::computed(joined.join(","), "all MEMORY_NODE_ID", sets.iter().map(|id| given(id.at)));
    let memory = Element::new("memory").attr("mode", "strict").attr("nodeset", nodeset);
    Some(tune.child(memory))
}
