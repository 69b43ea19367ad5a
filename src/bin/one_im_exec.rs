//! `one_im_exec`: the IM driver; also one_im_ssh and one_im_sh.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvmad::im::main()
}
