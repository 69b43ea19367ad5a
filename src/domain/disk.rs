//! `disk` and `filesystem`, the context CD-ROM, and the controllers that disks need.

use super::context::{Context, Queues};
use super::iotune::iotune;
use super::provenance::Provenance;
use super::refusal::Refusal;
use super::source::{Disk, is_cdrom, kind};
use super::tree::Element;
use super::value::{Sourced, as_attribute, as_bare, because, given};
use crate::template::lookup::{At, Chain, Text, yes};
use crate::template::value::Vector;

/// The disks of a VM, and what they mean for other devices.
pub struct Disks<'a> {
    /// Everything in order: disks, SATA controllers, context, SCSI controller.
    pub elements: Vec<Element>,
    /// Whether a file system is shared with the host.
    pub filesystem: Option<Provenance>,
    /// Kind of the last disk; stands in for a display without TYPE in OpenNebula.
    pub last_kind: &'a str,
}

/// What runs on from disk to disk.
pub struct Running<'a> {
    queues: Queues<'a>,
    thread: i32,
    sata: u32,
    controllers: Vec<u32>,
}

impl<'a> Running<'a> {
    /// At the first disk.
    pub fn new(context: &Context<'a>) -> Self {
        Self {
            queues: Queues::new(context.all.member("FEATURES", "VIRTIO_BLK_QUEUES")),
            thread: 1,
            sata: u32::from(context.q35),
            controllers: Vec::new(),
        }
    }
}

/// All disks.
///
/// # Errors
/// [`Refusal`] of a disk without a TARGET or DISK_ID.
pub fn disks<'a>(context: &Context<'a>) -> Result<Disks<'a>, Refusal> {
    let mut running = Running::new(context);
    let mut disks = Disks { elements: Vec::new(), filesystem: None, last_kind: "" };
    for vector in context.vm.vectors("DISK") {
        disks.last_kind = kind(vector);
        // OpenNebula looks at DISK_TYPE first, and makes a network disk of a file system on RBD.
        let on_rbd = vector.get("DISK_TYPE") == Some("RBD");
        if disks.last_kind == "FILESYSTEM" && (context.mended || !on_rbd) {
            disks.elements.push(filesystem(context, vector));
            disks.filesystem = vector.text("TYPE").map(|text| Provenance::Given(given(text.at)));
            continue;
        }
        disks.elements.push(disk(context, vector, &mut running)?);
    }
    for index in &running.controllers {
        let index = Sourced::computed(index, "one controller for each SATA disk", []);
        disks.elements.push(Element::new("controller").attr("type", "sata").attr("index", index));
    }
    disks.elements.extend(context_cdrom(context)?);
    disks.elements.push(scsi_controller(context, running.thread));
    Ok(disks)
}

fn disk<'a>(
    context: &Context<'a>,
    vector: Vector<'a>,
    running: &mut Running<'a>,
) -> Result<Element, Refusal> {
    let target = target(vector)?;
    let id = disk_id(vector)?;
    let at = vector.text("DISK_ID").map(|text| Provenance::Given(given(text.at)));
    let disk = Disk::new(vector, id, context.disk_path(id, at));
    let bus = bus(context, disk.kind, target);
    let is_virtio = bus.as_ref().is_some_and(|bus| bus.value == "virtio");
    let thread = (is_virtio && context.threads.value > 0).then(|| iothread(context, vector, running));
    let mut element = head(context, &disk, target, bus.clone());
    element.push(driver(context, &disk, is_virtio, thread, &mut running.queues));
    element = element.child_if(iotune(vector, &context.site, context.mended));
    Ok(element.child_if(address(context, target, bus.as_ref(), running)))
}

/// The disk `vector` as it is attached to a running domain that has `threads` I/O threads; its data are at
/// `path`.
///
/// # Errors
/// [`Refusal::NoHotplug`] for a bus of which QEMU can't plug disks; [`Refusal::NoShare`] for a folder of the host.
pub fn attached<'a>(
    context: &Context<'a>,
    vector: Vector<'a>,
    path: Sourced,
    threads: i32,
) -> Result<Element, Refusal> {
    if kind(vector) == "FILESYSTEM" {
        return Err(Refusal::NoShare(vector_given(vector)));
    }
    let target = target(vector)?;
    let id = disk_id(vector)?;
    let mut disk = Disk::new(vector, id, path);
    disk.attached = true;
    let bus = hotplug_bus(context, &disk, target)?;
    let is_virtio = bus.value == "virtio";
    let is_disk = !disk.source(context).cdrom;
    let thread = (is_virtio && is_disk && threads > 0).then(|| hotplug_thread(context, vector, id, threads));
    let mut running = Running::new(context);
    let mut element = head(context, &disk, target, Some(bus.clone()));
    element.push(driver(context, &disk, is_virtio && is_disk, thread, &mut running.queues));
    element = element.child_if(iotune(vector, &context.site, context.mended));
    Ok(element.child_if(address(context, target, Some(&bus), &mut running)))
}

