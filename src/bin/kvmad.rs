//! `kvmad`: the operator's command.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvmad::cli::main()
}
