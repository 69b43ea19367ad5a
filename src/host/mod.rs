//! Runs a command somewhere: on a host over the driver's connection, or on the front-end.

pub mod job;

pub use job::{Ending, HostName, Job, Outcome, Place, Program, Purpose, Runner, Watch};
