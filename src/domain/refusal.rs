//! Why there is no domain.

use super::provenance::Given;

/// Why there is no domain, or no device. The doc comments are the messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// the VM has no HISTORY record with a DS_ID ...
    #[error(
        "the VM has no HISTORY record with a DS_ID: it is not placed on a host and a system datastore yet, so \
         the paths of its disks are not known"
    )]
    NotPlaced,
    /// the VM has no MEMORY; give it a whole number of MiB
    #[error("the VM has no MEMORY; give it a whole number of MiB")]
    NoMemory,
    /// {given} is {text:?}; MEMORY must be a whole number of MiB
    #[error("{given} is {text:?}; MEMORY must be a whole number of MiB, without a unit")]
    Memory {
        /// Where it stands.
        given: Given,
        /// What it holds.
        text: String,
    },
    /// no level sets OS.ARCH ...
    #[error(
        "neither the VM nor host, cluster or defaults file say the architecture; set OS = [ ARCH = \"x86_64\" ] \
         in vmm_exec_kvm.conf"
    )]
    NoArch,
    /// {0} has no TARGET
    #[error("{0} has no TARGET, the name of the device in the guest (vda, sdb)")]
    NoTarget(Given),
    /// {0} has no whole number as DISK_ID
    #[error("{0} has no whole number as DISK_ID, so the path of its data is not known")]
    NoDiskId(Given),
    /// {given} asks for the firmware {text:?} ...
    #[error(
        "{given} asks for the firmware {text:?}, which OVMF_UEFIS of host, cluster and defaults file do not list; \
         listed: {}",
        if known.is_empty() { "nothing".to_owned() } else { known.join(" ") }
    )]
    Firmware {
        /// Where it stands.
        given: Given,
        /// What it holds.
        text: String,
        /// What is listed.
        known: Vec<String>,
    },
    /// {given} is no well-formed XML ...
    #[error("{given} is no well-formed XML: line {line} of the value, column {column}: {message}")]
    Markup {
        /// Where it stands.
        given: Given,
        /// Line within the value, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// {path} would hold the character U+XXXX ...
    #[error("{path} would hold the character U+{:04X}, which XML can't hold; it comes from: {from}", u32::from(*character))]
    Character {
        /// Path of the element or attribute in the domain.
        path: String,
        /// The character.
        character: char,
        /// What gave the value.
        from: String,
    },
    /// {given} asks for more than {limit} {what}
    #[error("{given} asks for more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// Where it stands.
        given: Given,
        /// The most.
        limit: u64,
    },
    /// there is no {0} with ATTACH = YES in the document
    #[error("there is no {0} with ATTACH = YES in the document")]
    NothingToAttach(&'static str),
    /// {given} ({target}) can't be plugged into a running domain ...
    #[error(
        "{given}: the target {target} means the bus {bus}, and QEMU can't plug devices of that bus into a running \
         guest; use a target vdX or sdX (SCSI), or power the VM off"
    )]
    NoHotplug {
        /// The disk.
        given: Given,
        /// Its TARGET.
        target: String,
        /// The bus.
        bus: String,
    },
    /// {0} is a folder of the host (FILESYSTEM), which can't be plugged ...
    #[error(
        "{0} is a folder of the host (FILESYSTEM), which can't be plugged into a running guest; power the VM off"
    )]
    NoShare(Given),
    /// {0} has no address on the host ...
    #[error("{0} has no address on the host (DOMAIN, BUS, SLOT, FUNCTION) and no UUID of a mediated device")]
    NoAddress(Given),
}
