//! XML of devices that are attached to a running domain or detached from it, from the same code as whole
//! domains.
//!
//! A value is the device's own, else `DEFAULT_ATTACH_*` of `kvmrc` if set, else what `vmm_exec_kvm.conf` says
//! for DISK and NIC. What differs from a deployment, because the domain runs, stands in docs/domain-mends.md.

mod kvmrc;

use super::context::Context;
use super::disk::{self, vector_given};
use super::nic::{self, NicDefaults};
use super::options::{Inputs, Options};
use super::pci;
use super::provenance::Provenance;
use super::refusal::Refusal;
use super::running::{RunningDomain, number};
use super::tree::Element;
use super::value::{Sourced, as_attribute, given};
use super::{check_characters, write};
use crate::template::Template;
use crate::template::document::VmDocument;
use crate::template::value::Vector;

pub use kvmrc::kvmrc;

/// What a device is made from.
#[derive(Debug, Clone, Copy)]
pub struct Attach<'a> {
    /// The action document.
    pub vm: &'a VmDocument,
    /// What `kvmrc` sets, made by [`kvmrc`].
    pub kvmrc: &'a Template,
    /// `vmm_exec_kvm.conf`; empty when it is not on the host.
    pub defaults: &'a Template,
    /// The domain that the device goes to.
    pub running: &'a RunningDomain,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its element.
    pub root: Element,
    /// What was left out with a reason that its owner may want to know; for people.
    pub warnings: Vec<String>,
}

impl Device {
    /// The device as `virsh attach-device` and `detach-device` read it; ends with a newline.
    #[must_use]
    pub fn to_xml(&self) -> String {
        write::document(&self.root)
    }
}

/// The disk with `ATTACH = YES`, whose data are at `path` on the host (symbolic links resolved by the caller).
///
/// # Errors
/// [`Refusal::NothingToAttach`]; [`Refusal::NoHotplug`] for a target of IDE or SATA, which QEMU can't plug; what
/// is refused at deployment.
pub fn disk(attach: &Attach<'_>, path: &str) -> Result<Device, Refusal> {
    make(attach, |context| {
        let vector = attached(context, "DISK")?;
        let path = Sourced::computed(path, "path of the disk, argument of the action", []);
        disk::attached(context, vector, path, attach.running.iothreads)
    })
}

/// The interface of the NIC with `ATTACH = YES`; the same XML detaches it.
///
/// # Errors
/// [`Refusal::NothingToAttach`].
pub fn nic(attach: &Attach<'_>) -> Result<Device, Refusal> {
    make(attach, |context| {
        let vector = attached(context, "NIC")?;
        Ok(nic::interface(context, vector, &mut NicDefaults::of_site(context)))
    })
}

/// The PCI device with `ATTACH = YES`. `is_virtual_function`: whether its address on the host is one of SR-IOV;
/// it then becomes an interface, so that libvirt sets the MAC of the function.
///
/// # Errors
/// [`Refusal::NothingToAttach`]; [`Refusal::NoAddress`] when the host's address is not known.
pub fn pci(attach: &Attach<'_>, is_virtual_function: bool) -> Result<Device, Refusal> {
    make(attach, |context| {
        let vector = attached(context, "PCI")?;
        let element = if is_virtual_function && pci::mediated(vector).is_none() {
            virtual_function(vector)?
        } else {
            host_device(vector)?.child_if(pci::driver(vector))
        };
        let address = pci::vm_address(vector).filter(|address| is_free(attach.running, address));
        Ok(element.child_if(address))
    })
}

/// The PCI device with `ATTACH = YES` as it is named to detach it: by its UUID or its address on the host.
///
/// # Errors
/// As [`pci`].
pub fn pci_to_detach(attach: &Attach<'_>) -> Result<Device, Refusal> {
    make(attach, |context| host_device(attached(context, "PCI")?))
}

/// The PCI device that the document asks for, if it does; it goes before a NIC.
#[must_use]
pub fn marked_pci(vm: &VmDocument) -> Option<Vector<'_>> {
    vm.template.vectors("PCI").find(|pci| is_marked(*pci))
}

fn make<'a>(
    attach: &Attach<'a>,
    device: impl FnOnce(&Context<'a>) -> Result<Element, Refusal>,
) -> Result<Device, Refusal> {
    // One for all calls: of the options only the style has a say in a device.
    static OPTIONS: std::sync::LazyLock<Options> = std::sync::LazyLock::new(Options::default);
    static NOTHING: std::sync::LazyLock<Template> = std::sync::LazyLock::new(Template::new);
    let inputs = Inputs {
        vm: attach.vm,
        defaults: attach.defaults,
        host: attach.kvmrc,
        cluster: &NOTHING,
        options: &OPTIONS,
    };
    let context = Context::within(inputs, "".into());
    let root = device(&context)?;
    check_characters(&root)?;
    Ok(Device { root, warnings: context.into_warnings() })
}

fn is_marked(vector: Vector<'_>) -> bool {
    vector.get("ATTACH") == Some("YES")
}

fn attached<'a>(context: &Context<'a>, name: &'static str) -> Result<Vector<'a>, Refusal> {
    context.vm.vectors(name).find(|vector| is_marked(*vector)).ok_or(Refusal::NothingToAttach(name))
}

fn host_device(vector: Vector<'_>) -> Result<Element, Refusal> {
    let element = match pci::mediated(vector) {
        Some(uuid) => pci::mediated_device(uuid),
        None => pci::pci_device(vector).ok_or_else(|| Refusal::NoAddress(vector_given(vector)))?,
    };
    Ok(element.because(Provenance::Given(vector_given(vector))))
}

fn virtual_function(vector: Vector<'_>) -> Result<Element, Refusal> {
    let mut address = pci::host_address(vector).ok_or_else(|| Refusal::NoAddress(vector_given(vector)))?;
    address.attributes.insert(
        0,
        super::tree::Attribute { name: "type".into(), value: "pci".to_owned(), from: Provenance::BuiltIn },
    );
    let mac = vector.filled_text("MAC").map(|mac| Element::new("mac").attr("address", as_attribute(mac)));
    let from =
        vector.text("SHORT_ADDRESS").map_or(Provenance::BuiltIn, |text| Provenance::Given(given(text.at)));
    Ok(Element::new("interface")
        .attr("type", Sourced { value: "hostdev".to_owned(), from })
        .attr("managed", "yes")
        .child(Element::new("source").child(address))
        .child_if(mac))
}

/// Whether the guest address exists in the running domain and nothing else has it.
fn is_free(running: &RunningDomain, address: &Element) -> bool {
    let part = |name| address.attribute(name).and_then(number);
    let (Some(domain), Some(bus), Some(slot), Some(function)) =
        (part("domain"), part("bus"), part("slot"), part("function"))
    else {
        return false;
    };
    running.has_pci_1 && !running.pci_in_use.contains(&[domain, bus, slot, function])
}

#[cfg(test)]
mod tests;
