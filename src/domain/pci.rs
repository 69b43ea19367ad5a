//! IOMMU, passed-through devices, PCI controllers, TPM.

use super::context::Context;
use super::disk::vector_given;
use super::provenance::Provenance;
use super::refusal::Refusal;
use super::tree::Element;
use super::value::{Sourced, as_attribute, as_bare, attribute_meaning, because, given};
use crate::template::lookup::Text;
use crate::template::value::Vector;

/// Most root ports that are written; libvirt takes fewer.
const PORTS_MOST: i32 = 4096;

/// The IOMMU of a VM.
#[derive(Clone)]
pub struct Iommu {
    single: bool,
    device: bool,
    model: Sourced,
    options: Vec<(String, Sourced)>,
}

impl Iommu {
    pub fn of(context: &Context<'_>) -> Option<Self> {
        let vector = context.vm.vector("IOMMU")?;
        let mode = vector.get("MODE").unwrap_or("");
        Some(Self {
            single: mode == "single",
            device: mode == "device",
            model: vector.text("MODEL").map_or_else(|| "".into(), as_attribute),
            options: vector.text("OPTIONS").map(options).unwrap_or_default(),
        })
    }

    /// The one IOMMU for all devices.
    pub fn element(&self) -> Option<Element> {
        self.single.then(|| {
            let driver = self.with_options(Element::new("driver"));
            Element::new("iommu").attr("model", self.model.clone()).child(driver)
        })
    }

    fn of_bus(&self, bus: &Sourced) -> Element {
        let driver = self.with_options(Element::new("driver").attr("pciBus", bus.clone()));
        Element::new("iommu").attr("model", self.model.clone()).child(driver)
    }

    fn with_options(&self, mut driver: Element) -> Element {
        for (name, value) in &self.options {
            driver.set(name.clone(), value.clone());
        }
        driver
    }
}

/// `key=value` words up to the first that is none, by key; the last value of a key counts.
fn options(text: Text<'_>) -> Vec<(String, Sourced)> {
    let mut all: std::collections::BTreeMap<&str, &str> = std::collections::BTreeMap::new();
    for word in text.value.split_whitespace() {
        let mut pieces = word.split('=').filter(|piece| !piece.is_empty());
        let (Some(key), Some(value), None) = (pieces.next(), pieces.next(), pieces.next()) else { break };
        let name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let first = key.as_bytes()[0];
        let good = (first.is_ascii_alphabetic() || first == b'_') && key.bytes().all(name);
        if !good || value.contains(['<', '>', '&', '\'', '"']) {
            break;
        }
        all.insert(key, value);
    }
    let from = Provenance::Given(given(text.at));
    all.into_iter()
        .map(|(key, value)| (key.to_owned(), Sourced { value: value.to_owned(), from: from.clone() }))
        .collect()
}

/// One `hostdev` for each PCI that has an address on the host.
pub fn hostdevs(context: &Context<'_>) -> Vec<Element> {
    let mut elements = Vec::new();
    for pci in context.vm.vectors("PCI") {
        match hostdev(pci) {
            Some(element) => elements.push(element),
            None => context.warn(format!(
                "{} has no address on the host (DOMAIN, BUS, SLOT, FUNCTION); it is left out",
                vector_given(pci)
            )),
        }
    }
    elements
}

fn hostdev(pci: Vector<'_>) -> Option<Element> {
    let device = pci_device(pci)?;
    let mut element = match mediated(pci) {
        Some(uuid) => mediated_device(uuid),
        None => device,
    }
    .because(Provenance::Given(vector_given(pci)));
    element = element.child_if(driver(pci));
    if let Some(nodes) = pci.filled_text("ACPI_NODES") {
        element.push(Element::new("acpi").attr("nodeset", as_attribute(nodes)));
    }
    Some(element.child_if(guest_address(pci)))
}

