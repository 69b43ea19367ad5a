//! The agent of one host: what it knows, and how a message leaves it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, watch};

use super::collect::datastores::Asker;
use super::collect::pci;
use super::collect::system::Names;
use super::config::Config;
use super::guest::GuestConfig;
use super::journal::Journal;
use super::message::{Kind, Message};
use super::probes::Probes;
use super::recovery::Transfer;
use super::send::{SendError, Sender};
use super::store::{Files, Kept};
use super::virsh::Virsh;
use crate::node::root::Root;
use crate::settings;

/// Which host, under which name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The word of the probe folders: kvm or qemu.
    pub hypervisor: String,
    /// Id of the host.
    pub id: i64,
    /// Name of the host as OpenNebula has it.
    pub name: String,
    /// Folder of the remotes on this host.
    pub remotes: String,
}

/// Everything that the parts of an agent share.
pub struct Agent {
    /// Which host.
    pub about: About,
    /// What `onemonitord` wants.
    pub config: Config,
    /// The limits.
    pub limits: settings::Agent,
    /// Where the system is read.
    pub root: Root,
    /// Machine and node name.
    pub names: Names,
    /// Libvirt.
    pub virsh: Virsh,
    /// Probe folders.
    pub probes: Probes,
    /// Scripts of transfer drivers.
    pub transfer: Transfer,
    /// pci.conf, or what is wrong with it.
    pub pci: Result<pci::Filter, String>,
    /// guestagent.conf.
    pub guest: GuestConfig,
    /// Asks file systems.
    pub asker: Asker,
    /// Delivery; none for a look that is only printed.
    pub sender: Option<Sender>,
    /// What was done.
    pub journal: Journal,
    /// Files over restarts.
    pub files: Files,
    /// What is kept over restarts.
    pub kept: Mutex<Kept>,
    /// Why the host counts as failed, while it does.
    pub trouble: watch::Sender<Option<String>>,
    /// SYSTEM_HOST is wanted now.
    pub system_now: Notify,
    /// A look at the domains is wanted now.
    pub look_now: Notify,
    /// Seconds since 1970 when it started.
    pub since: u64,
}

/// Seconds since 1970 as the clock says.
#[must_use]
pub fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

impl Agent {
    /// The time for the next message: the clock, but never before that of an earlier message.
    pub fn epoch(&self) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.epoch = kept.epoch.max(clock());
        kept.epoch
    }

    /// Changes what is kept, and writes it down.
    pub fn keep(&self, change: impl FnOnce(&mut Kept)) {
        let copy = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let before = kept.clone();
            change(&mut kept);
            if *kept == before {
                return;
            }
            kept.clone()
        };
        if let Err(error) = self.files.save(&copy) {
            self.fault(format!("the state of the agent can't be written: {error}"));
        }
    }

    /// Writes down something that went wrong.
    pub fn fault(&self, what: String) {
        self.journal.fault(clock(), what);
    }

    /// Sends a text. An empty one is not sent, as ever.
    ///
    /// # Errors
    /// [`SendError`]; it is also written down.
    pub async fn send(&self, kind: Kind, success: bool, text: &str) -> Result<(), SendError> {
        self.deliver(kind, success, text, false).await
    }

    /// The same by TCP: what a host's recovery hangs on must not be lost without a sign.
    ///
    /// # Errors
    /// [`SendError`]; it is also written down.
    pub async fn send_surely(&self, kind: Kind, success: bool, text: &str) -> Result<(), SendError> {
        self.deliver(kind, success, text, true).await
    }

    async fn deliver(&self, kind: Kind, success: bool, text: &str, surely: bool) -> Result<(), SendError> {
        let text = text.trim();
        let Some(sender) = self.sender.as_ref().filter(|_| !text.is_empty()) else { return Ok(()) };
        let message =
            Message { kind, success, host: self.about.id, epoch: self.epoch(), text: text.to_owned() };
        let result = sender.send(&message, surely).await;
        match &result {
            Ok(bytes) => self.journal.sent(&message, clock(), Ok(*bytes)),
            Err(error) => self.journal.sent(&message, clock(), Err(&error.to_string())),
        }
        self.keep(|kept| kept.epoch = kept.epoch.max(message.epoch));
        result.map(drop)
    }

    /// Sends blocks (one a VM), as few messages as fit into datagrams.
    pub async fn send_blocks(&self, kind: Kind, blocks: Vec<String>) {
        let Some(sender) = &self.sender else { return };
        let size = |text: &str| {
            // What is surely small enough is not packed twice.
            if text.len() < sender.datagram() / 2 {
                return text.len();
            }
            let text = text.to_owned();
            sender.size(&Message { kind, success: true, host: self.about.id, epoch: clock(), text })
        };
        for text in super::message::split(blocks, sender.datagram(), &size) {
            // Written down by send; the next round has newer figures.
            let _ = self.send(kind, true, &text).await;
        }
    }

    /// Why the host counts as failed, while it does.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }
}

/// For tasks.
pub type Shared = Arc<Agent>;
