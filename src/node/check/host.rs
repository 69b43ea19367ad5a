//! The host that is checked: what is wanted of it, and what several checks need to know.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::access::Who;
use super::account::{Account, As, look_up};
use super::libvirt_conf::Conf;
use crate::node::monitor::collect::system::Names;
use crate::node::monitor::virsh::Virsh;
use crate::node::root::Root;
use crate::node::tools::{Ask, Real, Tools};
use crate::template::xml::Document;

/// What is wanted of the host, for checks that depend on it.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Wanted {
    /// The user of the drivers on hosts; without it: who runs this, or oneadmin when that is root
    #[arg(long, value_name = "USER", value_parser = user_name)]
    pub user: Option<String>,
    /// Folder of the remotes on hosts
    #[arg(long, value_name = "DIR", default_value = crate::settings::REMOTE_DIR)]
    pub remotes: String,
    /// Folder of the datastores on hosts
    #[arg(long, value_name = "DIR", default_value = "/var/lib/one/datastores")]
    pub datastores: String,
    /// Folder of the VMs that are made from cloud images
    #[arg(long, value_name = "DIR", default_value = "/var/lib/libvirt/images/kvmad")]
    pub images: String,
    /// A bridge that must be there; may be given several times. Without it the bridges that are there are checked
    #[arg(long = "bridge", value_name = "NAME")]
    pub bridges: Vec<String>,
    /// The libvirt network of VMs behind NAT
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub network: String,
    /// The hosts are meant for type qemu: they need no /dev/kvm
    #[arg(long)]
    pub emulated: bool,
}

