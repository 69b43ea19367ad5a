//! `vcpu`, `cputune`, `cpu`.

use super::context::Context;
use super::memory::Memory;
use super::numa::{self, Numa};
use super::provenance::{Given, Provenance};
use super::refusal::Refusal;
use super::tree::Element;
use super::value::{Sourced, as_attribute, as_cdata, attribute_meaning, because, given};
use crate::template::lookup::Text;
use crate::template::number;
use crate::template::value::Vector;

/// Most virtual CPUs that are pinned one by one; libvirt and QEMU take far fewer.
const PINNED_MOST: u32 = 16_384;

/// `vcpu`: `VCPU`, with `VCPU_MAX` as the most that can be plugged.
pub fn vcpu(context: &Context<'_>) -> Option<Element> {
    let vcpu = context.vcpu?;
    let plain = |text: Text<'_>, sourced: Sourced| {
        let number = number::int(text.value);
        // libvirt takes no blanks and signs, which count as part of a number for OpenNebula.
        if context.mended && number.valid {
            return Sourced { value: number.value.to_string(), ..sourced };
        }
        sourced
    };
    match context.vcpu_max {
        Some(max) => Some(
            Element::new("vcpu")
                .attr("current", plain(vcpu, as_attribute(vcpu)))
                .text(plain(max, as_cdata(max))),
        ),
        None => Some(Element::new("vcpu").text(plain(vcpu, as_cdata(vcpu)))),
    }
}

/// `cputune`: the weight of the VM, and its pinning.
///
/// # Errors
/// [`Refusal::TooMany`] when more CPUs than [`PINNED_MOST`] are to be pinned.
pub fn cputune(context: &Context<'_>) -> Result<Element, Refusal> {
    let mut cputune = Element::new("cputune").child(Element::new("shares").text(shares(context)));
    let emulator = context.site.text("EMULATOR_CPUS").and_then(Text::filled).map(as_attribute);
    let pinning = Pinning::of(context);
    if !pinning.any() {
        let pin = emulator.map(|cpus| Element::new("emulatorpin").attr("cpuset", cpus));
        return Ok(cputune.child_if(pin));
    }
    let mut used = Vec::new();
    let mut next: u32 = 0;
    for node in context.vm.vectors("NUMA_NODE") {
        let count = node.unsigned("TOTAL_CPUS", 0);
        let Some(cpus) = node.filled_text("CPUS").filter(|_| count.value > 0) else { continue };
        if next.saturating_add(count.value) > PINNED_MOST {
            return Err(Refusal::TooMany {
                what: "virtual CPUs to pin",
                given: given(cpus.at),
                limit: u64::from(PINNED_MOST),
            });
        }
        for set in pinning.sets(context, cpus, count.value) {
            let pin = Element::new("vcpupin")
                .attr("vcpu", Sourced::computed(next, "running number", []))
                .attr("cpuset", set);
            cputune.push(pin);
            next += 1;
        }
        used.push((node.index, cpus));
    }
    let cpuset = emulator.unwrap_or_else(|| all_cpus(context, &used));
    if !(context.mended && cpuset.is_empty()) {
        cputune.push(Element::new("emulatorpin").attr("cpuset", cpuset));
    }
    Ok(cputune)
}

/// CPU times the base of the host's cgroups, rounded up, in 32-bit floats as OpenNebula does it.
fn shares(context: &Context<'_>) -> Sourced {
    let cpu = context.vm.single("CPU");
    let version = context.site.int("CGROUPS_VERSION");
    let (base, least, most) =
        if version.value == 2 { (100.0, 1.0, 10_000.0) } else { (1024.0, 2.0, 262_144.0) };
    let factor = cpu.map_or(0.0, |cpu| number::float(cpu.value).value);
    let shares = (base * factor).ceil().clamp(least, most);
    let mut from: Vec<Given> = Vec::new();
    from.extend(cpu.map(|cpu| Given { attribute: "CPU".to_owned(), origin: cpu.origin.clone() }));
    from.extend(version.at.map(given));
    Sourced::computed(shares, "CPU × 1024 (cgroups v2: × 100), rounded up", from)
}

/// How vCPUs are pinned: `TOPOLOGY` of the VM.
struct Pinning {
    each: bool,
    any: bool,
}

impl Pinning {
    fn of(context: &Context<'_>) -> Self {
        let Some(topology) = context.vm.vector("TOPOLOGY") else { return Self { each: false, any: false } };
        let policy = topology.get("PIN_POLICY").unwrap_or("").to_ascii_uppercase();
        let each = policy == "CORE" || policy == "THREAD";
        let affinity = topology.int("NODE_AFFINITY", -1).value != -1;
        let pages = topology.unsigned("HUGEPAGE_SIZE", 0).value != 0;
        Self { each, any: each || policy == "SHARED" || affinity || pages }
    }

    fn any(&self) -> bool {
        self.any
    }

