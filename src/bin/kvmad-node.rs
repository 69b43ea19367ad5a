//! `kvmad-node`: what runs on a host.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvmad::node::main()
}