/// A user as `--user` takes it: any name that the databases may know, but not nothing.
///
/// # Errors
/// What is wrong with it.
pub fn user_name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the name of the user is empty; leave --user out for the default".to_owned()),
        _ if text.contains(|c: char| c.is_control() || c == ':') => {
            Err("a user's name has neither colons nor control characters".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

impl Wanted {
    /// The same as words for `kvmad-node check`.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let pair = |name: &str, value: &str| format!("--{name}={value}");
        let mut words = vec![
            pair("remotes", &self.remotes),
            pair("datastores", &self.datastores),
            pair("images", &self.images),
            pair("network", &self.network),
        ];
        words.extend(self.user.iter().map(|user| pair("user", user)));
        words.extend(self.bridges.iter().map(|bridge| pair("bridge", bridge)));
        words.extend(self.emulated.then(|| "--emulated".to_owned()));
        words
    }
}

/// What became of reading a file of libvirt.
#[derive(Debug, Clone)]
pub enum Loaded {
    /// Its statements.
    Read(Conf),
    /// There is none: libvirt's defaults count.
    Missing,
    /// We may not read it, or can't.
    Denied(String),
}

impl Loaded {
    fn of(root: &Root, file: &str) -> Self {
        match std::fs::read(root.path(file)) {
            Ok(bytes) => Self::Read(Conf::parse(&String::from_utf8_lossy(&bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::Missing,
            Err(error) => Self::Denied(error.to_string()),
        }
    }

    /// The statements when they are known: none when there is no file.
    ///
    /// # Errors
    /// Why they are not.
    pub fn known(&self) -> Result<Conf, String> {
        match self {
            Self::Read(conf) => Ok(conf.clone()),
            Self::Missing => Ok(Conf::default()),
            Self::Denied(reason) => Err(reason.clone()),
        }
    }
}

/// libvirt's file about QEMU.
pub const QEMU_CONF: &str = "/etc/libvirt/qemu.conf";
/// libvirt's file about its daemon.
pub const LIBVIRTD_CONF: &str = "/etc/libvirt/libvirtd.conf";
/// The same for the modular daemons.
pub const PROXY_CONF: &str = "/etc/libvirt/virtproxyd.conf";

/// A host under check.
pub struct Host {
    /// Where its files are read.
    pub root: Root,
    /// What starts programs.
    pub tools: Arc<dyn Tools>,
    /// What starts programs as the drivers' user.
    pub as_account: Arc<dyn Tools>,
    /// libvirt, asked as the drivers' user.
    pub virsh: Virsh,
    /// Names of machine and node.
    pub names: Names,
    /// What is wanted.
    pub wanted: Wanted,
    /// Name of the drivers' user.
    pub user: String,
    /// That user; the reason when it could not be looked up.
    pub account: Result<Option<Account>, String>,
    /// Whether we are root.
    pub root_rights: bool,
    /// Variables of kvmrc that are of interest here.
    pub kvmrc: HashMap<&'static str, String>,
    /// qemu.conf.
    pub qemu: Loaded,
    /// libvirtd.conf, or virtproxyd.conf where the daemons are modular.
    pub libvirtd: Loaded,
    /// Name of that file.
    pub libvirtd_file: &'static str,
    /// `virsh capabilities`, or why there is none.
    pub capabilities: Result<Document, String>,
    /// When this began, in seconds since 1970.
    pub began: f64,
}

/// Variables of kvmrc that the checks read.
const VARIABLES: [&str; 2] = ["LIBVIRT_URI", "QEMU_PROTOCOL"];

impl Host {
    /// This host.
    pub async fn this(wanted: Wanted) -> Self {
        let root_rights = rustix::process::geteuid().is_root();
        let own = rustix::process::geteuid().as_raw().to_string();
        let tools: Arc<dyn Tools> = Arc::new(Real::default());
        let ask = wanted.user.clone().unwrap_or(if root_rights { "oneadmin".to_owned() } else { own });
        Self::with(Root::system(), tools, Names::of_this_host(), wanted, ask, root_rights).await
    }

    /// The host that `root` and `tools` show; `user` is a name or a number.
    pub async fn with(
        root: Root,
        tools: Arc<dyn Tools>,
        names: Names,
        wanted: Wanted,
        user: String,
        root_rights: bool,
    ) -> Self {
        let account = look_up(&*tools, &user).await;
        let name = match &account {
            Ok(Some(account)) => account.who.name.clone(),
            _ => user,
        };
        let as_account: Arc<dyn Tools> = match &account {
            Ok(Some(account)) if root_rights && account.who.uid != 0 => {
                Arc::new(As { tools: Arc::clone(&tools), account: account.clone() })
            }
            _ => Arc::clone(&tools),
        };
        // It belongs to that user: never run with root's rights.
        let drops = matches!(&account, Ok(Some(account)) if account.who.uid != 0);
        let kvmrc = match root_rights && !drops {
            true => HashMap::new(),
            false => kvmrc(&root, &*as_account, &wanted.remotes).await,
        };
        let uri = kvmrc.get("LIBVIRT_URI").filter(|uri| !uri.starts_with('-'));
        let uri = uri.map_or("qemu:///system", String::as_str);
        let virsh = Virsh::new(Arc::clone(&as_account), uri, Duration::from_secs(20));
        let capabilities = capabilities(&virsh).await;
        let modular = root.exists(PROXY_CONF) && !root.exists(LIBVIRTD_CONF);
        let libvirtd_file = if modular { PROXY_CONF } else { LIBVIRTD_CONF };
        Self {
            qemu: Loaded::of(&root, QEMU_CONF),
            libvirtd: Loaded::of(&root, libvirtd_file),
            began: now(),
            user: name,
            root,
            tools,
            as_account,
            virsh,
            names,
            wanted,
            account,
            root_rights,
            kvmrc,
            libvirtd_file,
            capabilities,
        }
    }

    /// How hosts talk to each other's libvirt: the word of kvmrc.
    #[must_use]
    pub fn protocol(&self) -> &str {
        self.kvmrc.get("QEMU_PROTOCOL").map_or("qemu+ssh", String::as_str)
    }

    /// Why nothing is known about the drivers' user; `None` when it is known.
    #[must_use]
    pub fn no_account(&self) -> Option<String> {
        match &self.account {
            Ok(Some(_)) => None,
            Ok(None) => Some(format!("there is no user {}", self.user)),
            Err(reason) => Some(reason.clone()),
        }
    }

    /// The user that QEMU runs as, and how that is known.
    ///
    /// # Errors
    /// Why it is not known.
    pub async fn qemu_user(&self) -> Result<(Who, String), String> {
        let (name, how) = match &self.qemu {
            Loaded::Read(conf) if conf.text("user").is_some() => {
                (conf.text("user").unwrap_or_default(), format!("user in {QEMU_CONF}"))
            }
            Loaded::Denied(_) => (self.user.clone(), format!("taken to be so, {QEMU_CONF} can't be read")),
            _ => (self.distribution_user().await?, "the distribution's default".to_owned()),
        };
        // qemu.conf also allows +NUMBER.
        let name = name.trim_start_matches('+').to_owned();
        match look_up(&*self.tools, &name).await? {
            Some(account) => Ok((account.who, how)),
            None => Err(format!("there is no user {name} ({how})")),
        }
    }

    async fn distribution_user(&self) -> Result<String, String> {
        for name in ["libvirt-qemu", "qemu"] {
            if look_up(&*self.tools, name).await?.is_some() {
                return Ok(name.to_owned());
            }
        }
        Ok("root".to_owned())
    }

    /// Why a file that only root may read was not read, and what to do.
    #[must_use]
    pub fn denied(&self, file: &str, reason: &str) -> (String, String) {
        let mend = format!("run `kvmad doctor` as root on {}, or `kvmad doctor root@HOST`", self.names.node);
        (format!("{file} can't be read by {}: {reason}", self.user), mend)
    }
}

fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

async fn capabilities(virsh: &Virsh) -> Result<Document, String> {
    let text = virsh.run(&["capabilities"], Bytes::new(), Duration::from_secs(60)).await?;
    Document::parse(text).map_err(|error| format!("the capabilities of libvirt: {error}"))
}

/// kvmrc is shell, so a shell reads it.
async fn kvmrc(root: &Root, tools: &dyn Tools, remotes: &str) -> HashMap<&'static str, String> {
    let file = root.path(format!("{remotes}/etc/vmm/kvm/kvmrc"));
    if !Path::new(&file).is_file() {
        return HashMap::new();
    }
    let limit = Duration::from_secs(5);
    let script =
        ". \"$1\" >/dev/null 2>&1; shift; for name in \"$@\"; do printf '%s\\0' \"${!name:-}\"; done";
    let mut args =
        vec!["-c".to_owned(), script.to_owned(), "bash".to_owned(), file.to_string_lossy().into_owned()];
    args.extend(VARIABLES.map(str::to_owned));
    let answer = tools.ask(Ask::new("bash", args, limit)).await.and_then(|told| told.good("kvmrc", limit));
    let told = answer.unwrap_or_default();
    let values = told.split('\0').map(|value| value.trim().to_owned());
    VARIABLES.into_iter().zip(values).filter(|(_, value)| !value.is_empty()).collect()
}