/// The bus of a target in a running domain. A CD-ROM on `sd…` is a SCSI one: QEMU can't plug SATA and IDE, which
/// are what it would be in a domain that is deployed with it.
fn hotplug_bus(context: &Context<'_>, disk: &Disk<'_>, target: Text<'_>) -> Result<Sourced, Refusal> {
    let cdrom = disk.source(context).cdrom;
    let made = |value: &str| Sourced::computed(value, "prefix of the target", [given(target.at)]);
    let bus = if target.value.starts_with("sd") {
        let site = context.all.member("OS", "SD_DISK_BUS").and_then(Text::filled);
        site.filter(|_| !cdrom).map_or_else(|| made("scsi"), as_attribute)
    } else if target.value.starts_with("vd") {
        made("virtio")
    } else {
        made(if context.q35 { "sata" } else { "ide" })
    };
    if matches!(bus.value.as_str(), "virtio" | "scsi" | "usb") {
        return Ok(bus);
    }
    Err(Refusal::NoHotplug {
        given: vector_given(disk.vector),
        target: target.value.to_owned(),
        bus: bus.value,
    })
}

/// The I/O thread of an attached disk: its own or kvmrc's, else by its number; at most the last of the domain.
fn hotplug_thread(context: &Context<'_>, vector: Vector<'_>, id: i64, threads: i32) -> Sourced {
    let own = vector.int("IOTHREAD", 0);
    let site = context.site.member_int("DISK", "IOTHREAD", 0);
    if let Some(chosen) = [own, site].into_iter().find(|thread| thread.found && thread.value > 0) {
        if chosen.value <= threads {
            return Sourced::number(&chosen);
        }
        return Sourced::computed(threads, "the last I/O thread of the domain", chosen.at.map(given));
    }
    let thread = id.rem_euclid(i64::from(threads)) + 1;
    Sourced::computed(
        thread,
        "DISK_ID over the I/O threads of the domain",
        vector.text("DISK_ID").map(|t| given(t.at)),
    )
}

/// TARGET; only a shared file system needs none.
fn target(vector: Vector<'_>) -> Result<Text<'_>, Refusal> {
    let none = Text {
        value: "",
        at: At { attribute: vector.name, index: Some(vector.index), member: None, origin: vector.origin },
    };
    match vector.filled_text("TARGET") {
        Some(target) => Ok(target),
        None if vector.get("TYPE") == Some("FILESYSTEM") => Ok(none),
        None => Err(Refusal::NoTarget(vector_given(vector))),
    }
}

/// Number of the disk. Without a good one OpenNebula goes on with that of the disk before, which is another
/// disk's data: refused here.
fn disk_id(vector: Vector<'_>) -> Result<i64, Refusal> {
    let id = vector.int("DISK_ID", 0);
    if id.found {
        return Ok(i64::from(id.value));
    }
    Err(Refusal::NoDiskId(vector_given(vector)))
}

/// Everything before `driver`.
fn head<'a>(context: &Context<'a>, disk: &Disk<'a>, target: Text<'a>, bus: Option<Sourced>) -> Element {
    let vector = disk.vector;
    let source = disk.source(context);
    let because_type =
        vector.text("TYPE").map_or(Provenance::BuiltIn, |text| Provenance::Given(given(text.at)));
    let from_type = |value: &str| Sourced { value: value.to_owned(), from: because_type.clone() };
    let mut element = Element::new("disk")
        .attr("type", from_type(source.kind))
        .attr("device", from_type(if source.cdrom { "cdrom" } else { "disk" }))
        .because(Provenance::Given(vector_given(vector)));
    for part in source.elements {
        element.push(part);
    }
    // Only where it is said: an attached disk is on SCSI also when no level names the bus.
    let site = context.all.member("OS", "SD_DISK_BUS");
    let on_scsi =
        bus.as_ref().is_some_and(|bus| bus.value == "scsi") && site.is_some_and(|site| site.value == "scsi");
    element.push(Element::new("target").attr("dev", as_attribute(target)).attr_if("bus", bus));
    if let Some(secret) = vector.filled_text("LUKS_SECRET") {
        let secret = Element::new("secret").attr("type", "passphrase").attr("uuid", as_attribute(secret));
        element.push(Element::new("encryption").attr("format", "luks").child(secret));
    }
    element = element.child_if(boot(context, vector));
    let flag = |name, good: bool| good.then(|| Element::new(name));
    let readonly = vector.get("READONLY").is_some_and(yes);
    element =
        element.child_if(flag("readonly", readonly).map(|e| e.because(because(&vector.flag("READONLY")))));
    let shareable = vector.get("SHAREABLE") == Some("YES");
    element =
        element.child_if(flag("shareable", shareable).map(|e| e.because(because(&vector.flag("SHAREABLE")))));
    if let Some(serial) = vector.filled_text("SERIAL") {
        if disk.kind == "BLOCK" && on_scsi {
            context.warn(format!("{} is left out: a SCSI block device brings its own", given(serial.at)));
        } else {
            element.push(Element::new("serial").text(as_bare(serial)));
        }
    }
    element
}

