//! One host: its connections, opened when needed, shared, closed when idle.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::channel::Channel;
use super::connection::{Connection, Session};
use super::fallback;
use super::job::{HostName, Watch};
use super::ssh::{ChannelRefused, ControlDir, SshOptions};

/// Connections to one host beyond the first, for servers with few sessions a connection.
const EXTRAS: usize = 15;

/// What all hosts share.
pub(super) struct Common {
    pub(super) ssh: SshOptions,
    pub(super) control: Arc<ControlDir>,
    pub(super) places: Arc<Semaphore>,
    /// Told when an idle connection should be closed because a place is wanted.
    pub(super) wanted: Notify,
}

/// A host and its connections.
pub(super) struct Entry {
    pub(super) name: HostName,
    common: Arc<Common>,
    first: tokio::sync::Mutex<First>,
    extras: Mutex<Vec<Arc<Connection>>>,
    opening: tokio::sync::Mutex<()>,
    freed: Arc<Notify>,
    used: Mutex<Used>,
}

#[derive(Default)]
struct First {
    connection: Option<Arc<Connection>>,
    failed: Option<(Instant, String)>,
}

struct Used {
    jobs: usize,
    last: Instant,
}

/// A job that uses the host; its connections are not idle while it lives.
pub(super) struct Using(Arc<Entry>);

/// Who waits for a place among the connections asks so often for one that is idle.
const ASKED_AGAIN: Duration = Duration::from_millis(300);

impl Drop for Using {
    fn drop(&mut self) {
        let mut used = self.0.used();
        used.jobs -= 1;
        used.last = Instant::now();
    }
}

impl Entry {
    pub(super) fn new(name: HostName, common: Arc<Common>) -> Arc<Self> {
        Arc::new(Self {
            name,
            common,
            first: tokio::sync::Mutex::default(),
            extras: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            freed: Arc::default(),
            used: Mutex::new(Used { jobs: 0, last: Instant::now() }),
        })
    }

