//! `os` and `pm`: what boots, and the firmware.

use super::context::Context;
use super::provenance::Provenance;
use super::refusal::Refusal;
use super::tree::Element;
use super::value::{Sourced, as_attribute, as_bare, as_cdata, because, given, line_ends};
use crate::template::lookup::{Chain, Text, Typed};

/// The firmware of the VM.
pub struct Firmware<'a> {
    text: Option<Text<'a>>,
    secure: Typed<'a, bool>,
}

impl<'a> Firmware<'a> {
    pub fn of(context: &Context<'a>) -> Self {
        Self {
            text: context.all.member("OS", "FIRMWARE").and_then(Text::filled),
            secure: context.all.member_flag("OS", "FIRMWARE_SECURE"),
        }
    }

    /// libvirt picks one.
    pub fn is_automatic(&self) -> bool {
        self.text.is_some_and(|text| is_automatic(text.value))
    }

    /// It is this file.
    pub fn file(&self) -> Option<Text<'a>> {
        self.text.filter(|text| !is_automatic(text.value) && !text.value.eq_ignore_ascii_case("bios"))
    }

    /// Secure boot, whatever the firmware.
    pub fn secure(&self) -> Typed<'a, bool> {
        self.secure
    }
}

fn is_automatic(text: &str) -> bool {
    text.eq_ignore_ascii_case("uefi")
}

/// A firmware file must be one that the site lists.
///
/// # Errors
/// [`Refusal::Firmware`] when it isn't.
pub fn check_firmware(context: &Context<'_>) -> Result<(), Refusal> {
    let Some(text) = context.own.member("OS", "FIRMWARE").and_then(Text::filled) else { return Ok(()) };
    if is_automatic(text.value) || text.value.eq_ignore_ascii_case("bios") {
        return Ok(());
    }
    let list = context.site.text("OVMF_UEFIS").map_or("", |list| list.value);
    if list.split(' ').any(|known| known == text.value) {
        return Ok(());
    }
    Err(Refusal::Firmware {
        given: given(text.at),
        text: text.value.to_owned(),
        known: list.split_ascii_whitespace().map(str::to_owned).collect(),
    })
}

/// `os`.
///
/// # Errors
/// [`Refusal::NoArch`] when no level says the architecture.
pub fn os(context: &Context<'_>, firmware: &Firmware<'_>) -> Result<Element, Refusal> {
    let arch = context.arch.and_then(Text::filled).ok_or(Refusal::NoArch)?;
    let mut os = Element::new("os");
    if let Some(text) = firmware.text.filter(|_| firmware.is_automatic()) {
        os.set("firmware", Sourced { value: "efi".to_owned(), from: Provenance::Given(given(text.at)) });
    }
    let kind = Element::new("type")
        .attr("arch", as_attribute(arch))
        .attr_if("machine", context.machine.map(as_attribute))
        .text("hvm");
    os.push(kind);
    add_kernel(context, &mut os);
    if firmware.is_automatic() {
        let feature = Element::new("feature").attr("enabled", secure(firmware)).attr("name", "secure-boot");
        os.push(Element::new("firmware").child(feature));
    }
    if let Some(file) = firmware.file() {
        add_files(context, firmware, file, &mut os);
    }
    Ok(os)
}

fn secure(firmware: &Firmware<'_>) -> Sourced {
    let value = if firmware.secure.value { "yes" } else { "no" };
    Sourced { value: value.to_owned(), from: because(&firmware.secure) }
}

fn add_kernel(context: &Context<'_>, os: &mut Element) {
    let member = |name| context.all.member("OS", name).and_then(Text::filled);
    let Some(kernel) = member("KERNEL") else {
        if let Some(path) = member("BOOTLOADER").filter(|_| context.mended) {
            context.warn(format!("{} is left out: KVM has no boot loader on the host", given(path.at)));
            return;
        }
        os.children.extend(
            member("BOOTLOADER")
                .map(|path| super::tree::Node::Element(Element::new("bootloader").text(as_cdata(path)))),
        );
        return;
    };
    os.push(Element::new("kernel").text(as_cdata(kernel)));
    if let Some(initrd) = member("INITRD") {
        os.push(Element::new("initrd").text(as_cdata(initrd)));
    }
    let command = member("KERNEL_CMD");
    let line = match member("ROOT") {
        None => command.map(as_cdata),
        Some(root) => {
            let value = format!("root=/dev/{} {}", root.value, command.map_or("", |command| command.value));
            let value = if context.mended { value.trim_end() } else { &value };
            let from = [Some(root), command].into_iter().flatten().map(|text| given(text.at));
            Some(Sourced::computed(line_ends(value), "root=/dev/ROOT KERNEL_CMD", from))
        }
    };
    if let Some(line) = line {
        os.push(Element::new("cmdline").text(line));
    }
}

fn add_files(context: &Context<'_>, firmware: &Firmware<'_>, file: Text<'_>, os: &mut Element) {
    let loader = Element::new("loader")
        .attr("readonly", "yes")
        .attr("type", "pflash")
        .attr("secure", secure(firmware))
        .text(as_bare(file));
    os.push(loader);
    let path = format!("{}/{}_VARS.fd", context.dir.value, context.inputs.vm.name);
    let path = Sourced::computed(path, "folder of the VM, NAME, _VARS.fd", []);
    let format = context
        .all
        .member("OS", "FIRMWARE_FORMAT")
        .filter(|format| format.value.eq_ignore_ascii_case("qcow2"))
        .map(|format| Sourced { value: "qcow2".to_owned(), from: Provenance::Given(given(format.at)) });
    os.push(Element::new("nvram").attr_if("format", format).text(path));
}

/// `pm`: no suspend with a firmware file.
pub fn pm(context: &Context<'_>, firmware: &Firmware<'_>) -> Option<Element> {
    let file = firmware.file().filter(|_| !context.is_aarch64())?;
    let off = |name: &'static str| Element::new(name).attr("enabled", "no");
    let pm = Element::new("pm").child(off("suspend-to-disk")).child(off("suspend-to-mem"));
    Some(pm.because(Provenance::Given(given(file.at))))
}

/// `OS.UUID` of the VM.
pub fn uuid<'a>(context: &Context<'a>) -> Option<Text<'a>> {
    Chain::new([context.vm]).member("OS", "UUID").and_then(Text::filled)
}
