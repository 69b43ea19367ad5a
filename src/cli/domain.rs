//! What `kvmad domain-xml` and `kvmad explain` share: the options, and making the domain.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};

use super::input::{self, NoVm, Text, Unreadable, Vm};
use crate::domain::tree::Element;
use crate::domain::{self, Domain, Emulator, Inputs, Options, Refusal, Style};
use crate::template::document::VmDocument;
use crate::template::{Level, Template};

/// Disks that the IDE controller of a pc machine takes.
const IDE_DISKS: usize = 4;

/// Options that decide a domain.
#[derive(Debug, Args)]
pub struct Choices {
    /// The defaults, vmm_exec_kvm.conf [default: the front-end's, else the one of kvmad]
    #[arg(long, value_name = "CONF")]
    pub defaults: Option<PathBuf>,
    /// Template of the host, as text or XML (onehost show -x)
    #[arg(long, value_name = "FILE")]
    host_template: Option<PathBuf>,
    /// Template of the cluster, as text or XML
    #[arg(long, value_name = "FILE")]
    cluster_template: Option<PathBuf>,
    /// TYPE of the VM_MAD in oned.conf
    #[arg(long = "type", value_enum, default_value_t = Kind::Kvm)]
    kind: Kind,
    /// DATASTORE_LOCATION of oned.conf [default: from the document, else /var/lib/one//datastores]
    #[arg(long, value_name = "DIR")]
    datastore_location: Option<String>,
    /// Version of OpenNebula that the metadata names
    #[arg(long, value_name = "V", default_value = "7.4.0")]
    opennebula_version: String,
    /// Reproduce the quirks of OpenNebula 7.4 instead of mending them
    #[arg(long)]
    as_opennebula: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Kvm,
    Qemu,
}

/// Everything that is read once for all VMs.
#[derive(Debug)]
pub struct Ground {
    /// The defaults.
    pub defaults: Text,
    host: Template,
    cluster: Template,
    options: Options,
}

/// Why there is no domain.
#[derive(Debug)]
pub enum Failure {
    /// A file can't be read.
    Unreadable(Unreadable),
    /// OpenNebula would refuse the VM, before any driver sees it; the text is complete.
    NotMade(String),
    /// The VM is refused.
    Refused(Refusal),
}

impl Choices {
    /// Reads what they name; a syntax error in the defaults is told on `err`.
    ///
    /// # Errors
    /// When a file can't be read.
    pub fn read(&self, err: &mut dyn Write) -> Result<Ground, Unreadable> {
        let template = |path: &Option<PathBuf>, level| {
            path.as_deref().map_or(Ok(Template::new()), |path| input::template(path, level))
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(Ground {
            defaults: input::defaults(self.defaults.as_deref(), err)?,
            host: template(&self.host_template, Level::Host)?,
            cluster: template(&self.cluster_template, Level::Cluster)?,
            options: Options {
                emulator: match self.kind {
                    Kind::Kvm => Emulator::Kvm,
                    Kind::Qemu => Emulator::Qemu,
                },
                datastore_location: self.datastore_location.clone(),
                opennebula_version: self.opennebula_version.clone(),
                style: if self.as_opennebula { Style::AsOpenNebula } else { Style::Mended },
                now: i64::try_from(now).unwrap_or(i64::MAX),
                ..Options::default()
            },
        })
    }
}

impl Ground {
    /// The VM in `file`.
    ///
    /// # Errors
    /// When it can't be read, or OpenNebula would refuse it.
    pub fn vm(&self, file: &Path) -> Result<Vm, NoVm> {
        let os = self.defaults.parsed.template.vector("OS");
        input::vm(file, os.and_then(|os| os.filled("MACHINE")))
    }

    /// The domain of `vm`.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn domain(&self, vm: &Vm) -> Result<Domain, Refusal> {
        self.generate(&vm.document, &self.defaults.parsed.template)
    }

    /// The domain of `vm` with other defaults. One that was made from a template is made anew: new VMs take
    /// OS/MACHINE over, and their CD-ROMs the bus that goes with it.
    ///
    /// # Errors
    /// [`Failure`]
    pub fn domain_with(&self, vm: &Vm, defaults: &Template) -> Result<Domain, Failure> {
        let machine = defaults.vector("OS").and_then(|os| os.filled("MACHINE"));
        let Some(source) = &vm.source else { return Ok(self.generate(&vm.document, defaults)?) };
        let document = source.document(machine).map_err(Unreadable)?;
        Ok(self.generate(&document, defaults)?)
    }

    fn generate(&self, vm: &VmDocument, defaults: &Template) -> Result<Domain, Refusal> {
        let (host, cluster) = (&self.host, &self.cluster);
        domain::generate(&Inputs { vm, defaults, host, cluster, options: &self.options })
    }
}

/// What is wrong when more disks are on the IDE bus than it has room for: four, hda to hdd.
#[must_use]
pub fn crowded_ide(domain: &Element) -> Option<String> {
    let devices = domain.elements().filter(|element| element.name == "devices");
    let disks = devices.flat_map(Element::elements).filter(|element| element.name == "disk");
    let targets: Vec<&str> = disks
        .filter_map(|disk| disk.elements().find(|element| element.name == "target"))
        .filter(|target| target.attribute("bus") == Some("ide"))
        .filter_map(|target| target.attribute("dev"))
        .collect();
    let beyond = targets.iter().any(|target| target.strip_prefix("hd").is_some_and(|rest| rest > "d"));
    (targets.len() > IDE_DISKS || beyond).then(|| {
        format!(
            "{} disks are on the IDE bus ({}), which has room for {IDE_DISKS}, hda to hdd",
            targets.len(),
            targets.join(", ")
        )
    })
}

impl From<Unreadable> for Failure {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error)
    }
}

impl From<NoVm> for Failure {
    fn from(error: NoVm) -> Self {
        match error {
            NoVm::Unreadable(error) => Self::Unreadable(error),
            NoVm::Refused(why) => Self::NotMade(why),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Failure {
    /// Tells it on `err` and gives the exit status.
    pub fn tell(&self, file: &Path, err: &mut dyn Write) -> u8 {
        // Nobody is left to tell when stderr is gone.
        match self {
            Self::Unreadable(error) => {
                let _ = writeln!(err, "{}", super::plain(&error.to_string()));
                super::USAGE
            }
            Self::NotMade(why) => {
                let _ = writeln!(err, "{}", super::plain(why));
                super::FINDING
            }
            Self::Refused(refusal) => {
                let _ =
                    writeln!(err, "{}", super::plain(&format!("{}: no domain: {refusal}", file.display())));
                super::FINDING
            }
        }
    }
}
