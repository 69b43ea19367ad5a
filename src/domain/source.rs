//! What a disk is, and where its data come from.

use std::net::Ipv6Addr;

use super::context::Context;
use super::provenance::{Given, Provenance};
use super::tree::Element;
use super::value::{Sourced, as_attribute, attribute_meaning, given};
use crate::template::lookup::Text;
use crate::template::value::Vector;

/// A DISK and what its TYPE means.
pub struct Disk<'a> {
    /// The attribute.
    pub vector: Vector<'a>,
    /// TYPE, or DISK_TYPE for a volatile disk.
    pub kind: &'a str,
    /// DISK_TYPE.
    pub disk_type: &'a str,
    /// Number of the disk, part of its path.
    pub id: i64,
    /// Path of the data on the host, where it is a file or a block device.
    pub path: Sourced,
    /// Whether it is attached to a running domain; DISK_TYPE then has a say for more kinds.
    pub attached: bool,
}

/// Where a disk's data are.
pub struct Source {
    /// `disk/@type`.
    pub kind: &'static str,
    /// Whether the guest sees a CD-ROM.
    pub cdrom: bool,
    /// `source`, and `auth` behind it.
    pub elements: Vec<Element>,
}

struct Network<'a> {
    protocol: &'static str,
    hosts: Option<Text<'a>>,
    port: Option<&'static str>,
    transport: Option<&'static str>,
}

/// Whether `kind` is a CD-ROM for the choice of a bus.
pub fn is_cdrom(kind: &str) -> bool {
    matches!(kind, "CDROM" | "BLOCK_CDROM" | "RBD_CDROM" | "SHEEPDOG_CDROM" | "GLUSTER_CDROM")
}

/// TYPE, or DISK_TYPE for a volatile disk.
pub fn kind(disk: Vector<'_>) -> &str {
    let kind = disk.get("TYPE").unwrap_or("");
    if kind.eq_ignore_ascii_case("swap") || kind.eq_ignore_ascii_case("fs") {
        return disk.get("DISK_TYPE").unwrap_or("");
    }
    kind
}

impl<'a> Disk<'a> {
    /// What `vector` is at deployment; `path` is where the data are if they are local.
    pub fn new(vector: Vector<'a>, id: i64, path: Sourced) -> Self {
        let disk_type = vector.get("DISK_TYPE").unwrap_or("");
        Self { vector, kind: kind(vector), disk_type, id, path, attached: false }
    }