/// `driver` of a device that is passed through by the kernel's iommufd.
pub fn driver(pci: Vector<'_>) -> Option<Element> {
    let iommufd = pci.flag("IOMMUFD");
    let yes = Sourced { value: "yes".to_owned(), from: because(&iommufd) };
    iommufd.value.then(|| Element::new("driver").attr("iommufd", yes))
}

/// UUID of a device that is mediated by its driver.
pub fn mediated<'a>(pci: Vector<'a>) -> Option<Text<'a>> {
    let mode = pci.get("MDEV_MODE").unwrap_or("");
    pci.filled_text("UUID").filter(|_| mode.is_empty() || mode.eq_ignore_ascii_case("legacy"))
}

/// `hostdev` by the address on the host, if that is known.
pub fn pci_device(pci: Vector<'_>) -> Option<Element> {
    let source = host_address(pci)?;
    let nvidia = pci.filled_text("MDEV_MODE").filter(|mode| mode.value.eq_ignore_ascii_case("nvidia"));
    let managed = match nvidia {
        Some(mode) => Sourced { value: "no".to_owned(), from: Provenance::Given(given(mode.at)) },
        None => "yes".into(),
    };
    Some(
        Element::new("hostdev")
            .attr("mode", "subsystem")
            .attr("type", "pci")
            .attr("managed", managed)
            .child(Element::new("source").child(source)),
    )
}

/// `hostdev` of a mediated device.
pub fn mediated_device(uuid: Text<'_>) -> Element {
    Element::new("hostdev")
        .attr("mode", "subsystem")
        .attr("type", "mdev")
        .attr("model", "vfio-pci")
        .child(Element::new("source").child(Element::new("address").attr("uuid", as_attribute(uuid))))
}

/// `address` of a device on the host, if all four parts are set.
pub fn host_address(pci: Vector<'_>) -> Option<Element> {
    let part = |key| {
        let text = pci.filled_text(key)?;
        let value = attribute_meaning(&format!("0x{}", text.value));
        Some(Sourced::computed(value, "hexadecimal", [given(text.at)]))
    };
    let (domain, bus) = (part("DOMAIN")?, part("BUS")?);
    let (slot, function) = (part("SLOT")?, part("FUNCTION")?);
    Some(
        Element::new("address")
            .attr("domain", domain)
            .attr("bus", bus)
            .attr("slot", slot)
            .attr("function", function),
    )
}

/// Where the guest finds the device, if that is said.
fn guest_address(pci: Vector<'_>) -> Option<Element> {
    if let Some(bus) = pci.filled_text("VM_BUS_INDEX") {
        return Some(
            Element::new("address")
                .attr("type", "pci")
                .attr("domain", "0x0000")
                .attr("bus", as_attribute(bus))
                .attr("slot", "0x00")
                .attr("function", "0x0"),
        );
    }
    vm_address(pci)
}

/// The guest address in its four parts.
pub fn vm_address(pci: Vector<'_>) -> Option<Element> {
    let part = |key| pci.filled_text(key).map(as_attribute);
    let (domain, bus) = (part("VM_DOMAIN")?, part("VM_BUS")?);
    let (slot, function) = (part("VM_SLOT")?, part("VM_FUNCTION")?);
    Some(
        Element::new("address")
            .attr("type", "pci")
            .attr("domain", domain)
            .attr("bus", bus)
            .attr("slot", slot)
            .attr("function", function),
    )
}

/// PCI controllers of machines with PCI Express.
///
/// # Errors
/// [`Refusal::TooMany`] root ports.
pub fn controllers(context: &Context<'_>, iommu: Option<&Iommu>) -> Result<Vec<Element>, Refusal> {
    if !context.q35 && !context.is_aarch64() {
        return Ok(Vec::new());
    }
    let mut root =
        Element::new("controller").attr("index", "0").attr("type", "pci").attr("model", "pcie-root");
    let hole = context.all.member_unsigned("FEATURES", "PCIHOLE64", 0);
    if hole.value > 0 {
        root.push(Element::new("pcihole64").attr("unit", "KiB").text(Sourced::number(&hole)));
    }
    let mut elements = vec![root];
    let has_nodes = context.vm.vectors("NUMA_NODE").next().is_some();
    if has_nodes && context.site.flag("Q35_NUMA_PCIE").value {
        numa_controllers(context, iommu, &mut elements);
    } else {
        flat_controllers(context, &mut elements)?;
    }
    Ok(elements)
}

