//! `kvmad vm console`: this terminal becomes the serial console of a VM, over ssh.

use std::io::Write;

use clap::Args;

use super::site::{SCRIPT, on_site};
use super::{Stop, Which};
use crate::host::process::Start;

/// Arguments of `kvmad vm console`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Only tell where the graphical display is
    #[arg(long)]
    display: bool,
}

/// Becomes `ssh -t HOST .../cloud console NAME`; returns only when it can't, or for the display.
pub fn run(arguments: &Arguments, err: &mut dyn Write) -> Result<String, Stop> {
    let Which { name, host } = &arguments.which;
    // Also makes sure that the VM runs and that the host has the script.
    let (display, remotes) = on_site(async |site| {
        let display = site.ask(host, &["display", name], "").await?;
        Ok((display, site.remote_dir.clone()))
    })?;
    let display = display.trim();
    if arguments.display {
        return Ok(format!("{display}\n"));
    }
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(err, "{name} on {host}: Ctrl-] leaves the console; display {display}");
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if !remotes.chars().all(plain) {
        return Err(Stop::unchecked(format!("{remotes}: no command can be made of this folder")));
    }
    // Only fixed words and a checked name: a shell on the host reads them.
    let command = format!("{remotes}/{SCRIPT}");
    let error = Start::new("ssh").args(["-t", "--", host.as_str(), &command, "console", name]).exec();
    Err(Stop::unchecked(error.to_string()))
}
