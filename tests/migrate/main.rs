//! Live migration through the driver on the test bed, between two real libvirt hosts. The guest's console tells whether
//! the same guest kept running: one tick a second, whose number never starts again and never skips.
//!
//! VM ids 7100 to 7199. `alone_` tests break what all share: daemons, networks, settings of the machine.
#![allow(clippy::disallowed_methods)] // a test starts programs itself

#[path = "../bed/harness/mod.rs"]
mod harness;

mod busy;
mod check;
mod console;
mod datastores;
mod faults;
mod firmware;
mod guest;
mod network;
mod plain;
mod secure;
mod soak;
mod stand;
