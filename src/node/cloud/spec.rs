//! What is to be made, as the front-end tells the host (JSON), and what came of it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::CloudError;
use crate::settings::Cloud;

/// What all domains of `kvmad vm` begin with.
pub const PREFIX: &str = "kvmad-";

/// A VM to be prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Name of the VM; its domain is `kvmad-NAME`.
    pub name: String,
    /// Folder of all VMs.
    pub images: PathBuf,
    /// The image.
    pub image: ImageWanted,
    /// Where images come from, and how.
    pub places: Places,
    /// What the guest is told.
    pub seed: Seed,
    /// Where its interface goes.
    pub network: Network,
}

/// The image of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageWanted {
    /// Name, path or URL.
    pub reference: String,
    /// `sha256:HEX` or `sha512:HEX`, or the digits alone.
    pub checksum: Option<String>,
    /// Size of the VM's disk in bytes; `None`: as large as the image, at least 10 GiB.
    pub size: Option<u64>,
}

/// Where images come from, and how they are fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Cache of downloaded images.
    pub base: PathBuf,
    /// Library of images that an admin keeps.
    pub library: PathBuf,
    /// Certificates that servers are checked against; `None`: the host's.
    pub ca_file: Option<PathBuf>,
    /// Seconds without data after which a download counts as cut.
    pub stall: u64,
    /// How often a download that is cut is gone on with.
    pub tries: usize,
    /// The largest image in bytes.
    pub limit: u64,
}

impl Places {
    /// As the settings say.
    #[must_use]
    pub fn of(cloud: &Cloud) -> Self {
        let images = &cloud.images.0;
        let below = |own: &Option<crate::settings::Folder>, name: &str| {
            own.as_ref().map_or_else(|| images.join(name), |folder| folder.0.clone())
        };
        Self {
            base: below(&cloud.base, "base"),
            library: below(&cloud.library, "cloud-images"),
            ca_file: cloud.ca_file.clone(),
            stall: cloud.download_stall.as_secs().max(1),
            tries: cloud.download_tries.max(1),
            limit: cloud.image_limit.0 as u64,
        }
    }
}

/// What the guest is told by cloud-init.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    /// Tells this VM from any other: cloud-init does its work once for each.
    pub instance: String,
    /// Its host name.
    pub hostname: String,
    /// The user that is made; `None`: the image's own default user gets the keys.
    pub user: Option<String>,
    /// Public ssh keys, a line each.
    pub keys: Vec<String>,
    /// Packages to be installed.
    pub packages: Vec<String>,
    /// Own user-data, merged with the rest.
    pub user_data: Option<String>,
    /// Its interfaces.
    pub interfaces: Vec<Interface>,
}

/// What an interface of the guest gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// By which it is known.
    pub mac: String,
    /// `ADDRESS/PREFIX`; none: by DHCP.
    pub addresses: Vec<String>,
    /// Default routes.
    pub gateways: Vec<IpAddr>,
    /// DNS servers.
    pub resolvers: Vec<IpAddr>,
    /// Domains that names are looked for in.
    pub search: Vec<String>,
}

/// Where an interface goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// To this bridge of the host.
    Bridge(String),
    /// To this network of libvirt.
    Nat(String),
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The folder of the VM: `disk.0` is its disk, `disk.1` its seed.
    pub folder: PathBuf,
    /// The image below the disk.
    pub image: PathBuf,
    /// Size of the disk in bytes.
    pub size: u64,
    /// The program that runs VMs of this CPU.
    pub emulator: PathBuf,
    /// The CPU architecture of the host, as `uname -m` says it.
    pub arch: String,
}

/// What is kept beside the VM about how it was made: `kvmad-vm.json` in its folder. It marks the folder as ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the VM.
    pub name: String,
    /// As it was given.
    pub image: String,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Where its interface goes.
    pub network: Network,
    /// Its static addresses.
    pub addresses: Vec<String>,
    /// Seconds since 1970.
    pub made: u64,
}

/// Name of the file with the [`Record`].
pub const RECORD: &str = "kvmad-vm.json";

impl Record {
    /// Reads the record in `folder`.
    ///
    /// # Errors
    /// That there is none, or that it can't be read.
    pub fn read(folder: &Path) -> Result<Self, CloudError> {
        let file = folder.join(RECORD);
        let text = std::fs::read_to_string(&file).map_err(|error| CloudError::file(&file, error))?;
        serde_json::from_str(&text).map_err(|error| CloudError::file(&file, error))
    }
}

/// The folder of VM `name`.
///
/// # Errors
/// When `name` is no name for a VM, which would lead elsewhere.
pub fn folder_of(images: &Path, name: &str) -> Result<PathBuf, CloudError> {
    check_name(name).map_err(CloudError::Refused)?;
    if !images.is_absolute() {
        return Err(CloudError::file(images, "the folder of the VMs must be an absolute path"));
    }
    Ok(images.join(format!("{PREFIX}{name}")))
}

/// Whether `name` can be the name of a VM, which is also its host name.
///
/// # Errors
/// What it may be.
pub fn check_name(name: &str) -> Result<(), String> {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if name.len() <= 50
        && name.chars().all(inside)
        && ends(name.chars().next())
        && ends(name.chars().next_back())
    {
        return Ok(());
    }
    Err(format!(
        "{name:?} can't be the name of a VM: up to 50 letters, digits and -, with a letter or digit at both ends"
    ))
}
