//! `one_vmm_exec --help` and `one_im_exec --help`, for people; oned never asks so.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Command;

use super::man;

/// Prints the usage of the VMM driver when that is all that the process was asked for.
#[must_use]
pub fn vmm() -> Option<ExitCode> {
    asked(man::vmm_driver)
}

/// The same for the IM driver.
#[must_use]
pub fn im() -> Option<ExitCode> {
    asked(man::im_driver)
}

fn asked(command: fn() -> Command) -> Option<ExitCode> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [word] = words.as_slice() else { return None };
    let text = match word.to_str()? {
        "--help" | "-h" => command().render_long_help().to_string(),
        "--version" => command().render_version(),
        _ => return None,
    };
    // Nobody is left to tell when stdout is gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Some(ExitCode::SUCCESS)
}