    fn given(&self, name: &'a str) -> Option<Text<'a>> {
        self.vector.filled_text(name)
    }

    fn is_clone(&self) -> bool {
        self.vector.get("CLONE") == Some("YES")
    }

    /// The source by the first rule that fits.
    pub fn source(&self, context: &Context<'a>) -> Source {
        let vm = context.inputs.vm.id;
        match self.kind {
            "BLOCK" => self.local("block", false, "dev"),
            "BLOCK_CDROM" => self.local("block", true, "dev"),
            "ISCSI" => self.iscsi(context),
            "RBD" | "RBD_CDROM" => self.rbd(context, vm),
            _ if self.is_other_rbd() => self.rbd(context, vm),
            "SHEEPDOG" | "SHEEPDOG_CDROM" => self.sheepdog(context, vm),
            "GLUSTER" | "GLUSTER_CDROM" => self.gluster(context, vm),
            "CDROM" if self.disk_type == "BLOCK" => self.local("block", true, "dev"),
            "CDROM" => self.local("file", true, "file"),
            // A volume of a kind that has no place of its own; a block device opened as a file is refused by QEMU.
            _ if self.attached && self.disk_type == "BLOCK" => self.local("block", false, "dev"),
            _ if self.attached && self.disk_type.starts_with("SHEEPDOG") => self.sheepdog(context, vm),
            _ if self.attached && self.disk_type == "GLUSTER" => self.gluster(context, vm),
            _ => self.local("file", false, "file"),
        }
    }

    /// DISK_TYPE is RBD and TYPE is none of those that have their own place.
    fn is_other_rbd(&self) -> bool {
        self.disk_type == "RBD"
    }

    fn local(&self, kind: &'static str, cdrom: bool, attribute: &'static str) -> Source {
        let source = Element::new("source").attr(attribute, self.path.clone());
        Source { kind, cdrom, elements: vec![source] }
    }

    fn iscsi(&self, context: &Context<'a>) -> Source {
        let name = self.given("ISCSI_IQN").or_else(|| self.vector.text("SOURCE")).map(as_attribute);
        let network = Network {
            protocol: "iscsi",
            hosts: self.given("ISCSI_HOST"),
            port: Some("3260"),
            transport: None,
        };
        let mut elements = vec![network.source(context, name.unwrap_or_else(|| "".into()))];
        elements.extend(auth("iscsi", "usage", self.given("ISCSI_USER"), self.given("ISCSI_USAGE")));
        Source { kind: "network", cdrom: false, elements }
    }

    fn rbd(&self, context: &Context<'a>, vm: i64) -> Source {
        let source = self.given("SOURCE");
        let pool = self.given("POOL_NAME");
        let mut name = match source {
            Some(source) => attribute_meaning(source.value),
            None => {
                format!("{}/one-sys", pool.map_or("one".to_owned(), |pool| attribute_meaning(pool.value)))
            }
        };
        let name = if self.is_clone() || source.is_none() {
            name.push_str(&format!("-{vm}-{}", self.id));
            Sourced::computed(
                name,
                "SOURCE or POOL_NAME/one-sys, -VMID-DISK_ID",
                self.name_from(source.or(pool)),
            )
        } else {
            source.map_or_else(|| "".into(), as_attribute)
        };
        let network =
            Network { protocol: "rbd", hosts: self.given("CEPH_HOST"), port: Some("6789"), transport: None };
        let mut elements = vec![network.source(context, name)];
        elements.extend(auth("ceph", "uuid", self.given("CEPH_USER"), self.given("CEPH_SECRET")));
        Source { kind: "network", cdrom: self.kind == "RBD_CDROM", elements }
    }

    fn sheepdog(&self, context: &Context<'a>, vm: i64) -> Source {
        let source = self.vector.text("SOURCE");
        let name = if self.is_clone() {
            let value = attribute_meaning(source.map_or("", |source| source.value));
            Sourced::computed(
                format!("{value}-{vm}-{}", self.id),
                "SOURCE-VMID-DISK_ID",
                self.name_from(source),
            )
        } else {
            source.map_or_else(|| "".into(), as_attribute)
        };
        let hosts = self.given("SHEEPDOG_HOST");
        let network = Network { protocol: "sheepdog", hosts, port: None, transport: Some("tcp") };
        let cdrom = self.kind == "SHEEPDOG_CDROM";
        Source { kind: "network", cdrom, elements: vec![network.source(context, name)] }
    }

    fn gluster(&self, context: &Context<'a>, vm: i64) -> Source {
        let volume = self.vector.text("GLUSTER_VOLUME");
        let source = self.vector.text("SOURCE");
        let place = if self.is_clone() {
            format!("{vm}/disk.{}", self.id)
        } else {
            let path = source.map_or("", |source| source.value);
            attribute_meaning(path.split('/').rfind(|part| !part.is_empty()).unwrap_or(""))
        };
        let name = format!("{}/{place}", attribute_meaning(volume.map_or("", |volume| volume.value)));
        let from = self.name_from(volume).into_iter().chain(self.name_from(source));
        let name = Sourced::computed(name, "GLUSTER_VOLUME / VMID/disk.DISK_ID or last part of SOURCE", from);
        let hosts = self.given("GLUSTER_HOST");
        let network = Network { protocol: "gluster", hosts, port: Some("24007"), transport: Some("tcp") };
        let cdrom = self.kind == "GLUSTER_CDROM";
        Source { kind: "network", cdrom, elements: vec![network.source(context, name)] }
    }

    fn name_from(&self, text: Option<Text<'_>>) -> Option<Given> {
        text.map(|text| given(text.at))
    }
}

impl Network<'_> {
    fn source(&self, context: &Context<'_>, name: Sourced) -> Element {
        let mut source = Element::new("source").attr("protocol", self.protocol).attr("name", name);
        let Some(hosts) = self.hosts else { return source };
        let from = || Provenance::Given(given(hosts.at));
        for item in hosts.value.split(' ').filter(|item| !item.is_empty()) {
            let Some((name, port)) = split_host(context, item) else { continue };
            let mut host = Element::new("host")
                .attr("name", Sourced { value: attribute_meaning(name), from: from() })
                .because(from());
            match (port, self.port) {
                (Some(port), _) => host.set("port", Sourced { value: attribute_meaning(port), from: from() }),
                (None, Some(port)) => host.set("port", port),
                (None, None) => {}
            }
            if let Some(transport) = self.transport {
                host.set("transport", transport);
            }
            source.push(host);
        }
        source
    }
}

/// `name[:port]`. OpenNebula splits IPv6 addresses at their colons too; mended they are `[ADDRESS]:port` or the
/// bare address.
fn split_host<'a>(context: &Context<'_>, item: &'a str) -> Option<(&'a str, Option<&'a str>)> {
    if context.mended {
        if item.parse::<Ipv6Addr>().is_ok() {
            return Some((item, None));
        }
        if let Some((address, rest)) = item.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            && address.parse::<Ipv6Addr>().is_ok()
        {
            return Some((address, rest.strip_prefix(':').filter(|port| !port.is_empty())));
        }
    }
    let mut pieces = item.split(':').filter(|piece| !piece.is_empty());
    Some((pieces.next()?, pieces.next()))
}

fn auth(
    kind: &'static str,
    key: &'static str,
    user: Option<Text<'_>>,
    secret: Option<Text<'_>>,
) -> Option<Element> {
    let (user, secret) = (user?, secret?);
    let secret = Element::new("secret").attr("type", kind).attr(key, as_attribute(secret));
    Some(Element::new("auth").attr("username", as_attribute(user)).child(secret))
}
