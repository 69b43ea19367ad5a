//! A credit window that a sender waits at.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::wire::Window;

/// The sender's side of a stream: waits until the receiver has granted something.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    window: Window,
    wide: bool,
}

impl Gate {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until at least one byte may be sent and says how many, `most` at most. They are not taken yet. For
    /// one waiter.
    pub async fn room(&self, most: usize) -> usize {
        loop {
            {
                let state = self.state();
                let left = if state.wide { most } else { state.window.left().min(most) };
                if left > 0 {
                    return left;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Takes what was sent: not more than [`Gate::room`] said.
    pub fn take(&self, count: usize) {
        let mut state = self.state();
        if !state.wide {
            state.window.take(count).unwrap_or_else(|_| tracing::error!(count, "sent more than was granted"));
        }
    }

    /// The receiver has granted more.
    pub fn grant(&self, count: u32) {
        self.state().window.grant(count);
        self.changed.notify_one();
    }

    /// Nobody counts any more: lets everything through (the receiver is gone, what is sent is thrown away).
    pub fn open_wide(&self) {
        self.state().wide = true;
        self.changed.notify_one();
    }
}
