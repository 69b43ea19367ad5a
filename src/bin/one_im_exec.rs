//! `one_im_exec`: the IM driver; also one_im_ssh and one_im_sh.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvmad::cli::driver_help::im().unwrap_or_else(kvmad::im::main)
}
