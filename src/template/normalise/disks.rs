//! DISK, and the order of booting.

use std::collections::HashMap;

use super::members::{fill, filled, place, remove, set};
use super::{Refused, Work};
use crate::template::value::{Member, Origin};

/// What a DISK is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// From an image.
    Image,
    /// From an image of a CD.
    Cdrom,
    /// From an image that is a folder for the guest: it has no target.
    Filesystem,
    /// Made empty, gone with the VM.
    Volatile,
}

/// What `members` of a DISK make it; `None` when `oned` knows no such disk.
pub(super) fn form(members: &[Member]) -> Option<Form> {
    let kind = filled(members, "TYPE").unwrap_or("");
    if filled(members, "IMAGE").is_some() || filled(members, "IMAGE_ID").is_some() {
        return Some(match kind {
            "FILESYSTEM" => Form::Filesystem,
            cd if cd.ends_with("CDROM") => Form::Cdrom,
            _ => Form::Image,
        });
    }
    (kind.eq_ignore_ascii_case("fs") || kind.eq_ignore_ascii_case("swap")).then_some(Form::Volatile)
}

impl Work<'_> {
    pub(super) fn disks(&mut self) -> Result<(), Refused> {
        let around = self.around;
        let mut notes = Vec::new();
        for (id, (origin, members)) in self.vectors_mut("DISK").enumerate() {
            remove(members, &["ORDER"]);
            set(members, "DISK_ID", id.to_string());
            match form(members) {
                None => return Err(unknown(members, &origin)),
                Some(Form::Volatile) => volatile(members, &origin, around)?,
                Some(form) => image(members, form, id, &mut notes),
            }
            if filled(members, "SERIAL").is_some_and(|serial| serial.eq_ignore_ascii_case("auto")) {
                set(members, "SERIAL", format!("{}-{id}", around.vm_id));
            }
        }
        self.notes.append(&mut notes);
        Ok(())
    }

    /// Turns OS/BOOT into ORDER of disks and interfaces.
    pub(super) fn boot_order(&mut self) -> Result<(), Refused> {
        for name in ["NIC", "PCI"] {
            self.vectors_mut(name).for_each(|(_, members)| remove(members, &["ORDER"]));
        }
        let Some(os) = self.t.vector("OS") else { return Ok(()) };
        let Some(boot) = os.member("BOOT").filter(|boot| !boot.value.is_empty()).cloned() else {
            return Ok(());
        };
        let mut orders: HashMap<(&str, String), usize> = HashMap::new();
        for (number, word) in boot.value.split(',').enumerate() {
            let lower = word.to_ascii_lowercase();
            let parsed = ["disk", "nic"].into_iter().find_map(|kind| {
                let id = lower.strip_prefix(kind)?;
                id.parse::<u32>().ok().map(|id| (kind, id.to_string()))
            });
            let known = parsed.filter(|key| self.has_device(key));
            let Some(key) = known else {
                let reason =
                    format!("OS/BOOT names {word:?}; only disk<n> and nic<n> of this VM can be booted from");
                return Err(Refused::Attribute { at: boot.origin, reason });
            };
            orders.entry(key).or_insert(number + 1);
        }
        for (vector, kind, id) in
            [("DISK", "disk", "DISK_ID"), ("NIC", "nic", "NIC_ID"), ("PCI", "nic", "NIC_ID")]
        {
            for (_, members) in self.vectors_mut(vector) {
                let key = (kind, filled(members, id).unwrap_or("").to_owned());
                if let Some(order) = orders.get(&key) {
                    set(members, "ORDER", order.to_string());
                }
            }
        }
        Ok(())
    }

    fn has_device(&self, (kind, id): &(&str, String)) -> bool {
        let vectors: &[(&str, &str)] = match *kind {
            "disk" => &[("DISK", "DISK_ID")],
            _ => &[("NIC", "NIC_ID"), ("PCI", "NIC_ID")],
        };
        vectors.iter().any(|(vector, key)| self.t.vectors(vector).any(|found| found.get(key) == Some(id)))
    }

    /// CONTEXT: its disk id, and what it says of the network.
    pub(super) fn context(&mut self) {
        let disks = self.t.vectors("DISK").count();
        let addresses = self.addresses();
        for (_, members) in self.vectors_mut("CONTEXT") {
            set(members, "DISK_ID", disks.to_string());
            if super::members::yes(members, "NETWORK") {
                for (name, value) in &addresses {
                    fill(members, name, value.clone());
                }
            }
        }
    }
}

