//! Where OpenNebula's front-end keeps its things: the standard layout, or all below `ONE_LOCATION`.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::notice::Notice;

/// Folder of the scripts on hosts when `VAR/config` does not say otherwise.
pub const REMOTE_DIR: &str = "/var/tmp/one";

/// The folders of a front-end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Configuration: `/etc/one`, `$ONE_LOCATION/etc`.
    pub etc: PathBuf,
    /// State: `/var/lib/one`, `$ONE_LOCATION/var`.
    pub var: PathBuf,
    /// Libraries: `/usr/lib/one`, `$ONE_LOCATION/lib`.
    pub lib: PathBuf,
    /// Logs: `/var/log/one`, `$ONE_LOCATION/var`.
    pub log: PathBuf,
    /// Run-time files: `/run/one`, `$ONE_LOCATION/var/run`.
    pub run: PathBuf,
}

impl Paths {
    /// The standard layout.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            etc: "/etc/one".into(),
            var: "/var/lib/one".into(),
            lib: "/usr/lib/one".into(),
            log: "/var/log/one".into(),
            run: "/run/one".into(),
        }
    }

    /// Everything below `location`.
    #[must_use]
    pub fn below(location: &Path) -> Self {
        let var = location.join("var");
        Self {
            etc: location.join("etc"),
            lib: location.join("lib"),
            log: var.clone(),
            run: var.join("run"),
            var,
        }
    }

    /// The layout that the environment of this process names by `ONE_LOCATION`.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::for_location(std::env::var_os("ONE_LOCATION").as_deref())
    }

    /// The layout for a value of `ONE_LOCATION`; empty counts as unset.
    #[must_use]
    pub fn for_location(location: Option<&OsStr>) -> Self {
        match location {
            Some(location) if !location.is_empty() => Self::below(Path::new(location)),
            _ => Self::standard(),
        }
    }

    /// The remotes on the front-end: `VAR/remotes`.
    #[must_use]
    pub fn remotes(&self) -> PathBuf {
        self.var.join("remotes")
    }

    /// `kvmad.conf`.
    #[must_use]
    pub fn settings_file(&self) -> PathBuf {
        self.etc.join("kvmad.conf")
    }

    /// The file with which every driver is started: `PRIORITY`, `ONE_MAD_DEBUG`.
    #[must_use]
    pub fn defaultrc(&self) -> PathBuf {
        self.etc.join("defaultrc")
    }

    /// The file of the VMM drivers: `LIVE_DISK_SNAPSHOTS`, `VNMAD_LOCAL_ACTIONS`.
    #[must_use]
    pub fn vmm_execrc(&self) -> PathBuf {
        self.etc.join("vmm_exec/vmm_execrc")
    }

    /// The file of an IM driver: `ETC/NAME/NAMErc`.
    #[must_use]
    pub fn im_rc(&self, driver_name: &str) -> PathBuf {
        self.etc.join(driver_name).join(format!("{driver_name}rc"))
    }

    /// Deployment defaults: `ETC/vmm_exec/vmm_exec_kvm.conf`.
    #[must_use]
    pub fn domain_defaults(&self) -> PathBuf {
        self.etc.join("vmm_exec/vmm_exec_kvm.conf")
    }

    /// What `oned` wrote about its configuration at its start: `VAR/config`.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.var.join("config")
    }

    /// Reads `VAR/config`. A file that can't be read counts as empty, with a notice.
    #[must_use]
    pub fn core_config(&self) -> (CoreConfig, Option<Notice>) {
        match std::fs::read(self.config()) {
            Ok(bytes) => (CoreConfig::parse(&String::from_utf8_lossy(&bytes)), None),
            Err(error) => {
                let why = if error.kind() == ErrorKind::NotFound {
                    "is not there".to_owned()
                } else {
                    format!("can't be read: {error}")
                };
                let text = format!(
                    "{} {why}; scripts on hosts are taken to be in {REMOTE_DIR}",
                    self.config().display()
                );
                (CoreConfig::default(), Some(Notice(text)))
            }
        }
    }
}

/// What `oned` writes to `VAR/config`: lines `NAME=value`, names may repeat. Vectors stand on one line as
/// `NAME=K=V,K=V`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreConfig {
    entries: Vec<(String, String)>,
}

impl CoreConfig {
    /// Reads the text: split at the first `=`, blanks trimmed, names in upper case, quotes around a value removed.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let (name, value) = line.split_once('=')?;
            let name = name.trim().to_ascii_uppercase();
            let value = value.trim();
            let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            (!name.is_empty()).then(|| (name, inner.unwrap_or(value).to_owned()))
        };
        Self { entries: text.lines().filter_map(entry).collect() }
    }

    /// All values of `name` (in upper case), in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.entries.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The last value of `name` that is not empty.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<&str> {
        let filled = |(n, value): &&(String, String)| n == name && !value.is_empty();
        self.entries.iter().rfind(filled).map(|(_, value)| value.as_str())
    }

    /// Folder of the scripts on hosts: `SCRIPTS_REMOTE_DIR`, default `/var/tmp/one`.
    #[must_use]
    pub fn scripts_remote_dir(&self) -> &str {
        self.last("SCRIPTS_REMOTE_DIR").unwrap_or(REMOTE_DIR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_layout_is_that_of_the_packages() {
        let paths = Paths::for_location(None);
        assert_eq!(paths.remotes(), Path::new("/var/lib/one/remotes"));
        assert_eq!(paths.defaultrc(), Path::new("/etc/one/defaultrc"));
        assert_eq!(paths.vmm_execrc(), Path::new("/etc/one/vmm_exec/vmm_execrc"));
        assert_eq!(paths.log, Path::new("/var/log/one"));
        assert_eq!(Paths::for_location(Some(OsStr::new(""))), paths);
    }

    #[test]
    fn one_location_holds_everything() {
        let paths = Paths::for_location(Some(OsStr::new("/srv/one")));
        assert_eq!(paths.remotes(), Path::new("/srv/one/var/remotes"));
        assert_eq!(paths.settings_file(), Path::new("/srv/one/etc/kvmad.conf"));
        assert_eq!(paths.log, Path::new("/srv/one/var"));
        assert_eq!(paths.im_rc("one_im_ssh_kvm"), Path::new("/srv/one/etc/one_im_ssh_kvm/one_im_ssh_kvmrc"));
    }

    #[test]
    fn the_core_config_keeps_repeated_names_and_strips_quotes() {
        let text = "scripts_remote_dir = \"/var/tmp/two\"\nIM_MAD=NAME=a,ARGUMENTS=-p 1\nIM_MAD=NAME=b\nnonsense\n=x\n";
        let config = CoreConfig::parse(text);
        assert_eq!(config.scripts_remote_dir(), "/var/tmp/two");
        assert_eq!(config.all("IM_MAD").collect::<Vec<_>>(), ["NAME=a,ARGUMENTS=-p 1", "NAME=b"]);
        assert_eq!(CoreConfig::parse("SCRIPTS_REMOTE_DIR=\n").scripts_remote_dir(), "/var/tmp/one");
    }

    #[test]
    fn a_missing_core_config_is_told_and_the_default_is_used() {
        let (config, notice) = Paths::below(Path::new("/nowhere")).core_config();
        assert_eq!(config.scripts_remote_dir(), "/var/tmp/one");
        assert!(notice.expect("a notice").0.contains("/nowhere/var/config is not there"));
    }
}
