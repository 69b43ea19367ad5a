//! Encryption of the memory, RAW, metadata.

use super::context::Context;
use super::markup;
use super::memory::Memory;
use super::provenance::{Given, Provenance};
use super::refusal::Refusal;
use super::tree::{Element, Node};
use super::value::{Sourced, given, line_ends};
use crate::template::lookup::Text;

/// The namespace of the metadata.
const METADATA: &str = "http://opennebula.org/xmlns/libvirt/1.0";

/// `launchSecurity` and `memtune` of each MEMORY_ENCRYPTION of a kind that is known.
pub fn encryption(context: &Context<'_>, memory: &Memory<'_>) -> Vec<Element> {
    let mut elements = Vec::new();
    for vector in context.vm.vectors("MEMORY_ENCRYPTION") {
        let Some(kind) = vector.text("TYPE") else { continue };
        if !kind.value.contains("SEV") || kind.value.eq_ignore_ascii_case("SEV-SNP") {
            context.warn(format!("{} is {:?}; only SEV and SEV-ES are known", given(kind.at), kind.value));
            continue;
        }
        if context.mended && !elements.is_empty() {
            context.warn(format!("{} is left out: a domain has one kind of encryption", given(kind.at)));
            continue;
        }
        let policy = if kind.value.eq_ignore_ascii_case("SEV-ES") { "0x00000007" } else { "0x00000003" };
        let policy = Sourced { value: policy.to_owned(), from: Provenance::Given(given(kind.at)) };
        let offset = context.own.int("MEMORY_TUNE_OFFSET");
        let from = std::iter::once(memory.at.clone()).chain(offset.at.map(given));
        let limit = number(context, true, memory.mib + i64::from(offset.value));
        let limit = Sourced::computed(limit, "MEMORY + MEMORY_TUNE_OFFSET", from);
        elements.push(
            Element::new("launchSecurity").attr("type", "sev").child(Element::new("policy").text(policy)),
        );
        elements
            .push(Element::new("memtune").child(Element::new("hard_limit").attr("unit", "MiB").text(limit)));
    }
    elements
}

/// OpenNebula writes the numbers behind an encryption in hexadecimal, which libvirt reads as decimal.
fn number(context: &Context<'_>, encrypted: bool, number: i64) -> String {
    if encrypted && !context.mended { format!("{number:x}") } else { number.to_string() }
}

/// As [`number`] for what OpenNebula keeps in 32 bits.
fn short_number(context: &Context<'_>, encrypted: bool, number: i64) -> String {
    match i32::try_from(number) {
        Ok(number) if encrypted && !context.mended => format!("{number:x}"),
        _ => self::number(context, encrypted, number),
    }
}

/// RAW of the VM for KVM, then the default RAW.
///
/// # Errors
/// [`Refusal::Markup`] when one is not well-formed.
pub fn raw(context: &Context<'_>) -> Result<Vec<Node>, Refusal> {
    let mut nodes = Vec::new();
    for vector in context.vm.vectors("RAW") {
        if !vector.get("TYPE").is_some_and(|kind| kind.eq_ignore_ascii_case("kvm")) {
            continue;
        }
        if let Some(data) = vector.text("DATA") {
            nodes.extend(markup::nodes(data)?);
        }
    }
    if let Some(data) = context.site.text("RAW").and_then(Text::filled) {
        nodes.extend(markup::nodes(data)?);
    }
    Ok(nodes)
}

/// `metadata`: what OpenNebula wants to find again in the domain.
pub fn metadata(context: &Context<'_>, encrypted: bool) -> Element {
    let vm = context.inputs.vm;
    let options = context.inputs.options;
    let document = |value: String, name: &'static str| Sourced::computed(value, name, []);
    let text = |value: &str, name: &'static str| document(line_ends(value).into_owned(), name);
    let short = |value: i64, name: &'static str| document(short_number(context, encrypted, value), name);
    let long = |value: i64, name: &'static str| document(number(context, encrypted, value), name);
    let one = |name: &'static str, value: Sourced| Element::new(name).text(value);
    let content = Element::new("one:vm")
        .attr("xmlns:one", METADATA)
        .child(one("one:system_datastore", context.dir.clone()))
        .child(one("one:name", text(&vm.name, "NAME of the VM")))
        .child(one("one:uname", text(&vm.uname, "UNAME of the VM")))
        .child(one("one:uid", short(vm.uid, "UID of the VM")))
        .child(one("one:gname", text(&vm.gname, "GNAME of the VM")))
        .child(one("one:gid", short(vm.gid, "GID of the VM")))
        .child(one("one:opennebula_version", Sourced::option(&options.opennebula_version, "option")))
        .child(one("one:stime", long(vm.stime, "STIME of the VM")))
        .child(one("one:deployment_time", long(options.now, "time of the deployment")))
        .child(one("one:pci_devices", pci_devices(context)));
    Element::new("metadata").child(content)
}

fn pci_devices(context: &Context<'_>) -> Sourced {
    let mut from: Vec<Given> = Vec::new();
    let mut devices = Vec::new();
    for pci in context.vm.vectors("PCI") {
        let part = |key| pci.get(key).unwrap_or("").to_lowercase();
        devices.push(format!("{}:{}:{}", part("VENDOR"), part("DEVICE"), part("CLASS")));
        from.push(super::disk::vector_given(pci));
    }
    let value = super::value::bare_meaning(&devices.join(",")).into_owned();
    Sourced::computed(value, "VENDOR:DEVICE:CLASS of each PCI", from)
}
