//! What a domain is made from.

use rand::Rng as _;

use crate::template::Template;
use crate::template::document::VmDocument;

/// All that decides a domain. The same inputs always give the same domain.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The VM.
    pub vm: &'a VmDocument,
    /// `vmm_exec_kvm.conf`.
    pub defaults: &'a Template,
    /// Template of the host, values of the monitoring probes included; empty when it isn't known.
    pub host: &'a Template,
    /// Template of the cluster; empty when it isn't known.
    pub cluster: &'a Template,
    /// The rest.
    pub options: &'a Options,
}

/// What else decides a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `domain/@type`.
    pub emulator: Emulator,
    /// `DATASTORE_LOCATION` of oned.conf. `None`: the folder of the system datastore's `BASE_PATH` when the
    /// document has it, else `/var/lib/one//datastores`.
    pub datastore_location: Option<String>,
    /// For a VM that is not `oned`'s: where it is, in place of the system datastore and `one-ID`.
    pub placed: Option<Placed>,
    /// For the metadata.
    pub opennebula_version: String,
    /// Whether quirks of OpenNebula are mended or reproduced.
    pub style: Style,
    /// Whether a firmware file must be one of `OVMF_UEFIS`. oned asks this before it deploys a VM, so a driver
    /// that works for it needn't. Never asked in [`Style::AsOpenNebula`]: oned's generator doesn't either.
    pub check_firmware: bool,
    /// For the metadata: seconds since 1970.
    pub now: i64,
    /// At least 59 random hexadecimal digits, the password of a display for which a default `RANDOM_PASSWD`
    /// asks for one. VNC gets the first 8, SPICE the first 59.
    pub random_password: String,
}

/// Name and place of a VM that is not `oned`'s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Name of the domain.
    pub name: String,
    /// Folder of its files on the host, an absolute path.
    pub folder: String,
}

/// The `TYPE` of the `VM_MAD` in oned.conf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Emulator {
    /// `kvm`: the processor runs the guest.
    #[default]
    Kvm,
    /// `qemu`: software does.
    Qemu,
}

/// How close to OpenNebula 7.4 the domain is. docs/domain-mends.md lists the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Its quirks are mended.
    #[default]
    Mended,
    /// Its quirks are reproduced, but for those that would give a document that is no XML.
    AsOpenNebula,
}

impl Default for Options {
    /// KVM, OpenNebula 7.4.0, mended, time 0 (the caller knows the time), a fresh random password.
    fn default() -> Self {
        let mut random = rand::rng();
        let password = (0..64).map(|_| char::from_digit(random.next_u32() % 16, 16).unwrap_or('0')).collect();
        Self {
            emulator: Emulator::Kvm,
            datastore_location: None,
            placed: None,
            opennebula_version: "7.4.0".to_owned(),
            style: Style::Mended,
            check_firmware: true,
            now: 0,
            random_password: password,
        }
    }
}
