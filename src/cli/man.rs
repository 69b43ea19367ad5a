//! `kvmad man`: writes the manual pages of everything; packages call it when they are made.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Args, Command, CommandFactory};
use clap_mangen::Man;

use crate::settings::docs;

/// Arguments of `kvmad man`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where the pages go, one file each
    folder: PathBuf,
}

/// Writes the pages into the folder, which is made if need be.
pub fn run(arguments: &Arguments, err: &mut dyn Write) -> u8 {
    match write_all(&arguments.folder) {
        Ok(()) => super::FINE,
        Err(error) => {
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(err, "{}: {error}", arguments.folder.display());
            super::UNCHECKED
        }
    }
}

fn write_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, text) in pages()? {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}

/// All pages, by file name.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    add(super::Arguments::command(), "1", &mut all)?;
    add(crate::node::Arguments::command(), "8", &mut all)?;
    for driver in [vmm_driver(), im_driver()] {
        add(driver, "8", &mut all)?;
    }
    all.push(("kvmad.conf.5".to_owned(), docs::man_page().into_bytes()));
    Ok(all)
}

/// The page of `command` and those of its subcommands, as far as they are for people.
fn add(command: Command, section: &str, all: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    one(command, section, all)
}

fn one(command: Command, section: &str, all: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        one(inner.clone(), section, all)?;
    }
    let is_for_operators = section == "1";
    let page = Man::new(command)
        .section(section)
        .source(concat!("kvmad ", env!("CARGO_PKG_VERSION")))
        .manual("KVM driver layer for OpenNebula");
    let mut text = Vec::new();
    page.render(&mut text)?;
    if is_for_operators && !String::from_utf8_lossy(&text).contains("Exit status") {
        text.extend_from_slice(EXIT_STATUS);
    }
    all.push((page.get_filename(), text));
    Ok(())
}

fn option(short: char, long: &'static str, value: &'static str, help: &'static str) -> Arg {
    let option = Arg::new(long).short(short).long(long).help(help);
    if value.is_empty() { option.action(ArgAction::SetTrue) } else { option.value_name(value) }
}

/// The options of the VMM driver, for its page only: the driver reads them as OpenNebula's does, from one argument.
pub(super) fn vmm_driver() -> Command {
    Command::new("one_vmm_exec")
        .version(env!("CARGO_PKG_VERSION"))
        .about("VMM driver of OpenNebula for KVM hosts; also one_vmm_ssh and one_vmm_sh")
        .long_about(
            "oned starts it, as its VM_MAD section says, and talks to it over stdin and stdout. It carries out actions \
             on VMs by the scripts in REMOTES/vmm, vnm, tm and datastore. All options may stand in one argument, as oned \
             hands them over, and behind the hypervisor. one_vmm_sh is the same program with a list of actions that run \
             on the front-end. Settings: kvmad.conf(5).",
        )
        .arg(option('t', "threads", "NUMBER", "Actions at a time [default: 15]"))
        .arg(option('r', "retries", "NUMBER", "Repeats of a failed direct call: poll, snapshots, resize, exec [default: 0]"))
        .arg(option('p', "parallel", "", "Several actions at a time on one host"))
        .arg(option('w', "timeout", "SECONDS", "Time limit of one script; 0 is none [default: none]"))
        .arg(option('l', "local", "LIST", "Actions that run on the front-end: NAME or NAME=SCRIPT, with commas between"))
        .arg(option('d', "delegate", "LIST", "Actions whose connections forward the ssh agent [default: migrate]"))
        .arg(option('s', "shell", "SHELL", "Taken for OpenNebula's sake; scripts are started without a shell"))
        .arg(
            Arg::new("generate-domain").long("generate-domain").value_name("FILE").help(
                "Make the domain of a DEPLOY from the VM and this file of defaults, instead of taking the one of oned",
            ),
        )
        .arg(Arg::new("proxy").long("proxy").value_name("URL").help("Sets http_proxy for scripts on the front-end"))
        .arg(Arg::new("hypervisor").value_name("HYPERVISOR").required(true).help("Folder of the scripts below vmm/: kvm, qemu"))
        .after_help(DRIVER_END)
}

