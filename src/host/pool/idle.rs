//! Connections that nobody uses any more.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::sleep;

use super::{CLOSE_WAIT, Inner};

/// Closes what nobody has used for a while, and the longest idle when a place is wanted.
pub(super) async fn close_idle(pool: Weak<Inner>) {
    loop {
        let (idle, common) = match pool.upgrade() {
            Some(inner) => (inner.options.host.idle, inner.common.clone()),
            None => return,
        };
        let wanted = tokio::select! {
            () = common.wanted.notified() => true,
            () = sleep((idle / 4).clamp(Duration::from_millis(100), Duration::from_secs(10))) => false,
        };
        let Some(inner) = pool.upgrade() else { return };
        let mut entries: Vec<_> = inner.hosts().values().cloned().collect();
        entries.iter().for_each(|entry| entry.close_idle_extras());
        entries.retain(|entry| entry.idle_since().is_some());
        entries.sort_by_key(|entry| entry.idle_since());
        let mut make_room = wanted;
        for entry in entries {
            let old = entry.idle_since().is_some_and(|since| since.elapsed() >= idle);
            if (old || make_room) && entry.is_connected().await {
                make_room = false;
                tokio::spawn(async move { entry.close(false, CLOSE_WAIT).await });
            }
        }
        inner.source.forget().await;
    }
}
