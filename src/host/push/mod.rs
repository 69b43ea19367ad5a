//! Push of the remotes to a host: the whole folder, staged beside and swapped in one step.

mod remotes;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Mutex;
use tokio::time::Instant;

pub use remotes::{Changes, Entry, Manifest, OWN, Packed, carried_stamp, write_stamp};

use crate::wire::Open;

const SCRIPT: &str = include_str!("push.sh");

/// What a push did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    /// The host had the same already.
    Same,
    /// The host has them now.
    Done {
        /// The stamp it has now.
        stamp: String,
        /// What is different; `None` when the host did not know what it had.
        changes: Option<Changes>,
    },
}

/// Why a push did nothing. The text is complete: it names the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPushed {
    /// The host was not reached.
    #[error("{0}")]
    Unreachable(String),
    /// It was, and the push failed.
    #[error("{0}")]
    Failed(String),
}

/// How long a packed folder is taken as current. Many hosts are connected to at once; the folder is read once.
const FRESH: Duration = Duration::from_secs(5);

/// The front-end's remotes, packed when needed.
pub struct Source {
    dir: PathBuf,
    extras: Vec<(PathBuf, String)>,
    packed: Mutex<Option<(Instant, Arc<Packed>)>>,
}

impl Source {
    /// The remotes at `dir`, with files from elsewhere and where these will be below them.
    #[must_use]
    pub fn new(dir: PathBuf, extras: Vec<(PathBuf, String)>) -> Self {
        Self { dir, extras, packed: Mutex::new(None) }
    }

    /// Whether they are ours, which makes a differing stamp a reason to push.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        carried_stamp(&self.dir).is_some()
    }

    /// Whether they have helpers for hosts.
    #[must_use]
    pub fn has_helper(&self) -> bool {
        self.dir.join("kvmad/serve").is_file()
    }

    /// Packs them, unless that was done just now.
    ///
    /// # Errors
    /// When they can't be read.
    pub async fn packed(&self) -> io::Result<Arc<Packed>> {
        let mut packed = self.packed.lock().await;
        if let Some((when, packed)) = &*packed
            && when.elapsed() < FRESH
        {
            return Ok(packed.clone());
        }
        let (dir, extras) = (self.dir.clone(), self.extras.clone());
        let new = tokio::task::spawn_blocking(move || Packed::of(&dir, &extras))
            .await
            .map_err(io::Error::other)??;
        let new = Arc::new(new);
        *packed = Some((Instant::now(), new.clone()));
        Ok(new)
    }

    /// Frees the archive if it is not current any more.
    pub async fn forget(&self) {
        let mut packed = self.packed.lock().await;
        if packed.as_ref().is_some_and(|(when, _)| when.elapsed() >= FRESH) {
            *packed = None;
        }
    }
}

/// The command that takes the archive on a host, into `dir`. `lazy`: not when it has the same stamp.
#[must_use]
pub fn command(dir: &str, stamp: &str, lazy: bool, limit: Duration) -> Open {
    let lazy = if lazy { "yes" } else { "no" };
    let argv = ["bash", "-c", SCRIPT, "kvmad-push", dir, stamp, lazy].map(str::to_owned).to_vec();
    Open { argv, env: Vec::new(), limit: Some(limit), grace: Duration::from_secs(10) }
}

/// Reads what the command printed.
#[must_use]
pub fn result(stdout: &[u8], packed: &Packed) -> Pushed {
    let text = String::from_utf8_lossy(stdout);
    let Some(old) = text.strip_prefix("pushed\n") else { return Pushed::Same };
    let old = Manifest::parse(old);
    let changes = (!old.0.is_empty()).then(|| old.changes(&packed.manifest));
    Pushed::Done { stamp: packed.stamp.clone(), changes }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