fn controller(index: impl ToString, model: &'static str) -> Element {
    Element::new("controller")
        .attr("type", "pci")
        .attr("index", Sourced::computed(index, "running number", []))
        .attr("model", model)
}

fn flat_controllers(context: &Context<'_>, elements: &mut Vec<Element>) -> Result<(), Refusal> {
    let ports = context.site.int("Q35_ROOT_PORTS");
    let count = if ports.value == 0 { 16 } else { ports.value.max(0) };
    if let Some(at) = ports.at.filter(|_| count > PORTS_MOST) {
        return Err(Refusal::TooMany { what: "PCI root ports", given: given(at), limit: 4096 });
    }
    for index in 1..=count {
        elements.push(controller(index, "pcie-root-port").because(because(&ports)));
    }
    elements.push(controller(count + 1, "pcie-to-pci-bridge"));
    Ok(())
}

fn numa_controllers(context: &Context<'_>, iommu: Option<&Iommu>, elements: &mut Vec<Element>) {
    elements.push(controller(1, "pcie-root-port"));
    elements.push(controller(2, "pcie-to-pci-bridge"));
    let mut written = 0;
    for node in context.vm.vectors("NUMA_NODE") {
        let cpus = node.unsigned("TOTAL_CPUS", 0).value;
        if cpus == 0 || node.unsigned("MEMORY", 0).value == 0 {
            continue;
        }
        written += 1;
        let base = 3 + 9 * node.index;
        let number = Sourced::computed(node.index, "number of the NUMA_NODE", []);
        elements.push(expander(base, 0x20 + 0x10 * node.index, number));
        for port in 0..8 {
            let address = Element::new("address")
                .attr("type", "pci")
                .attr("bus", Sourced::computed(base, "the node's expander bus", []))
                .attr("slot", "0")
                .attr("function", Sourced::computed(port, "running number", []));
            let address = if port == 0 { address.attr("multifunction", "on") } else { address };
            elements.push(controller(base + 1 + port, "pcie-root-port").child(address));
        }
    }
    let mut next = 3 + 9 * written;
    let dedicated = context.vm.vectors("PCI").filter(|pci| pci.get("ROOT") == Some("dedicated"));
    for (number, pci) in dedicated.enumerate() {
        let node = pci.text("NUMA_NODE").map_or_else(|| "".into(), as_bare);
        elements.push(expander(next, 0xa0 + 8 * number, node));
        let bus = Sourced::computed(next, "the device's expander bus", []);
        let address = Element::new("address")
            .attr("type", "pci")
            .attr("bus", bus.clone())
            .attr("slot", "0")
            .attr("function", "0x0");
        elements.push(controller(next + 1, "pcie-root-port").child(address));
        if let Some(iommu) = iommu.filter(|iommu| iommu.device && pci.flag("IOMMU").value) {
            elements.push(iommu.of_bus(&bus));
        }
        next += 2;
    }
}

fn expander(index: usize, bus: usize, node: Sourced) -> Element {
    let bus = Sourced::computed(format!("{bus:#04x}"), "running number", []);
    let target = Element::new("target").attr("busNr", bus).child(Element::new("node").text(node));
    controller(index, "pcie-expander-bus").child(target)
}

/// `tpm`.
pub fn tpm(context: &Context<'_>) -> Option<Element> {
    let model = context.all.member("TPM", "MODEL").and_then(Text::filled)?;
    let backend = Element::new("backend").attr("type", "emulator").attr("version", "2.0");
    Some(Element::new("tpm").attr("model", as_attribute(model)).child(backend))
}
