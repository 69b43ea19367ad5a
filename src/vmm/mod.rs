//! The VMM driver: one request becomes one plan of steps with roll-back, and one reply.
//!
//! [`payload`] reads the document of a request, [`plan`] says what it makes happen, [`execute`] does it, [`driver`]
//! stands between these and the protocol, [`start`] is the program.

pub mod domain;
pub mod driver;
pub mod execute;
pub mod payload;
pub mod plan;
pub mod setup;
pub mod start;
pub mod verb;

pub use start::main;
