//! End to end, on the test bed: a front-end and real libvirt hosts in namespaces (`tests/testbed/up`).
//!
//! `harness` starts a driver as oned does and speaks the protocol; the other modules say what must come of it.
#![allow(clippy::disallowed_methods)] // a test starts programs itself

mod faults;
mod harness;
mod life;
mod load;
mod others;
mod outcomes;
mod running;
mod scripted;
mod standin;
