//! Options of the VMM driver (`one_vmm_exec`, `one_vmm_ssh`, `one_vmm_sh`).

use std::path::PathBuf;
use std::time::Duration;

use super::getopt::{self, Argument, Known};
use super::lists::ActionList;
use super::take_proxy;

/// Actions that `one_vmm_sh` runs on the front-end: the list of OpenNebula 7.4.
const LOCAL_OF_SH: &str = "deploy,shutdown,reboot,cancel,save,restore,migrate,poll,pre,post,clean,snapshotcreate,\
    snapshotrevert,snapshotdelete,attach_nic,detach_nic,reset,prereconfigure,reconfigure,attach_disk,detach_disk,\
    resize_disk,update_sg,resize,update_nic";

const KNOWN: &[Known] = &[
    Known { short: Some('r'), long: "retries", argument: Argument::Optional },
    Known { short: Some('t'), long: "threads", argument: Argument::Optional },
    Known { short: Some('l'), long: "local", argument: Argument::Required },
    Known { short: Some('s'), long: "shell", argument: Argument::Required },
    Known { short: Some('p'), long: "parallel", argument: Argument::No },
    Known { short: Some('w'), long: "timeout", argument: Argument::Optional },
    Known { short: Some('d'), long: "delegate", argument: Argument::Required },
    Known { short: Some('i'), long: "live-snapshots", argument: Argument::No },
    Known { short: None, long: "default-snapshots", argument: Argument::Required },
    Known { short: None, long: "generate-domain", argument: Argument::Required },
];

/// What the VMM driver was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmmOptions {
    /// The folder below `vmm/` whose scripts run.
    pub hypervisor: String,
    /// How often a direct call is repeated after a failure.
    pub retries: usize,
    /// Most actions that run at once; at least 1.
    pub threads: usize,
    /// Actions that run on the front-end.
    pub local: ActionList,
    /// Remote shell that reads commands from its stdin.
    pub shell: String,
    /// Whether one host may run several actions at once.
    pub parallel: bool,
    /// Time limit of each command; `None` when it is not given or 0.
    pub timeout: Option<Duration>,
    /// Actions whose connection forwards the ssh agent.
    pub delegate: ActionList,
    /// `http_proxy` for the scripts.
    pub proxy: Option<String>,
    /// Deployment defaults with which DEPLOY makes the domain itself instead of using that of oned.
    pub generate_domain: Option<PathBuf>,
}

/// The driver can't start: no hypervisor is named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no hypervisor is named in the arguments {arguments:?}: set ARGUMENTS of the VM_MAD section in oned.conf to \
     something like \"-t 15 -r 0 kvm -p\""
)]
pub struct NoHypervisor {
    /// The arguments, joined by blanks.
    pub arguments: String,
}