/// `boot` of a disk or an interface, from ORDER.
pub fn boot(context: &Context<'_>, vector: Vector<'_>) -> Option<Element> {
    let order = vector.int("ORDER", 0);
    if context.mended && order.found && order.value < 1 {
        context.warn(format!(
            "{}.ORDER is {}; a boot order begins at 1",
            vector_given(vector).attribute,
            order.value
        ));
        return None;
    }
    order.found.then(|| Element::new("boot").attr("order", Sourced::number(&order)))
}

/// Which bus a target means. OpenNebula decides by the kind, then by the first letter.
fn bus(context: &Context<'_>, kind: &str, target: Text<'_>) -> Option<Sourced> {
    let from = given(target.at);
    let of_machine = if context.q35 { "sata" } else { "ide" };
    let made = |value: &str, how| Sourced::computed(value, how, [from.clone()]);
    if is_cdrom(kind) {
        return Some(made(of_machine, "CD-ROM: SATA on q35 and virt, else IDE"));
    }
    match target.value.as_bytes().first() {
        Some(b's') => context.all.member("OS", "SD_DISK_BUS").and_then(Text::filled).map(as_attribute),
        Some(b'v') => Some(made("virtio", "first letter of the target")),
        _ => Some(made(of_machine, "other targets: SATA on q35 and virt, else IDE")),
    }
}

fn driver<'a>(
    context: &Context<'a>,
    disk: &Disk<'a>,
    is_virtio: bool,
    thread: Option<Sourced>,
    queues: &mut Queues<'a>,
) -> Element {
    let vector = disk.vector;
    let value = |name: &'static str| {
        vector.filled_text(name).or_else(|| context.site.member("DISK", name).and_then(Text::filled))
    };
    let kind = match value("DRIVER") {
        _ if disk.kind == "CDROM" => "raw".into(),
        Some(driver) => as_attribute(driver),
        None => "raw".into(),
    };
    let driver = Element::new("driver")
        .attr("name", "qemu")
        .attr("type", kind)
        .attr("cache", value("CACHE").map_or_else(|| "default".into(), as_attribute))
        .attr_if("io", value("IO").map(as_attribute))
        .attr_if("discard", value("DISCARD").map(as_attribute))
        .attr_if("iothread", thread);
    let queues = queues.of(context, vector.text("VIRTIO_BLK_QUEUES"));
    driver.attr_if("queues", queues.filter(|_| is_virtio))
}

/// The disk's own IOTHREAD when there is such a thread, else the next in turn.
fn iothread(context: &Context<'_>, vector: Vector<'_>, running: &mut Running<'_>) -> Sourced {
    let count = context.threads.value;
    let own = vector.int("IOTHREAD", 0);
    if own.found && (1..=count).contains(&own.value) {
        return Sourced::number(&own);
    }
    let thread = running.thread;
    running.thread = running.thread % count + 1;
    Sourced::computed(thread, "I/O threads in turn", context.threads.at.map(given))
}

/// `address` of a target `sd…`.
fn address(
    context: &Context<'_>,
    target: Text<'_>,
    bus: Option<&Sourced>,
    running: &mut Running<'_>,
) -> Option<Element> {
    let letters = target.value.strip_prefix("sd")?;
    let bus = bus.map_or("", |bus| bus.value.as_str());
    if bus == "sata" {
        let controller = running.sata;
        running.sata += 1;
        running.controllers.push(controller);
        let controller = Sourced::computed(controller, "a controller for each SATA disk", [given(target.at)]);
        return Some(drive(controller, "0".into()));
    }
    // A drive address with a target number is one of SCSI; OpenNebula writes it for IDE too.
    if context.mended && !matches!(bus, "" | "scsi") {
        return None;
    }
    let number = letter_number(letters);
    (0..256).contains(&number).then(|| {
        let number = Sourced::computed(number, "number of the target's letters", [given(target.at)]);
        drive("0".into(), number)
    })
}

fn drive(controller: Sourced, target: Sourced) -> Element {
    Element::new("address")
        .attr("type", "drive")
        .attr("controller", controller)
        .attr("bus", "0")
        .attr("target", target)
        .attr("unit", "0")
}

