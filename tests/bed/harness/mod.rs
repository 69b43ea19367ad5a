//! What the end-to-end tests and the demo stand on: the bed, a front-end folder, a driver, documents, VMs, processes.
#![allow(dead_code)] // each user of the harness needs another part of it

pub mod bed;
pub mod conversation;
pub mod document;
pub mod driver;
pub mod front_end;
pub mod others;
pub mod processes;
pub mod soak;
pub mod vm;

use std::time::{Duration, Instant};

/// How often a state is looked at while waiting for it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits until `found` gives something, at most `limit`.
pub fn wait_for<T>(limit: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = found() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