impl VmmOptions {
    /// Reads the arguments of a driver started under `program` (`one_vmm_sh` has a list of local actions of its
    /// own, which a `-l` replaces). Gives the options and warnings for the log.
    ///
    /// # Errors
    /// [`NoHypervisor`]; everything else that is odd is a warning.
    pub fn parse(
        program: &str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<(Self, Vec<String>), NoHypervisor> {
        let mut words = getopt::split(arguments);
        let all = words.join(" ");
        let proxy = take_proxy(&mut words);
        let mut words = getopt::read(words, KNOWN);
        let hypervisor = match words.operands.first() {
            Some(hypervisor) => hypervisor.clone(),
            None => return Err(NoHypervisor { arguments: all }),
        };
        for extra in words.operands.iter().skip(1) {
            words.warnings.push(format!("the word {extra:?} behind the hypervisor is ignored"));
        }
        let mut options = Self::defaults(program, hypervisor, proxy);
        for (name, value) in words.options {
            options.set(name, value.as_deref(), &mut words.warnings);
        }
        Ok((options, words.warnings))
    }

    fn defaults(program: &str, hypervisor: String, proxy: Option<String>) -> Self {
        let local = if program == "one_vmm_sh" { LOCAL_OF_SH } else { "" };
        Self {
            hypervisor,
            retries: 0,
            threads: 15,
            local: ActionList::parse(local),
            shell: "bash".to_owned(),
            parallel: false,
            timeout: None,
            delegate: ActionList::parse("migrate"),
            proxy,
            generate_domain: None,
        }
    }

    fn set(&mut self, name: &str, value: Option<&str>, warnings: &mut Vec<String>) {
        let text = value.unwrap_or("");
        match name {
            "retries" => self.retries = getopt::leading_number(value),
            "threads" => {
                self.threads = getopt::leading_number(value).max(1);
                if getopt::leading_number(value) == 0 {
                    warnings.push(format!("-t {text:?} would run nothing; 1 action at a time is run"));
                }
            }
            "local" => self.local = ActionList::parse(text),
            "shell" => text.clone_into(&mut self.shell),
            "parallel" => self.parallel = true,
            "timeout" => {
                let seconds = getopt::leading_number(value);
                self.timeout = (seconds > 0).then(|| Duration::from_secs(seconds as u64));
            }
            // 4.14 had -d for something else: how disk snapshots are made, "detach" or "suspend".
            "delegate" if text == "detach" || text == "suspend" => warnings.push(format!(
                "-d {text} is the option of OpenNebula 4.14 for disk snapshots and is ignored; delegated actions are \
                 unchanged"
            )),
            "delegate" => self.delegate = ActionList::parse(text),
            "generate-domain" => self.generate_domain = Some(PathBuf::from(text)),
            "live-snapshots" | "default-snapshots" => {
                warnings.push(format!("option --{name} of OpenNebula 4.14 has no effect any more"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (VmmOptions, Vec<String>) {
        VmmOptions::parse("one_vmm_exec", [text.to_owned()]).expect(text)
    }

    #[test]
    fn the_default_arguments_of_every_version_are_understood() {
        let (options, warnings) = parse("-t 15 -r 0 kvm -p");
        assert_eq!((options.hypervisor.as_str(), options.threads, options.retries), ("kvm", 15, 0));
        assert!(options.parallel && warnings.is_empty());
        assert!(options.delegate.contains("migrate") && options.local == ActionList::default());
        assert_eq!((options.shell.as_str(), options.timeout), ("bash", None));

        let (options, warnings) = parse("-t 15 -r 0 -i kvm");
        assert_eq!((options.hypervisor.as_str(), options.parallel), ("kvm", false));
        assert_eq!(warnings.len(), 1);

        let (options, _) = parse("-r 0 -t 15 -l migrate=migrate_local,poll=poll_ganglia,save kvm");
        assert_eq!(options.local.script("migrate"), Some("migrate_local"));
    }

    #[test]
    fn without_a_hypervisor_the_driver_does_not_start() {
        for text in ["", "-t 15", "-t kvm", "--"] {
            let error = VmmOptions::parse("one_vmm_exec", [text.to_owned()]).expect_err(text);
            assert!(error.to_string().contains("no hypervisor"), "{error}");
        }
        assert!(VmmOptions::parse("one_vmm_exec", []).is_err());
    }

    #[test]
    fn no_slots_means_one_and_no_seconds_means_no_limit() {
        let (options, warnings) = parse("-t 0 -w 0 kvm");
        assert_eq!((options.threads, options.timeout), (1, None));
        assert_eq!(warnings.len(), 1);
        assert_eq!(parse("-w 90 kvm").0.timeout, Some(Duration::from_secs(90)));
        assert_eq!(parse("-w -t 3 kvm").0.timeout, None);
    }

    #[test]
    fn both_meanings_of_d_are_told_apart() {
        let (options, _) = parse("-d deploy,migrate kvm");
        assert!(options.delegate.contains("deploy"));
        let (options, warnings) = parse("-d detach kvm");
        assert_eq!(options.delegate, ActionList::parse("migrate"));
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn one_vmm_sh_has_a_list_that_l_replaces() {
        let (options, _) = VmmOptions::parse("one_vmm_sh", ["kvm".to_owned()]).expect("good");
        assert!(options.local.contains("deploy") && options.local.contains("update_nic"));
        assert_eq!(options.local.names().count(), 25);
        let (options, _) = VmmOptions::parse("one_vmm_sh", ["kvm -l save".to_owned()]).expect("good");
        assert_eq!(options.local.names().collect::<Vec<_>>(), ["SAVE"]);
    }

    #[test]
    fn the_proxy_is_no_option_and_never_the_hypervisor() {
        let (options, warnings) = parse("--proxy http://p:3128 kvm");
        assert_eq!((options.hypervisor.as_str(), options.proxy.as_deref()), ("kvm", Some("http://p:3128")));
        assert!(warnings.is_empty());
    }

    #[test]
    fn the_own_domain_is_asked_for_by_a_long_option() {
        let (options, _) = parse("kvm --generate-domain=/etc/one/vmm_exec/vmm_exec_kvm.conf");
        assert_eq!(options.generate_domain, Some("/etc/one/vmm_exec/vmm_exec_kvm.conf".into()));
    }
}
