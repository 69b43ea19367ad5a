//! The IM driver: starts, stops and pulls the monitoring of hosts.

use std::process::ExitCode;

/// Runs the driver with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(255)
}
