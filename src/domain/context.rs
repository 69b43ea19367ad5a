//! What all parts of a domain look at.

use std::cell::RefCell;

use super::options::{Inputs, Style};
use super::provenance::Provenance;
use super::refusal::Refusal;
use super::value::{Sourced, attribute_meaning, given};
use crate::template::lookup::{Chain, Text, Typed};
use crate::template::{Template, number};

/// Where datastores are when nothing says it: oned's folder and the word, doubled slash included.
const DATASTORES: &str = "/var/lib/one//datastores";

pub struct Context<'a> {
    pub inputs: Inputs<'a>,
    /// The VM's own template.
    pub vm: &'a Template,
    /// VM, host, cluster, defaults file.
    pub all: Chain<'a>,
    /// Host, cluster, defaults file.
    pub site: Chain<'a>,
    /// Cluster, defaults file.
    pub cluster: Chain<'a>,
    /// VM, defaults file.
    pub own: Chain<'a>,
    /// Whether quirks are mended.
    pub mended: bool,
    /// `OS.ARCH`; may be missing or empty here.
    pub arch: Option<Text<'a>>,
    /// `OS.MACHINE`, if set.
    pub machine: Option<Text<'a>>,
    /// Whether the machine has PCI Express and SATA: `q35` or `virt` is part of its name.
    pub q35: bool,
    /// `VCPU`, else `VCPU_MAX`: what "auto" queues use.
    pub vcpu: Option<Text<'a>>,
    /// `VCPU_MAX`, if set.
    pub vcpu_max: Option<Text<'a>>,
    /// `FEATURES.IOTHREADS`.
    pub threads: Typed<'a, i32>,
    /// Folder of the VM in the system datastore.
    pub dir: Sourced,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Context<'a> {
    /// What can be said before any part is made.
    ///
    /// # Errors
    /// [`Refusal::NotPlaced`] when the system datastore isn't known.
    pub fn new(inputs: Inputs<'a>) -> Result<Self, Refusal> {
        let dir = directory(&inputs)?;
        Ok(Self::within(inputs, dir))
    }

    /// As [`Context::new`] with the VM's folder given.
    pub fn within(inputs: Inputs<'a>, dir: Sourced) -> Self {
        let vm = &inputs.vm.template;
        let all = Chain::new([vm, inputs.host, inputs.cluster, inputs.defaults]);
        let machine = all.member("OS", "MACHINE").and_then(Text::filled);
        let vcpu_max = all.text("VCPU_MAX").and_then(Text::filled);
        Self {
            inputs,
            vm,
            site: Chain::new([inputs.host, inputs.cluster, inputs.defaults]),
            cluster: Chain::new([inputs.cluster, inputs.defaults]),
            own: Chain::new([vm, inputs.defaults]),
            mended: inputs.options.style == Style::Mended,
            arch: all.member("OS", "ARCH"),
            machine,
            q35: machine.is_some_and(|text| text.value.contains("q35") || text.value.contains("virt")),
            vcpu: all.text("VCPU").and_then(Text::filled).or(vcpu_max),
            vcpu_max,
            threads: all.member_int("FEATURES", "IOTHREADS", 0),
            all,
            dir,
            warnings: RefCell::default(),
        }
    }

    /// Notes what was left out and why.
    pub fn warn(&self, warning: impl Into<String>) {
        self.warnings.borrow_mut().push(warning.into());
    }

    /// What was noted.
    pub fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner()
    }

    /// Whether `OS.ARCH` is 64-bit ARM.
    pub fn is_aarch64(&self) -> bool {
        self.arch.is_some_and(|text| text.value == "aarch64")
    }

    /// Path of disk `id` in the system datastore.
    pub fn disk_path(&self, id: i64, at: Option<Provenance>) -> Sourced {
        let mut from = match &self.dir.from {
            Provenance::Computed { from, .. } => from.clone(),
            _ => Vec::new(),
        };
        if let Some(Provenance::Given(given)) = at {
            from.push(given);
        }
        Sourced::computed(format!("{}/disk.{id}", self.dir.value), "the disk in the system datastore", from)
    }
}