    /// The CPU sets of `count` vCPUs of a node.
    fn sets(&self, context: &Context<'_>, cpus: Text<'_>, count: u32) -> Vec<Sourced> {
        let from = given(cpus.at);
        if !self.each {
            let set = Sourced { value: attribute_meaning(cpus.value), from: Provenance::Given(from) };
            return (0..count).map(|_| set.clone()).collect();
        }
        let sets: Vec<Sourced> = cpus
            .value
            .split(',')
            .filter_map(leading_number)
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .map(|cpu| Sourced::computed(cpu, "one CPU of the list each", [from.clone()]))
            .collect();
        if sets.len() < usize::try_from(count).unwrap_or(usize::MAX) {
            context.warn(format!(
                "{from} lists {} CPUs for {count} vCPUs; those beyond the list are not pinned",
                sets.len()
            ));
        }
        sets
    }
}

/// The number at the start of a part of a list.
fn leading_number(part: &str) -> Option<u64> {
    let part = part.trim_start();
    let part = part.strip_prefix('+').unwrap_or(part);
    let end = part.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(part.len());
    part[..end].parse().ok()
}

/// The CPU lists of the used nodes, joined. OpenNebula puts a comma before each node that isn't the very first
/// of the VM, also when that first one isn't used.
fn all_cpus(context: &Context<'_>, used: &[(usize, Text<'_>)]) -> Sourced {
    let mut set = String::new();
    for (number, (index, cpus)) in used.iter().enumerate() {
        if if context.mended { number > 0 } else { *index > 0 } {
            set.push(',');
        }
        set.push_str(&attribute_meaning(cpus.value));
    }
    Sourced::computed(set, "all CPUs of the VM's NUMA nodes", used.iter().map(|(_, cpus)| given(cpus.at)))
}

/// `cpu` and what comes with it.
///
/// # Errors
/// [`Refusal`] of the NUMA nodes.
pub fn cpu(context: &Context<'_>, memory: &Memory<'_>) -> Result<(Option<Element>, Numa), Refusal> {
    let evc = context.cluster.text("EVC_MODE").and_then(Text::filled);
    let model = evc.or_else(|| context.all.member("CPU_MODEL", "MODEL").and_then(Text::filled));
    let topology = context.vm.vector("TOPOLOGY");
    if model.is_none() && topology.is_none() && !memory.hotplug {
        return Ok((None, Numa::default()));
    }
    let mut cpu = Element::new("cpu");
    if let Some(model) = model {
        add_model(context, model, &mut cpu);
    }
    let nodes: Vec<Vector<'_>> = context.vm.vectors("NUMA_NODE").collect();
    if memory.hotplug && nodes.is_empty() {
        cpu.push(one_cell(context, memory));
    }
    if let Some(topology) = topology {
        let part = |name| Sourced::number(&topology.int(name, 1));
        let element = Element::new("topology")
            .attr("sockets", part("SOCKETS"))
            .attr("cores", part("CORES"))
            .attr("threads", part("THREADS"));
        cpu.push(element);
    }
    let numa = numa::cells(context, topology, &nodes, &mut cpu)?;
    Ok((Some(cpu), numa))
}

fn add_model(context: &Context<'_>, model: Text<'_>, cpu: &mut Element) {
    let at = || Provenance::Given(given(model.at));
    let mode = match model.value {
        "host-passthrough" => "host-passthrough",
        // OpenNebula takes it for the name of a model, which no libvirt knows.
        "host-model" if context.mended => "host-model",
        _ => "custom",
    };
    cpu.set("mode", Sourced { value: mode.to_owned(), from: at() });
    if mode == "custom" {
        cpu.push(Element::new("model").attr("fallback", "forbid").text(as_cdata(model)));
    }
    let Some(features) = context.all.member("CPU_MODEL", "FEATURES") else { return };
    for part in features.value.split(',') {
        let Some(word) = part.split_ascii_whitespace().next() else { continue };
        let name = Sourced { value: attribute_meaning(word), from: Provenance::Given(given(features.at)) };
        cpu.push(Element::new("feature").attr("policy", "require").attr("name", name));
    }
}

/// The one NUMA cell that memory hotplug needs.
fn one_cell(context: &Context<'_>, memory: &Memory<'_>) -> Element {
    let count = context.vcpu.map(|vcpu| number::int(vcpu.value));
    let last = count.filter(|count| count.valid && count.value >= 1).map_or(0, |count| count.value - 1);
    let cpus =
        Sourced::computed(format!("0-{last}"), "0 to VCPU - 1", context.vcpu.map(|vcpu| given(vcpu.at)));
    let cell = Element::new("cell")
        .attr("id", "0")
        .attr("cpus", cpus)
        .attr("memory", memory.kib())
        .attr("unit", "KiB")
        .because(because(&context.vm_memory_mode()));
    Element::new("numa").child(cell)
}