fn unknown(members: &[Member], origin: &Origin) -> Refused {
    let reason = match filled(members, "TYPE") {
        Some(kind) => format!(
            "a DISK without an image is of TYPE fs or swap; {kind:?} is unknown to OpenNebula (give IMAGE or \
             IMAGE_ID for an image)"
        ),
        None => "a DISK needs IMAGE, IMAGE_ID, or TYPE fs or swap with a SIZE".to_owned(),
    };
    Refused::Attribute { at: place(members, "TYPE", origin), reason }
}

fn volatile(members: &mut Vec<Member>, origin: &Origin, around: &super::Surroundings) -> Result<(), Refused> {
    let size = filled(members, "SIZE").unwrap_or("");
    if !size.parse::<i64>().is_ok_and(|size| size > 0) {
        return Err(Refused::Value {
            at: place(members, "SIZE", origin),
            name: "DISK/SIZE".to_owned(),
            text: size.to_owned(),
            needs: "a whole number of MiB above 0",
        });
    }
    let swap = filled(members, "TYPE").is_some_and(|kind| kind.eq_ignore_ascii_case("swap"));
    let own = filled(members, "FORMAT").map(str::to_owned);
    let format = if swap { None } else { around.datastore.driver.clone().or(own) };
    let format = format.unwrap_or_else(|| "raw".to_owned());
    set(members, "DRIVER", format.clone());
    set(members, "FORMAT", format);
    set(members, "DATASTORE", around.datastore.name.clone());
    set(members, "DATASTORE_ID", around.datastore.id.to_string());
    set(members, "TM_MAD", around.datastore.tm_mad.clone());
    set(members, "DISK_TYPE", around.datastore.disk_type.clone());
    set(members, "CLUSTER_ID", around.cluster.to_string());
    Ok(())
}

/// What the image would give, where the writer did not: raw files that are cloned.
fn image(members: &mut Vec<Member>, form: Form, id: usize, notes: &mut Vec<String>) {
    let mut assumed = Vec::new();
    let mut assume = |members: &mut Vec<Member>, name: &str, value: &str| {
        if filled(members, name).is_none() {
            set(members, name, value);
            assumed.push(format!("{name}={value}"));
        }
    };
    assume(members, "TYPE", "FILE");
    if form != Form::Filesystem {
        assume(members, "DRIVER", "raw");
    }
    let driver = filled(members, "DRIVER").map(str::to_owned);
    if let Some(driver) = driver {
        fill(members, "FORMAT", driver);
    }
    if form == Form::Cdrom {
        set(members, "READONLY", "YES");
        set(members, "CLONE", "NO");
        set(members, "SAVE", "NO");
    } else {
        let persistent = super::members::yes(members, "PERSISTENT");
        fill(members, "CLONE", if persistent { "NO" } else { "YES" });
        fill(members, "SAVE", if persistent { "YES" } else { "NO" });
        fill(members, "READONLY", "NO");
    }
    if !assumed.is_empty() {
        let image = filled(members, "IMAGE").or_else(|| filled(members, "IMAGE_ID")).unwrap_or("");
        notes.push(format!(
            "DISK {id}: what the image {image:?} is, only OpenNebula knows; assumed {} (write it into the DISK to \
             change it)",
            assumed.join(", ")
        ));
    }
}