/// Location of datastores, id of the system datastore, id of the VM.
fn directory(inputs: &Inputs<'_>) -> Result<Sourced, Refusal> {
    if let Some(placed) = &inputs.options.placed {
        return Ok(Sourced::option(attribute_meaning(&placed.folder), "folder of the VM"));
    }
    let id = inputs.vm.ds_id.ok_or(Refusal::NotPlaced)?;
    let datastore = inputs.vm.datastore.as_ref().filter(|datastore| !datastore.base_path.is_empty());
    let (location, how) = match (&inputs.options.datastore_location, datastore) {
        (Some(location), _) => (location.as_str(), "DATASTORE_LOCATION, DS_ID, VM ID"),
        (None, Some(datastore)) => {
            (parent(&datastore.base_path), "folder of the datastore's BASE_PATH, DS_ID, VM ID")
        }
        (None, None) => (DATASTORES, "default DATASTORE_LOCATION, DS_ID, VM ID"),
    };
    let dir = attribute_meaning(&format!("{location}/{id}/{}", inputs.vm.id));
    Ok(Sourced::computed(dir, how, []))
}

/// `path` without its last component and the slash before it.
fn parent(path: &str) -> &str {
    path.trim_end_matches('/').rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The number of queues of devices that share a default.
pub struct Queues<'a> {
    default: Option<Text<'a>>,
    /// What the first use of the default left in its place (OpenNebula's way).
    left: Option<Option<Sourced>>,
}

impl<'a> Queues<'a> {
    pub fn new(default: Option<Text<'a>>) -> Self {
        Self { default: default.and_then(Text::filled), left: None }
    }

    /// Queues of a device that says `own`. `auto` is the number of virtual CPUs; what is no number is no value.
    pub fn of(&mut self, context: &Context<'_>, own: Option<Text<'_>>) -> Option<Sourced> {
        if let Some(own) = own.and_then(Text::filled) {
            return resolve(context, own);
        }
        let default = self.default?;
        if context.mended {
            return resolve(context, default);
        }
        // OpenNebula overwrites the default by what it made of it and reads that again for the next device:
        // a VCPU that is no number reaches the first device only.
        let value = match self.left.take() {
            None => resolve(context, default),
            Some(left) => left.filter(|value| is_c_number(&value.value)),
        };
        self.left = Some(value.clone());
        value
    }
}

fn resolve(context: &Context<'_>, queues: Text<'_>) -> Option<Sourced> {
    let from = given(queues.at);
    if queues.value.eq_ignore_ascii_case("auto") {
        let vcpu = context.vcpu?;
        let value = if context.mended { positive(vcpu.value)? } else { attribute_meaning(vcpu.value) };
        return Some(Sourced::computed(value, "auto: as many as VCPU", [from, given(vcpu.at)]));
    }
    let value = if context.mended {
        positive(queues.value)?
    } else {
        is_c_number(queues.value).then(|| attribute_meaning(queues.value))?
    };
    Some(Sourced { value, from: Provenance::Given(from) })
}

/// `text` as a number of at least 1, in its plain form.
fn positive(text: &str) -> Option<String> {
    let number = number::int(text);
    (number.valid && number.value >= 1).then(|| number.value.to_string())
}

/// Whether strtol takes all of `text`: white space, sign, at least one digit, however many.
fn is_c_number(text: &str) -> bool {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_keeps_inner_slashes() {
        assert_eq!(parent("/var/lib/one//datastores/100"), "/var/lib/one//datastores");
        assert_eq!(parent("/var/lib/one/datastores/100/"), "/var/lib/one/datastores");
        assert_eq!(parent("x"), "");
    }

    #[test]
    fn queues_are_what_strtol_takes() {
        for (text, good) in [
            ("4", true),
            (" +4", true),
            ("-1", true),
            ("4 ", false),
            ("8x", false),
            ("", false),
            ("+", false),
        ] {
            assert_eq!(is_c_number(text), good, "{text:?}");
        }
    }
}
