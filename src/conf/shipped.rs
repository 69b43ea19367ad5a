//! The files that are shipped, made from the tables.

use super::key::{Key, Shipped};
use super::{kvmrc, vmm};

const WIDTH: usize = 100;

/// `vmm_exec_kvm.conf`.
#[must_use]
pub fn vmm_exec_kvm_conf() -> String {
    let mut out = String::from(
        "# Defaults for KVM domains. A value of the VM, its host or its cluster comes before the one here.
#
#   NAME = \"value\"                    values in double quotes may hold anything, over several lines
#   NAME = [ MEMBER = \"value\", ... ]  a vector; write it once: a second one replaces the first as a whole
#   # text                            a comment, but not directly behind `=`; the last line needs a line end
#
# Yes is yes, in any case; everything else is no. oned reads this file when it starts.
# Check it:              kvmad check-conf vmm_exec_kvm.conf
# What it does to a VM:  kvmad explain VM --defaults vmm_exec_kvm.conf
# All keys: docs/conf.md
",
    );
    let (alone, markup): (Vec<&Key>, Vec<&Key>) = vmm::KEYS
        .iter()
        .filter(|key| key.vector.is_empty())
        .partition(|key| !matches!(key.takes, super::Takes::Markup(_)));
    for key in alone {
        single(&mut out, key);
    }
    for vector in vmm::vectors() {
        whole_vector(&mut out, vector);
    }
    for key in markup {
        single(&mut out, key);
    }
    out
}

/// `kvmrc`.
#[must_use]
pub fn kvmrc() -> String {
    let mut out = String::from(
        "# shellcheck shell=bash
# Settings of the action scripts on a KVM host. This is shell: bash reads it before each action.
# After a change bring it to the hosts: onehost sync (or kvmad sync).
# Check it: kvmad check-conf kvmrc
# All variables: docs/conf.md
",
    );
    for key in kvmrc::VARIABLES {
        out.push('\n');
        comment(&mut out, "", key.text);
        match key.shipped {
            Shipped::Set(value) => {
                out.push_str(&format!("export {}={}\n", key.name, shell_words::quote(value)))
            }
            Shipped::Example(value) => {
                out.push_str(&format!("#export {}={}\n", key.name, shell_words::quote(value)));
            }
        }
    }
    out
}

fn single(out: &mut String, key: &Key) {
    out.push('\n');
    comment(out, "", key.text);
    match key.shipped {
        Shipped::Set(value) => out.push_str(&format!("{} = {}\n", key.name, quoted(value))),
        Shipped::Example(value) => out.push_str(&format!("#{} = {}\n", key.name, quoted(value))),
    }
}

/// A vector: members that are only examples come first, so that every line but the last ends in a comma.
fn whole_vector(out: &mut String, vector: &str) {
    let members = vmm::KEYS.iter().filter(|key| key.vector == vector);
    let (examples, set): (Vec<&Key>, Vec<&Key>) =
        members.partition(|key| matches!(key.shipped, Shipped::Example(_)));
    let off = if set.is_empty() { "#" } else { "" };
    let last = set.last().or(examples.last()).map(|key| key.name);
    out.push_str(&format!("\n{off}{vector} = [\n"));
    for key in examples.iter().chain(&set) {
        comment(out, "    ", key.text);
        let comma = if last == Some(key.name) { "" } else { "," };
        let (mark, value) = match key.shipped {
            Shipped::Set(value) => ("    ", value),
            Shipped::Example(value) => ("#   ", value),
        };
        out.push_str(&format!("{mark}{} = {}{comma}\n", key.name, quoted(value)));
    }
    out.push_str(&format!("{off}]\n"));
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('"', "\\\""))
}

/// A comment, folded at [`WIDTH`].
fn comment(out: &mut String, indent: &str, text: &str) {
    let mut line = format!("{indent}#");
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = format!("{indent}#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}
