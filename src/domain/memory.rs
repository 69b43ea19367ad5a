//! `memory`, `maxMemory`, `currentMemory`.

use super::context::Context;
use super::provenance::{Given, Provenance};
use super::refusal::Refusal;
use super::tree::Element;
use super::value::{Sourced, given};
use crate::template::lookup::{Chain, Text, Typed};
use crate::template::number;

/// What the VM says about its memory.
pub struct Memory<'a> {
    /// `MEMORY`, MiB.
    pub mib: i64,
    /// Where it stands.
    pub at: Given,
    /// Whether modules can be plugged, which needs a NUMA cell.
    pub hotplug: bool,
    max: Option<Text<'a>>,
}

impl<'a> Context<'a> {
    /// `MEMORY_RESIZE_MODE`: whether it is HOTPLUG, and where it stands.
    pub fn vm_memory_mode(&self) -> Typed<'a, bool> {
        match Chain::new([self.vm]).text("MEMORY_RESIZE_MODE") {
            Some(mode) => Typed { value: mode.value == "HOTPLUG", found: true, at: Some(mode.at) },
            None => Typed { value: false, found: false, at: None },
        }
    }
}

impl<'a> Memory<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// [`Refusal`] when `MEMORY` is missing or no number.
    pub fn of(context: &Context<'a>) -> Result<Self, Refusal> {
        let vm = Chain::new([context.vm]);
        let text = vm.text("MEMORY").and_then(Text::filled).ok_or(Refusal::NoMemory)?;
        let memory = number::int(text.value);
        if !memory.valid {
            return Err(Refusal::Memory { given: given(text.at), text: text.value.to_owned() });
        }
        let max = vm.text("MEMORY_MAX").filter(|max| {
            let max = number::int(max.value);
            max.valid && memory.value < max.value
        });
        Ok(Self {
            mib: i64::from(memory.value),
            at: given(text.at),
            hotplug: max.is_some() && context.vm_memory_mode().value,
            max,
        })
    }

    /// `MEMORY` in KiB.
    pub fn kib(&self) -> Sourced {
        Sourced::computed(self.mib * 1024, "MEMORY in KiB", [self.at.clone()])
    }

    fn max_kib(&self, max: Text<'_>) -> Sourced {
        let mib = i64::from(number::int(max.value).value);
        Sourced::computed(mib * 1024, "MEMORY_MAX in KiB", [given(max.at)])
    }

    /// The elements, in order.
    pub fn elements(&self, context: &Context<'_>) -> Vec<Element> {
        let Some(max) = self.max else { return vec![Element::new("memory").text(self.kib())] };
        if !self.hotplug {
            let current = Element::new("currentMemory").text(self.kib());
            return vec![Element::new("memory").text(self.max_kib(max)), current];
        }
        let mut elements = vec![Element::new("memory").text(self.kib())];
        if context.vm.vector("TOPOLOGY").is_none() {
            let slots = Sourced::number(&context.all.int("MEMORY_SLOTS"));
            let mut most = Element::new("maxMemory").attr("slots", slots).text(self.max_kib(max));
            if let Some(at) = context.vm_memory_mode().at {
                most.from = Provenance::Given(given(at));
            }
            elements.push(most);
        }
        elements
    }
}