/// Position of the letters of a target, from 0: a 0, z 25, aa 26.
pub fn letter_number(letters: &str) -> i64 {
    let fold = |number: i64, byte: u8| number.saturating_mul(26).saturating_add(i64::from(byte) - 96);
    letters.bytes().fold(0, fold) - 1
}

/// `filesystem`: a folder of the host over virtiofs.
fn filesystem(context: &Context<'_>, vector: Vector<'_>) -> Element {
    let text = |name: &'static str| vector.text(name).map_or_else(|| "".into(), as_attribute);
    let map = |name: &'static str, key: &'static str| {
        let target = context.site.member("DISK", key).and_then(Text::filled);
        Element::new(name)
            .attr("start", "0")
            .attr("target", target.map_or_else(|| "100000".into(), as_attribute))
            .attr("count", "65536")
    };
    let readonly = vector.flag("READONLY");
    Element::new("filesystem")
        .attr("type", "mount")
        .attr("accessmode", "passthrough")
        .because(Provenance::Given(vector_given(vector)))
        .child(Element::new("driver").attr("type", "virtiofs").attr("queue", "1024"))
        .child(
            Element::new("binary")
                .attr("path", "/var/tmp/one/vmm/kvm/virtiofsd.sh")
                .attr("xattr", "on")
                .child(Element::new("cache").attr("mode", "always"))
                .child(Element::new("sandbox").attr("mode", "namespace")),
        )
        .child(Element::new("source").attr("dir", text("SOURCE")))
        .child(Element::new("target").attr("dir", text("MOUNT_TAG")))
        .child_if(readonly.value.then(|| Element::new("readonly").because(because(&readonly))))
        .child(Element::new("idmap").child(map("uid", "UID_MAP")).child(map("gid", "GID_MAP")))
}

/// The CD-ROM with the context of the VM.
fn context_cdrom(context: &Context<'_>) -> Result<Option<Element>, Refusal> {
    let Some(vector) = context.vm.vector("CONTEXT") else { return Ok(None) };
    let Some(target) = vector.filled_text("TARGET") else {
        context.warn("CONTEXT has no TARGET; the guest gets no context CD-ROM");
        return Ok(None);
    };
    let id = disk_id(vector)?;
    let at = vector.text("DISK_ID").map(|text| Provenance::Given(given(text.at)));
    let template = context.inputs.vm.datastore.as_ref().map(|datastore| &datastore.template);
    let kind = template.and_then(|template| Chain::new([template]).text("CONTEXT_DISK_TYPE"));
    let block = kind.filter(|kind| kind.value.eq_ignore_ascii_case("block"));
    let (kind, attribute) = match block {
        Some(text) => (Sourced { value: "block".to_owned(), from: Provenance::Given(given(text.at)) }, "dev"),
        None => ("file".into(), "file"),
    };
    let element = Element::new("disk")
        .attr("type", kind)
        .attr("device", "cdrom")
        .because(Provenance::Given(vector_given(vector)))
        .child(Element::new("source").attr(attribute, context.disk_path(id, at)))
        .child(
            Element::new("target")
                .attr("dev", as_attribute(target))
                .attr_if("bus", bus(context, "CDROM", target)),
        )
        .child(Element::new("readonly"))
        .child(Element::new("driver").attr("name", "qemu").attr("type", "raw").attr("cache", "none"));
    Ok(Some(element))
}

/// The SCSI controller that every domain has.
fn scsi_controller(context: &Context<'_>, thread: i32) -> Element {
    let mut queues = Queues::new(context.all.member("FEATURES", "VIRTIO_SCSI_QUEUES"));
    let mut driver =
        Element::new("driver").attr("queues", queues.of(context, None).unwrap_or_else(|| "1".into()));
    if context.threads.value > 0 {
        let how = "the I/O thread in turn after all disks";
        driver.set("iothread", Sourced::computed(thread, how, context.threads.at.map(given)));
    }
    Element::new("controller")
        .attr("type", "scsi")
        .attr("index", "0")
        .attr("model", "virtio-scsi")
        .child(driver)
}

/// The vector itself, as what gave an element.
pub fn vector_given(vector: Vector<'_>) -> super::provenance::Given {
    super::provenance::Given {
        attribute: format!("{}[{}]", vector.name, vector.index),
        origin: vector.origin.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_count_in_base_26() {
        for (letters, number) in
            [("a", 0), ("z", 25), ("aa", 26), ("iv", 255), ("iw", 256), ("", -1), ("A", -32), ("a1", -22)]
        {
            assert_eq!(letter_number(letters), number, "{letters}");
        }
        assert!(letter_number(&"z".repeat(200)) > 256);
    }
}