    fn used(&self) -> std::sync::MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extras(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Connection>>> {
        self.extras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the host as used.
    pub(super) fn using(self: &Arc<Self>) -> Using {
        self.used().jobs += 1;
        Using(self.clone())
    }

    /// Since when nobody uses it; `None` while somebody does.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let used = self.used();
        (used.jobs == 0).then_some(used.last)
    }

    /// The shared connection, opened if need be. Those who wait for the same attempt share its failure.
    pub(super) async fn connection(&self, watch: &Watch) -> Result<Arc<Connection>, String> {
        let arrived = Instant::now();
        if let Ok(first) = self.first.try_lock()
            && let Some(connection) = &first.connection
            && connection.is_usable().await
        {
            let connection = connection.clone();
            drop(first);
            // It may have been taken for unreachable before.
            watch.turn.ready(&self.name).await;
            return Ok(connection);
        }
        watch.turn.waiting(&self.name);
        let opened = self.open_first(arrived).await;
        match &opened {
            Ok(_) => watch.turn.ready(&self.name).await,
            Err(_) => watch.turn.unreachable(&self.name),
        }
        opened
    }

    async fn open_first(&self, arrived: Instant) -> Result<Arc<Connection>, String> {
        let mut first = self.first.lock().await;
        if let Some(connection) = first.connection.take() {
            if connection.is_usable().await {
                first.connection = Some(connection.clone());
                return Ok(connection);
            }
            tokio::spawn(connection.close(Duration::from_secs(1)));
        }
        if let Some((when, reason)) = &first.failed
            && *when >= arrived
        {
            return Err(reason.clone());
        }
        match self.open_one(Some(self.place().await)).await {
            Ok(connection) => {
                *first = First { connection: Some(connection.clone()), failed: None };
                Ok(connection)
            }
            Err(reason) => {
                first.failed = Some((Instant::now(), reason.clone()));
                Err(reason)
            }
        }
    }

    /// A connection that belongs to the caller alone.
    pub(super) async fn open_one(
        &self,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Arc<Connection>, String> {
        let Common { ssh, control, .. } = &*self.common;
        Connection::open(&self.name, ssh, control.clone(), self.freed.clone(), permit).await
    }

    /// Waits for one of the places that bound all connections.
    async fn place(&self) -> OwnedSemaphorePermit {
        if let Ok(permit) = self.common.places.clone().try_acquire_owned() {
            return permit;
        }
        let place = self.common.places.clone().acquire_owned();
        tokio::pin!(place);
        loop {
            // One idle connection goes for each word. Those that come to be idle later must hear of it, too.
            self.common.wanted.notify_one();
            tokio::select! {
                // The semaphore is never closed.
                permit = &mut place => return permit.expect("the places are never closed"),
                () = tokio::time::sleep(ASKED_AGAIN) => {}
            }
        }
    }

    /// A channel for one command of the fallback: on `first` or further connections, or when one is free.
    pub(super) async fn channel(
        &self,
        first: &Arc<Connection>,
        watch: &Watch,
    ) -> Result<(Channel, Session), String> {
        let mut waited = false;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some((connection, session)) = self.reserve(first) {
                match connection.channel(&session, fallback::COMMAND).await {
                    Ok(channel) => {
                        if waited {
                            watch.turn.ready(&self.name).await;
                        }
                        return Ok((channel, session));
                    }
                    Err(ChannelRefused::Full) if connection.busy() > 1 => {}
                    Err(ChannelRefused::Full) => return Err("the server takes no session at all".into()),
                    Err(ChannelRefused::Gone(reason)) if Arc::ptr_eq(&connection, first) => {
                        return Err(reason);
                    }
                    Err(ChannelRefused::Gone(_)) => {
                        self.extras().retain(|one| !Arc::ptr_eq(one, &connection))
                    }
                }
                continue;
            }
            if !waited {
                waited = true;
                watch.turn.waiting(&self.name);
            }
            if !self.open_extra().await {
                freed.await;
            }
        }
    }

    fn reserve(&self, first: &Arc<Connection>) -> Option<(Arc<Connection>, Session)> {
        let extras = self.extras();
        let mut all = std::iter::once(first).chain(extras.iter());
        all.find_map(|connection| Some((connection.clone(), connection.reserve()?)))
    }

    /// Opens one more connection if that is allowed and possible; one at a time.
    async fn open_extra(&self) -> bool {
        let Ok(_opening) = self.opening.try_lock() else { return false };
        if self.extras().len() >= EXTRAS {
            return false;
        }
        let Ok(permit) = self.common.places.clone().try_acquire_owned() else { return false };
        match self.open_one(Some(permit)).await {
            Ok(connection) => {
                self.extras().push(connection);
                self.freed.notify_waiters();
                true
            }
            Err(reason) => {
                tracing::warn!(host = %self.name, reason, "no further connection");
                false
            }
        }
    }

    /// Whether it has any connection.
    pub(super) async fn is_connected(&self) -> bool {
        self.first.lock().await.connection.is_some() || !self.extras().is_empty()
    }

    /// Closes all its connections if nobody uses it (`always`: also when somebody does).
    pub(super) async fn close(&self, always: bool, wait: Duration) {
        let mut first = self.first.lock().await;
        if !always && self.idle_since().is_none() {
            return;
        }
        let extras = std::mem::take(&mut *self.extras());
        let all: Vec<_> = first.connection.take().into_iter().chain(extras).collect();
        drop(first);
        let closing: Vec<_> = all.into_iter().map(|one| tokio::spawn(one.close(wait))).collect();
        for one in closing {
            let _ = one.await;
        }
    }

    /// Closes extra connections on which nothing runs.
    pub(super) fn close_idle_extras(&self) {
        let mut extras = self.extras();
        let (busy, idle): (Vec<_>, Vec<_>) = extras.drain(..).partition(|one| one.busy() > 0);
        *extras = busy;
        for one in idle {
            tokio::spawn(one.close(Duration::from_secs(2)));
        }
    }
}
