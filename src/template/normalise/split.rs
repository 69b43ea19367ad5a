//! Which attributes go into TEMPLATE and which stay in USER_TEMPLATE.

use super::{Refused, Work};
use crate::template::value::{Attribute, Template, Value};

/// All attributes of these names move to TEMPLATE.
const MOVED: [&str; 26] = [
    "INPUT",
    "RAW",
    "TOPOLOGY",
    "NUMA_NODE",
    "HYPERV_OPTIONS",
    "SPICE_OPTIONS",
    "CPU_COST",
    "MEMORY_COST",
    "DISK_COST",
    "FEATURES",
    "OS",
    "IOMMU",
    "TPM",
    "MEMORY_ENCRYPTION",
    "CPU_MODEL",
    "PCI",
    "NIC_DEFAULT",
    "NIC",
    "NIC_ALIAS",
    "DISK",
    "CONTEXT",
    "TM_MAD_SYSTEM",
    "SUBMIT_ON_HOLD",
    "VCPU_MAX",
    "CLONING_TEMPLATE_ID",
    "TEMPLATE_ID",
];

/// Only the first one of these moves.
const FIRST: [&str; 2] = ["GRAPHICS", "VIDEO"];

impl Work<'_> {
    /// Sorts the attributes into both templates; gives the name of the VM.
    pub(super) fn split(&mut self, template: &Template) -> Result<Option<String>, Refused> {
        self.quantity(template, "MEMORY", true, whole, "a whole number of MiB above 0")?;
        self.quantity(template, "CPU", true, decimal, "a number above 0")?;
        self.quantity(template, "VCPU", false, whole, "a whole number above 0")?;
        let mut name = None;
        for attribute in template.attributes() {
            let text = match &attribute.value {
                Value::Single(text) => Some(text.as_str()),
                Value::Vector(_) => None,
            };
            match (attribute.name.as_str(), text) {
                ("NAME", Some(text)) => name = name.or_else(|| Some(text.to_owned())),
                ("MEMORY" | "CPU" | "VCPU", Some(_)) | ("VMID" | "DEPLOY_ID" | "TEMPLATE_NAME", _) => {}
                ("EMULATOR", Some(text)) if !text.is_empty() => self.t.push(attribute.clone()),
                ("MEMORY_MAX" | "MEMORY_SLOTS", Some(text)) if whole(text) => self.t.push(attribute.clone()),
                ("MEMORY_RESIZE_MODE", Some(text)) => self.resize_mode(attribute, text)?,
                (moved, _) if MOVED.contains(&moved) => self.t.push(attribute.clone()),
                (first, _) if FIRST.contains(&first) && self.t.vector(first).is_none() => {
                    self.t.push(attribute.clone());
                }
                _ => self.user.push(attribute.clone()),
            }
        }
        self.add("VMID", Value::Single(self.around.vm_id.to_string()));
        let tm_mad = self.around.datastore.tm_mad.clone();
        if self.t.single("TM_MAD_SYSTEM").is_none() {
            self.add("TM_MAD_SYSTEM", Value::Single(tm_mad));
        }
        Ok(name.filter(|name| !name.is_empty()))
    }

    /// A number that the VM must have, or may have.
    fn quantity(
        &mut self,
        template: &Template,
        name: &'static str,
        required: bool,
        good: fn(&str) -> bool,
        needs: &'static str,
    ) -> Result<(), Refused> {
        match template.single(name) {
            Some(found) if good(found.value) => {
                let value = Value::Single(found.value.to_owned());
                self.t.push(Attribute { name: name.to_owned(), value, origin: found.origin.clone() });
                Ok(())
            }
            Some(found) if required || !found.value.is_empty() => Err(Refused::Value {
                at: found.origin.clone(),
                name: name.to_owned(),
                text: found.value.to_owned(),
                needs,
            }),
            None if required => Err(Refused::Missing(name)),
            _ => Ok(()),
        }
    }

    fn resize_mode(&mut self, attribute: &Attribute, text: &str) -> Result<(), Refused> {
        let upper = text.to_ascii_uppercase();
        if !matches!(upper.as_str(), "BALLOONING" | "HOTPLUG") {
            return Err(Refused::Value {
                at: attribute.origin.clone(),
                name: attribute.name.clone(),
                text: text.to_owned(),
                needs: "BALLOONING or HOTPLUG",
            });
        }
        self.t.push(Attribute { value: Value::Single(upper), ..attribute.clone() });
        Ok(())
    }
}

/// A whole number above 0 that fits 32 bits.
fn whole(text: &str) -> bool {
    text.parse::<i32>().is_ok_and(|number| number > 0)
}

/// A decimal number above 0.
fn decimal(text: &str) -> bool {
    let digits = text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    digits && text.parse::<f32>().is_ok_and(|number| number > 0.0)
}
