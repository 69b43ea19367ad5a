//! The IM driver: starts, stops and pulls the monitoring of hosts.
//!
//! [`request`] reads what `oned` (up to 5.10) or `onemonitord` (from 5.12) wants, [`driver`] does it over the same
//! connections as the VMM driver, [`form`] writes the answers, [`start`] is the program.

pub mod driver;
pub mod form;
pub mod request;
pub mod start;

pub use start::main;
