//! The VMM driver: one request becomes one plan of steps with roll-back, and one reply.

pub mod driver;
pub mod execute;
pub mod payload;
pub mod plan;
pub mod setup;
pub mod verb;

use std::process::ExitCode;

/// Runs the driver with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(255)
}