/// The options of the IM driver, in the same way.
pub(super) fn im_driver() -> Command {
    Command::new("one_im_exec")
        .version(env!("CARGO_PKG_VERSION"))
        .about("IM driver of OpenNebula for KVM hosts; also one_im_ssh and one_im_sh")
        .long_about(
            "onemonitord (up to OpenNebula 5.10: oned) starts it, as its IM_MAD section says. It starts and stops the \
             monitoring agent on hosts, or runs the probes of old cores. Settings: kvmad.conf(5).",
        )
        .arg(option('t', "threads", "NUMBER", "Actions at a time [default: 15]"))
        .arg(option('r', "retries", "NUMBER", "Repeats of a failed start [default: 0]"))
        .arg(option('w', "timeout", "SECONDS", "Time limit of one command on a host; 0 is none [default: none]"))
        .arg(option('l', "local", "", "Everything runs on the front-end, as with one_im_sh"))
        .arg(option('c', "force-copy", "", "Push the remotes with every MONITOR of OpenNebula 4.2 to 5.10"))
        .arg(Arg::new("hypervisor").value_name("HYPERVISOR").required(true).help("Which monitoring: kvm, qemu"))
        .after_help(DRIVER_END)
}

/// For the pages of `kvmad`'s subcommands that do not say it in words of their own.
const EXIT_STATUS: &[u8] =
    b".SH \"EXIT STATUS\"\n0 fine, 1 a finding or a refusal, 2 wrong usage or unreadable input, 3 could not check.\n";

const DRIVER_END: &str =
    "Exit status: 0 after FINALIZE, 255 when oned closed the pipe or the arguments can't be used.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::options::{ImOptions, VmmOptions};

    fn page(name: &str) -> String {
        let found = pages().unwrap().into_iter().find(|(page, _)| page == name);
        String::from_utf8(found.unwrap_or_else(|| panic!("no page {name}")).1).unwrap()
    }

    #[test]
    fn every_command_and_subcommand_that_is_for_people_has_a_page() {
        let names: Vec<String> = pages().unwrap().into_iter().map(|(name, _)| name).collect();
        for name in [
            "kvmad.1",
            "kvmad-run.1",
            "kvmad-install-remotes.1",
            "kvmad-node.8",
            "kvmad-node-xml-get.8",
            "kvmad-node-serve.8",
        ] {
            assert!(names.iter().any(|there| there == name), "{name} is not in {names:?}");
        }
        let command = super::super::Arguments::command();
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            assert!(names.contains(&format!("kvmad-{}.1", inner.get_name())), "{}", inner.get_name());
        }
        assert!(
            !names
                .iter()
                .any(|name| name.contains("-man.") || name.contains("-help.") || name.contains("swap"))
        );
    }

    #[test]
    fn a_page_says_what_the_command_is_for_in_its_name_line() {
        let page = page("kvmad-sync.1");
        assert!(page.contains("kvmad\\-sync \\- Push the remotes to hosts"), "{page}");
    }

    #[test]
    fn every_page_of_the_operator_s_command_says_what_its_exit_status_means_once() {
        for (name, text) in pages().unwrap().into_iter().filter(|(name, _)| name.ends_with(".1")) {
            let text = String::from_utf8(text).unwrap();
            assert_eq!(
                text.matches("EXIT STATUS").count() + text.matches("Exit status").count(),
                1,
                "{name}"
            );
        }
    }

    #[test]
    fn every_option_on_the_pages_of_the_drivers_is_one_that_they_take() {
        for (command, program) in [(vmm_driver(), "one_vmm_exec"), (im_driver(), "one_im_exec")] {
            for argument in command.get_arguments().filter(|argument| argument.is_positional().eq(&false)) {
                let long = argument.get_long().unwrap();
                let value = if argument.get_action().takes_values() { " 7" } else { "" };
                let words = [format!("--{long}{value} kvm")];
                let (hypervisor, warnings) = if program == "one_vmm_exec" {
                    let (options, warnings) = VmmOptions::parse(program, words).unwrap();
                    (options.hypervisor, warnings)
                } else {
                    let (options, warnings) = ImOptions::parse(program, words);
                    (options.hypervisor, warnings)
                };
                assert_eq!((hypervisor.as_str(), warnings.len()), ("kvm", 0), "--{long}: {warnings:?}");
            }
        }
    }

    #[test]
    fn pages_are_written_into_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = Arguments { folder: folder.path().join("man") };
        assert_eq!(run(&arguments, &mut Vec::new()), super::super::FINE);
        assert!(folder.path().join("man/kvmad.conf.5").is_file());
        let arguments = Arguments { folder: folder.path().join("man/kvmad.1") };
        let mut err = Vec::new();
        assert_eq!(run(&arguments, &mut err), super::super::UNCHECKED);
        assert!(String::from_utf8(err).unwrap().contains("man/kvmad.1: "));
    }
}
