//! Options of the IM driver (`one_im_exec`, `one_im_ssh`, `one_im_sh`).

use std::time::Duration;

use super::getopt::{self, Argument, Known};
use super::take_proxy;

const KNOWN: &[Known] = &[
    Known { short: Some('r'), long: "retries", argument: Argument::Optional },
    Known { short: Some('t'), long: "threads", argument: Argument::Optional },
    Known { short: Some('l'), long: "local", argument: Argument::No },
    Known { short: Some('c'), long: "force-copy", argument: Argument::No },
    Known { short: Some('w'), long: "timeout", argument: Argument::Optional },
];

/// What the IM driver was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImOptions {
    /// Folder of the probes for OpenNebula before 5.12; later versions name it in each request. May be empty.
    pub hypervisor: String,
    /// How often a command is repeated after a failure.
    pub retries: usize,
    /// Most actions that run at once; at least 1.
    pub threads: usize,
    /// Whether hosts are monitored by scripts on the front-end.
    pub local: bool,
    /// Copy the remotes at every MONITOR (4.2 to 5.10).
    pub force_copy: bool,
    /// Time limit of each command; `None` when it is not given or 0.
    pub timeout: Option<Duration>,
    /// `http_proxy` for the scripts.
    pub proxy: Option<String>,
}

impl ImOptions {
    /// Reads the arguments of a driver started under `program` (`one_im_sh` is local). Gives the options and
    /// warnings for the log.
    #[must_use]
    pub fn parse(program: &str, arguments: impl IntoIterator<Item = String>) -> (Self, Vec<String>) {
        let mut words = getopt::split(arguments);
        let proxy = take_proxy(&mut words);
        let mut words = getopt::read(words, KNOWN);
        let mut options = Self {
            hypervisor: words.operands.first().cloned().unwrap_or_default(),
            retries: 0,
            threads: 15,
            local: program == "one_im_sh",
            force_copy: false,
            timeout: None,
            proxy,
        };
        for (name, value) in words.options {
            let number = getopt::leading_number(value.as_deref());
            match name {
                "retries" => options.retries = number,
                "threads" => options.threads = number.max(1),
                "local" => options.local = true,
                "force-copy" => options.force_copy = true,
                "timeout" => options.timeout = (number > 0).then(|| Duration::from_secs(number as u64)),
                _ => {}
            }
        }
        for extra in words.operands.iter().skip(1) {
            words.warnings.push(format!("the word {extra:?} behind the hypervisor is ignored"));
        }
        (options, words.warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_arguments_of_every_version_are_understood() {
        for (text, retries, timeout) in [("-r 0 -t 15 kvm", 0, None), ("-r 3 -t 15 -w 90 kvm", 3, Some(90))] {
            let (options, warnings) = ImOptions::parse("one_im_ssh", [text.to_owned()]);
            assert_eq!((options.hypervisor.as_str(), options.threads, options.retries), ("kvm", 15, retries));
            assert_eq!(options.timeout, timeout.map(Duration::from_secs));
            assert!(warnings.is_empty() && !options.local && !options.force_copy);
        }
    }

    #[test]
    fn local_is_a_flag_or_the_name_of_the_program() {
        assert!(ImOptions::parse("one_im_exec", ["-l kvm".to_owned()]).0.local);
        assert!(ImOptions::parse("one_im_sh", ["kvm".to_owned()]).0.local);
        assert_eq!(ImOptions::parse("one_im_exec", ["-l -c kvm".to_owned()]).0.hypervisor, "kvm");
    }

    #[test]
    fn no_hypervisor_is_fine() {
        assert_eq!(ImOptions::parse("one_im_exec", []).0.hypervisor, "");
    }
}
