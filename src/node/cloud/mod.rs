//! `kvmad-node cloud`: VMs from cloud images. `kvmad vm` asks for them with a description in JSON, the deploy script
//! for a VM of OpenNebula with its document.
//!
//! [`mod@reference`] says what names an image, [`fetch`] and [`download`] bring it, [`inspect`] says whether it can be used,
//! [`overlay`] makes a disk of it, [`seed`] tells the guest who it is, [`network`] checks where its interface goes;
//! [`prepare`] does all of it in order, [`deploy`] the same for a VM of OpenNebula. [`address`], [`list`] and
//! [`remove`] are for VMs that are there.

pub mod address;
pub mod deploy;
pub mod download;
pub mod error;
pub mod fetch;
pub mod init;
pub mod inspect;
pub mod list;
pub mod network;
pub mod overlay;
pub mod parents;
pub mod prepare;
pub mod reference;
pub mod remove;
pub mod seed;
pub mod spec;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;

use super::monitor::setup::{libvirt_uri, remotes_of_program};
use super::monitor::virsh::Virsh;
use super::root::Root;
use super::tools::{Answer, Ask, Ended, Real, Tools};
use error::CloudError;

/// What is done for VMs from cloud images. What is made is told on stdout as JSON.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make disk and seed of the VM that is described on stdin, and check its network
    Prepare,
    /// The same for a VM of OpenNebula: its document on stdin; disks with CLOUD_IMAGE and the vector CLOUD_INIT
    Deploy {
        /// The VM's folder in the system datastore
        folder: PathBuf,
        /// Its domain; the seed is added to it
        domain: PathBuf,
    },
    /// List the VMs
    List {
        /// Folder of all VMs
        images: PathBuf,
    },
    /// Ask for the addresses of a VM
    Address {
        /// Its name
        name: String,
    },
    /// Print the domain that a VM was last started with
    Domain {
        /// Folder of all VMs
        images: PathBuf,
        /// Its name
        name: String,
    },
    /// Delete the files of a VM whose domain is gone
    Remove {
        /// Folder of all VMs
        images: PathBuf,
        /// Its name
        name: String,
    },
    /// Say which folder keeps QEMU's user from a file
    Blocked {
        /// The file
        path: PathBuf,
    },
}

/// What all of it stands on.
pub struct Ground {
    tools: Arc<dyn Tools>,
    root: Root,
    arch: String,
    uri: String,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

/// A question to libvirt has this long.
const LIBVIRT: Duration = Duration::from_secs(60);

impl Ground {
    /// `say` gets a line for the operator whenever there is something to tell.
    pub fn new(
        tools: Arc<dyn Tools>,
        root: Root,
        arch: &str,
        uri: &str,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        Self { tools, root, arch: arch.to_owned(), uri: uri.to_owned(), say: Box::new(say) }
    }

    async fn of_this_process() -> Self {
        let tools: Arc<dyn Tools> = Arc::new(Real::default());
        let uri = match std::env::var("LIBVIRT_URI") {
            Ok(uri) if !uri.is_empty() && !uri.starts_with('-') => uri,
            _ => match remotes_of_program() {
                Some(remotes) => libvirt_uri(&remotes.to_string_lossy(), &*tools).await,
                None => "qemu:///system".to_owned(),
            },
        };
        let arch = rustix::system::uname().machine().to_string_lossy().into_owned();
        Self::new(tools, Root::system(), &arch, &uri, |text| {
            // The form in which a script tells the VM's log something. Nobody is left to tell when stderr is gone.
            let _ = writeln!(std::io::stderr(), "INFO: cloud: {}", text.replace('\n', "; "));
        })
    }

    /// What starts programs.
    #[must_use]
    pub fn tools(&self) -> &dyn Tools {
        &*self.tools
    }

    /// The CPU architecture of the host.
    #[must_use]
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// Tells the operator something.
    pub fn say(&self, text: &str) {
        (self.say)(text);
    }

    fn virsh(&self) -> Virsh {
        Virsh::new(self.tools.clone(), &self.uri, LIBVIRT)
    }

    /// Asks a program that ends with this process, however that ends. The error is that it could not be started.
    ///
    /// # Errors
    /// Why not.
    pub async fn ask_tied(&self, ask: Ask) -> Result<Answer, String> {
        let program = ask.program.clone();
        let ask = Self::tied(ask);
        let tied = ask.program != program;
        match self.tools.ask(ask).await {
            // The status of `tied` for a program that is not there, as of a shell.
            Ok(answer) if tied && answer.ended == Ended::Exited(127) => Err(answer.stderr.trim().to_owned()),
            other => other,
        }
    }

    fn tied(ask: Ask) -> Ask {
        let own =
            std::env::current_exe().ok().filter(|path| path.file_name().is_some_and(|n| n == "kvmad-node"));
        let Some(own) = own else { return ask };
        let parent = std::process::id().to_string();
        let mut args =
            vec!["tied".to_owned(), "--parent".to_owned(), parent, "--".to_owned(), ask.program.clone()];
        args.extend(ask.args.iter().cloned());
        Ask { program: own.to_string_lossy().into_owned(), args, ..ask }
    }
}

/// Carries out `command`. Exit status: 0 done, 1 refused or failed with the reason on stderr, 2 unreadable input.
#[must_use]
pub fn main(command: Command) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = match runtime {
        Ok(runtime) => runtime.block_on(answer(command)),
        Err(error) => Err(CloudError::Program(error.to_string())),
    };
    match answer {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(2),
        },
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}", error.to_string().replace('\n', "; "));
            ExitCode::FAILURE
        }
    }
}

async fn answer(command: Command) -> Result<String, CloudError> {
    let ground = Ground::of_this_process().await;
    match command {
        Command::Prepare => {
            let wanted = serde_json::from_str(&stdin()?)
                .map_err(|error| CloudError::Refused(format!("the description can't be read: {error}")))?;
            json(&prepare::prepare(&ground, &wanted).await?)
        }
        Command::Deploy { folder, domain } => {
            deploy::deploy(&ground, &stdin()?, &folder, &domain).await.map(|()| String::new())
        }
        Command::List { images } => json(&list::list(&ground, &images).await?),
        Command::Address { name } => json(&address::address(&ground, &name).await?),
        Command::Domain { images, name } => {
            let file = spec::folder_of(&images, &name)?.join(prepare::DEPLOYMENT);
            std::fs::read_to_string(&file).map_err(|error| CloudError::file(file, error))
        }
        Command::Remove { images, name } => {
            remove::remove(&ground, &images, &name).await.map(|()| String::new())
        }
        Command::Blocked { path } => Ok(parents::blocked(&ground, &path).await.unwrap_or_default()),
    }
}

fn stdin() -> Result<String, CloudError> {
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map(|_| text).map_err(|error| CloudError::Refused(format!("stdin can't be read: {error}")))
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, CloudError> {
    serde_json::to_string(value)
        .map(|text| text + "\n")
        .map_err(|error| CloudError::Program(error.to_string()))
}

/// Writes `bytes` to `path` for its owner only, never half a file.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CloudError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed = |error| CloudError::file(path, error);
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&new, path).map_err(failed)
}
