//! The VMM driver: one request becomes one plan of steps with roll-back, and one reply.

use std::process::ExitCode;

/// Runs the driver with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(255)
}
