//! What a running domain tells about where a device can go.

use crate::template::xml::{Document, Element};

/// Facts about a running domain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunningDomain {
    /// `iothreads` of the domain, 0 without.
    pub iothreads: i32,
    /// Whether there is a PCI bus beyond the first (a controller with the alias `pci.1`), to which a guest
    /// address can point.
    pub has_pci_1: bool,
    /// Guest PCI addresses in use: domain, bus, slot, function.
    pub pci_in_use: Vec<[u32; 4]>,
}

impl RunningDomain {
    /// Reads them from what `virsh dumpxml` prints.
    #[must_use]
    pub fn read(document: &Document) -> Self {
        let root = document.root();
        let iothreads = root.filled("iothreads").and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let mut running = Self { iothreads, ..Self::default() };
        for devices in root.children("devices") {
            for device in devices.elements() {
                running.add(device);
            }
        }
        running
    }

    fn add(&mut self, device: &Element) {
        if device.children("alias").any(|alias| alias.attribute("name") == Some("pci.1")) {
            self.has_pci_1 = true;
        }
        // Only the address of the device itself: the one below `source` is the host's.
        let addresses = device.children("address").filter(|a| a.attribute("type") == Some("pci"));
        self.pci_in_use.extend(addresses.filter_map(|address| {
            let part = |name| address.attribute(name).and_then(number);
            Some([part("domain").unwrap_or(0), part("bus")?, part("slot")?, part("function").unwrap_or(0)])
        }));
    }
}

/// A number as libvirt reads it in an address: hexadecimal with `0x`, else decimal.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.trim().strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_dumpxml_prints() {
        let xml = "<domain><iothreads>2</iothreads><devices>\
            <controller type='pci' index='1'><alias name='pci.1'/>\
            <address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x1'/></controller>\
            <hostdev><source><address domain='0x0000' bus='0x3b' slot='0x00' function='0x0'/></source>\
            <address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/></hostdev>\
            <disk><address type='drive' controller='0' bus='0' target='0' unit='0'/></disk>\
            </devices></domain>";
        let running = RunningDomain::read(&Document::parse(xml).expect("xml"));
        assert_eq!(running.iothreads, 2);
        assert!(running.has_pci_1);
        assert_eq!(running.pci_in_use, [[0, 0, 2, 1], [0, 5, 0, 0]]);
    }

    #[test]
    fn a_domain_without_anything_has_nothing() {
        let running = RunningDomain::read(&Document::parse("<domain/>").expect("xml"));
        assert_eq!(running, RunningDomain::default());
    }
}
