//! `memoryBacking`, `features`, `clock`, the guest agent's channel.

use super::context::Context;
use super::markup;
use super::os::Firmware;
use super::provenance::Provenance;
use super::refusal::Refusal;
use super::tree::Element;
use super::value::{Sourced, as_attribute, because};
use crate::template::lookup::{Text, Typed};

/// `memoryBacking`: huge pages, or memory that can be shared with a file system's server.
pub fn memory_backing(pages: Option<Sourced>, filesystem: Option<Provenance>) -> Option<Element> {
    let mut backing = Element::new("memoryBacking");
    match pages {
        Some(pages) => {
            backing.push(Element::new("hugepages").child(Element::new("page").attr("size", pages)));
        }
        None => {
            let from = filesystem.clone()?;
            backing.push(Element::new("source").attr("type", "memfd").because(from));
        }
    }
    if let Some(from) = filesystem {
        backing.push(Element::new("access").attr("mode", "shared").because(from));
    }
    Some(backing)
}

/// `features`.
///
/// # Errors
/// [`Refusal`] of `HYPERV_OPTIONS` that are no markup.
pub fn features(context: &Context<'_>, firmware: &Firmware<'_>) -> Result<Option<Element>, Refusal> {
    let flag = |name| context.all.member_flag("FEATURES", name);
    let (acpi, pae, apic, hyperv) = (flag("ACPI"), flag("PAE"), flag("APIC"), flag("HYPERV"));
    let secure = firmware.secure();
    let gic = context.all.member("FEATURES", "GIC").and_then(Text::filled);
    if ![&acpi, &pae, &apic, &hyperv, &secure].iter().any(|flag| flag.value) && gic.is_none() {
        return Ok(None);
    }
    let simple = |name: &'static str, flag: &Typed<'_, bool>| {
        flag.value.then(|| Element::new(name).because(because(flag)))
    };
    let on = |name: &'static str, flag: &Typed<'_, bool>| {
        let state = Sourced { value: "on".to_owned(), from: because(flag) };
        flag.value.then(|| Element::new(name).attr("state", state))
    };
    let uefi = firmware.file().is_some() || (context.mended && firmware.is_automatic());
    let mut features = Element::new("features").child_if(simple("pae", &pae));
    if !context.is_aarch64() || uefi {
        features = features.child_if(simple("acpi", &acpi));
    }
    features = features.child_if(simple("apic", &apic));
    if hyperv.value {
        let mut element = Element::new("hyperv").because(because(&hyperv));
        if let Some(options) = context.all.text("HYPERV_OPTIONS") {
            element.children = markup::nodes(options)?;
        }
        features.push(element);
    }
    features = features.child_if(on("smm", &secure));
    features = features.child_if(gic.map(|gic| Element::new("gic").attr("version", as_attribute(gic))));
    Ok(Some(features.child_if(on("ras", &flag("RAS")))))
}

/// `clock`.
///
/// # Errors
/// [`Refusal`] of `HYPERV_TIMERS` that are no markup.
pub fn clock(context: &Context<'_>) -> Result<Option<Element>, Refusal> {
    let localtime = context.all.member_flag("FEATURES", "LOCALTIME");
    let hyperv = context.all.member_flag("FEATURES", "HYPERV");
    if !localtime.value && !hyperv.value {
        return Ok(None);
    }
    let (word, decides) = if localtime.value { ("localtime", &localtime) } else { ("utc", &hyperv) };
    let offset = Sourced { value: word.to_owned(), from: because(decides) };
    let mut clock = Element::new("clock").attr("offset", offset);
    if let Some(timers) = context.all.text("HYPERV_TIMERS") {
        clock.children = markup::nodes(timers)?;
    }
    Ok(Some(clock))
}

/// The channel of the guest agent, in a `devices` of its own.
pub fn guest_agent(context: &Context<'_>) -> Option<Element> {
    let agent = context.all.member_flag("FEATURES", "GUEST_AGENT");
    let channel = Element::new("channel")
        .attr("type", "unix")
        .because(because(&agent))
        .child(Element::new("source").attr("mode", "bind"))
        .child(Element::new("target").attr("type", "virtio").attr("name", "org.qemu.guest_agent.0"));
    agent.value.then(|| Element::new("devices").because(because(&agent)).child(channel))
}
