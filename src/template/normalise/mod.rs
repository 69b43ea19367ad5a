//! From what a user writes (`.tmpl`) to the VM document that a driver would get, as `oned` 7.4 makes it.
//!
//! Images and networks live in `oned`'s database, so what they would add is not known here: values that the
//! writer put into the DISK or NIC stand in for theirs, the rest is assumed, and every assumption is a note.

mod disks;
mod machine;
mod members;
mod nics;
mod split;
mod targets;
#[cfg(test)]
mod tests;
mod write;

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::document::{DatastoreDocument, VmDocument};
use super::value::{Attribute, Level, Member, Origin, Template, Value};

/// What `oned` knows around a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// Id of the VM.
    pub vm_id: i64,
    /// Id of its owner.
    pub uid: i64,
    /// Id of its group.
    pub gid: i64,
    /// Name of its owner.
    pub uname: String,
    /// Name of its group.
    pub gname: String,
    /// When it was made, seconds since 1970.
    pub stime: i64,
    /// Name and id of the host it is placed on.
    pub host: (String, i64),
    /// Id of that host's cluster.
    pub cluster: i64,
    /// Its system datastore.
    pub datastore: SystemDatastore,
    /// `OS/MACHINE` of the defaults file, for a VM that names none.
    pub machine: Option<String>,
    /// `DEFAULT_DEVICE_PREFIX` of oned.conf.
    pub device_prefix: String,
    /// What UUID and MAC addresses are made from where nothing gives them.
    pub random: [u8; 16],
}

/// The system datastore that a VM is placed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemDatastore {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its folder, `/var/lib/one//datastores/100`.
    pub base_path: String,
    /// `TM_MAD`.
    pub tm_mad: String,
    /// `DISK_TYPE` of its template: `FILE`, `BLOCK`, `RBD`.
    pub disk_type: String,
    /// `DRIVER` of its template, if any.
    pub driver: Option<String>,
}

impl Default for Surroundings {
    /// VM 0 of oneadmin on host `localhost`, file-based system datastore 0, prefix `sd`, fresh random bytes.
    fn default() -> Self {
        Self {
            vm_id: 0,
            uid: 0,
            gid: 0,
            uname: "oneadmin".to_owned(),
            gname: "oneadmin".to_owned(),
            stime: 0,
            host: ("localhost".to_owned(), 0),
            cluster: 0,
            datastore: SystemDatastore {
                id: 0,
                name: "system".to_owned(),
                base_path: "/var/lib/one//datastores/0".to_owned(),
                tm_mad: "shared".to_owned(),
                disk_type: "FILE".to_owned(),
                driver: None,
            },
            machine: None,
            device_prefix: "sd".to_owned(),
            random: rand::random(),
        }
    }
}

/// A VM as `oned` would have it.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalised {
    /// What decides the domain. Values of the writer know their line; what was added has no file.
    pub vm: VmDocument,
    /// What `oned` keeps apart and no driver looks at.
    pub user: Template,
    /// What was assumed, for people.
    pub notes: Vec<String>,
    around: Surroundings,
}

/// Why `oned` would refuse the template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// {0} is missing
    #[error("{0} is missing")]
    Missing(&'static str),
    /// {at}: {name} is {text:?}, but must be {needs}
    #[error("{at}: {name} is {text:?}, but must be {needs}")]
    Value {
        /// Where it stands.
        at: Origin,
        /// The attribute, `DISK/SIZE`.
        name: String,
        /// What it holds.
        text: String,
        /// What it may hold.
        needs: &'static str,
    },
    /// {at}: {reason}
    #[error("{at}: {reason}")]
    Attribute {
        /// Where it stands.
        at: Origin,
        /// Why it is refused.
        reason: String,
    },
}

/// Makes the VM document of `template`.
///
/// # Errors
/// [`Refused`] when `oned` would refuse the template at instantiation, as far as that can be told from it.
pub fn normalise(template: &Template, around: &Surroundings) -> Result<Normalised, Refused> {
    let mut work = Work { around, t: Template::new(), user: Template::new(), notes: Vec::new() };
    let name = work.split(template)?;
    work.machine()?;
    work.disks()?;
    work.nics()?;
    work.pci();
    work.boot_order()?;
    work.targets()?;
    work.context();
    let Work { mut t, user, notes, .. } = work;
    t.attributes_mut().sort_by(|a, b| a.name.cmp(&b.name));
    for attribute in t.attributes_mut() {
        if let Value::Vector(members) = &mut attribute.value {
            members.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
    Ok(Normalised { vm: document(t, name, around), user, notes, around: around.clone() })
}

fn document(template: Template, name: Option<String>, around: &Surroundings) -> VmDocument {
    let single = |name: &str, value: &str| Attribute {
        name: name.to_owned(),
        value: Value::Single(value.to_owned()),
        origin: Origin::of(Level::Datastore),
    };
    let datastore = DatastoreDocument {
        base_path: around.datastore.base_path.clone(),
        template: [
            single("DISK_TYPE", &around.datastore.disk_type),
            single("TM_MAD", &around.datastore.tm_mad),
        ]
        .into_iter()
        .collect(),
    };
    VmDocument {
        id: around.vm_id,
        name: name.unwrap_or_else(|| format!("one-{}", around.vm_id)),
        uid: around.uid,
        gid: around.gid,
        uname: around.uname.clone(),
        gname: around.gname.clone(),
        stime: around.stime,
        ds_id: Some(around.datastore.id),
        hid: Some(around.host.1),
        cid: Some(around.cluster),
        template,
        datastore: Some(datastore),
    }
}

/// A template on its way.
struct Work<'a> {
    around: &'a Surroundings,
    /// `TEMPLATE`
    t: Template,
    /// `USER_TEMPLATE`
    user: Template,
    notes: Vec<String>,
}

impl Work<'_> {
    fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Adds an attribute of `oned`'s own.
    fn add(&mut self, name: &str, value: Value) {
        self.t.push(Attribute { name: name.to_owned(), value, origin: Origin::of(Level::Made) });
    }

    /// The members of every vector called `name`, with the vector's place.
    fn vectors_mut(&mut self, name: &str) -> impl Iterator<Item = (Origin, &mut Vec<Member>)> {
        let named = self.t.attributes_mut().iter_mut().filter(move |attribute| attribute.name == name);
        named.filter_map(|attribute| match &mut attribute.value {
            Value::Vector(members) => Some((attribute.origin.clone(), members)),
            Value::Single(_) => None,
        })
    }

    /// Bytes that stand for randomness, another set for each `purpose`.
    fn random(&self, purpose: &str) -> [u8; 16] {
        let mut hash = Sha256::new();
        hash.update(self.around.random);
        hash.update(purpose.as_bytes());
        let digest = hash.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        bytes
    }

    fn uuid(&self) -> String {
        let mut bytes = self.random("uuid");
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex = hexadecimal(&bytes);
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// The MAC address of NIC `id`: `02:00` and the address when it has one, else random behind `02:00`.
    fn mac(&self, id: usize, ip: Option<&str>) -> String {
        let random = self.random(&format!("mac{id}"));
        let tail = ip
            .and_then(|ip| ip.parse::<std::net::Ipv4Addr>().ok())
            .map_or([random[0], random[1], random[2], random[3]], |ip| ip.octets());
        format!("02:00:{:02x}:{:02x}:{:02x}:{:02x}", tail[0], tail[1], tail[2], tail[3])
    }
}

/// Bytes as hexadecimal digits.
fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
