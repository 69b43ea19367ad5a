//! `one_vmm_exec`: the VMM driver; also one_vmm_ssh and one_vmm_sh.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvmad::cli::driver_help::vmm().unwrap_or_else(kvmad::vmm::main)
}
