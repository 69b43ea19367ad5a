//! Libvirt domains from VM documents, and device XML for what is attached to running ones. No I/O.
//!
//! [`generate`] follows the rules of OpenNebula 7.4; its output is a [`tree`] in which every value knows what
//! gave it, and which [`Domain::to_xml`] writes.

mod context;
mod cpu;
pub mod device;
mod disk;
mod display;
mod features;
mod iotune;
mod markup;
mod memory;
mod nic;
mod numa;
mod options;
mod os;
mod pci;
pub mod provenance;
mod refusal;
mod running;
mod source;
mod tail;
pub mod tree;
mod value;
mod write;

use context::Context;
use value::{Sourced as Value, as_bare, as_cdata};

pub use options::{Emulator, Inputs, Options, Placed, Style};
pub use provenance::Provenance;
pub use refusal::Refusal;
pub use running::RunningDomain;
pub use tree::{Element, Line};
pub use value::Sourced;

use crate::template::lookup::Text;

/// The emulator when no level names one.
const EMULATOR: &str = "/usr/bin/qemu-kvm-one";

/// The namespace in which RAW can hand options to QEMU.
const QEMU_NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// A domain, and what there is to say about how it came to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The `domain` element.
    pub root: Element,
    /// What was left out of the domain with a reason that its owner may want to know; for people.
    pub warnings: Vec<String>,
}

impl Domain {
    /// The domain as libvirt reads it: attributes in single quotes, no XML declaration, ends with a newline.
    #[must_use]
    pub fn to_xml(&self) -> String {
        write::document(&self.root)
    }

    /// Every element, attribute and text with its path and what gave it, in document order.
    #[must_use]
    pub fn lines(&self) -> Vec<Line<'_>> {
        self.root.lines()
    }
}

/// Makes the domain.
///
/// # Errors
/// [`Refusal`] when OpenNebula would refuse the VM, or when what it would write is no XML.
pub fn generate(inputs: &Inputs<'_>) -> Result<Domain, Refusal> {
    let context = Context::new(*inputs)?;
    if context.mended && inputs.options.check_firmware {
        os::check_firmware(&context)?;
    }
    let memory = memory::Memory::of(&context)?;
    let firmware = os::Firmware::of(&context);
    let emulator = match inputs.options.emulator {
        Emulator::Kvm => "kvm",
        Emulator::Qemu => "qemu",
    };
    let mut domain = Element::new("domain")
        .attr("type", Value::option(emulator, "TYPE of the driver"))
        .attr("xmlns:qemu", QEMU_NAMESPACE)
        .child(Element::new("name").text(name(inputs)))
        .child(Element::new("title").text(title(&context)))
        .child_if(os::uuid(&context).map(|uuid| Element::new("uuid").text(as_bare(uuid))))
        .child_if(cpu::vcpu(&context))
        .child(cpu::cputune(&context)?);
    for element in memory.elements(&context) {
        domain.push(element);
    }
    domain.push(os::os(&context, &firmware)?);
    let (cpu, numa) = cpu::cpu(&context, &memory)?;
    domain = domain.child_if(os::pm(&context, &firmware)).child_if(cpu).child_if(numa.tune);
    if context.threads.value > 0 {
        domain.push(Element::new("iothreads").text(Value::number(&context.threads)));
    }
    let (devices, filesystem) = devices(&context)?;
    domain = domain
        .child(devices)
        .child_if(features::memory_backing(numa.pages, filesystem))
        .child_if(features::features(&context, &firmware)?)
        .child_if(features::clock(&context)?)
        .child_if(features::guest_agent(&context));
    let encryption = tail::encryption(&context, &memory);
    let encrypted = !encryption.is_empty();
    domain.children.extend(encryption.into_iter().map(tree::Node::Element));
    domain.children.extend(tail::raw(&context)?);
    domain.push(tail::metadata(&context, encrypted));
    check_characters(&domain)?;
    Ok(Domain { root: domain, warnings: context.into_warnings() })
}

fn name(inputs: &Inputs<'_>) -> Value {
    match &inputs.options.placed {
        Some(placed) => Value::option(&placed.name, "name of the domain"),
        None => Value::computed(format!("one-{}", inputs.vm.id), "one- and the VM's ID", []),
    }
}

fn title(context: &Context<'_>) -> Value {
    Value::computed(value::bare_meaning(&context.inputs.vm.name), "NAME of the VM", [])
}

/// The first `devices`, and whether a file system is shared with the host.
fn devices(context: &Context<'_>) -> Result<(Element, Option<Provenance>), Refusal> {
    let emulator = context.all.text("EMULATOR").and_then(Text::filled);
    let emulator = emulator.map_or_else(|| EMULATOR.into(), as_cdata);
    let mut devices = Element::new("devices").child(Element::new("emulator").text(emulator));
    let disks = disk::disks(context)?;
    let iommu = pci::Iommu::of(context);
    let elements = disks.elements.into_iter().chain(nic::interfaces(context));
    devices.children.extend(elements.map(tree::Node::Element));
    devices.children.extend(display::displays(context, disks.last_kind)?);
    devices = devices.child_if(iommu.as_ref().and_then(pci::Iommu::element));
    let elements = pci::hostdevs(context).into_iter().chain(pci::controllers(context, iommu.as_ref())?);
    devices.children.extend(elements.map(tree::Node::Element));
    Ok((devices.child_if(pci::tpm(context)), disks.filesystem))
}

/// XML can't hold every character, not even escaped.
fn check_characters(root: &Element) -> Result<(), Refusal> {
    if all_characters_good(root) {
        return Ok(());
    }
    for line in root.lines() {
        if let Some(character) = line.value.and_then(|value| value.chars().find(|c| !value::is_xml(*c))) {
            return Err(Refusal::Character { path: line.path, character, from: line.from.to_string() });
        }
    }
    Ok(())
}

fn all_characters_good(element: &Element) -> bool {
    let good = |value: &str| value.chars().all(value::is_xml);
    element.attributes.iter().all(|attribute| good(&attribute.value))
        && element.children.iter().all(|node| match node {
            tree::Node::Element(child) => all_characters_good(child),
            tree::Node::Text { value, .. } => good(value),
        })
}
