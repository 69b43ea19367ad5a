//! Connections by ssh: masters that carry many channels, and single ones that forward the agent.
//!
//! Everything that ssh_config says holds (host keys, users, jumps, names); only what must be so is set on top.

mod control;
mod master;
mod options;

pub use control::ControlDir;
pub use master::{ChannelRefused, Master};
pub use options::SshOptions;

/// What ssh itself says in `text`, as one line: notices about host keys that were added are left out.
pub(super) fn own_words(text: &str) -> String {
    const LONGEST: usize = 600;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut said = String::new();
    for line in lines.filter(|line| !is_decoration(line)) {
        if !said.is_empty() {
            said.push_str("; ");
        }
        said.push_str(line);
    }
    // What matters comes last.
    match said.char_indices().rev().nth(LONGEST - 1) {
        Some((at, _)) if at > 0 => format!("...{}", &said[at..]),
        _ => said,
    }
}

fn is_decoration(line: &str) -> bool {
    line.starts_with("Warning: Permanently added") || line.chars().all(|c| c == '@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_one_line_without_notices() {
        let text = "Warning: Permanently added '[127.0.0.1]:4022' (ED25519) to the list of known hosts.\r\n\r\n@@@\nssh: no\r\nx\n";
        assert_eq!(own_words(text), "ssh: no; x");
        let long = own_words(&format!("{}\nlast", "y".repeat(5000)));
        assert_eq!((long.chars().count(), long.ends_with("; last")), (603, true));
    }
}
