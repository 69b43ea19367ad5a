//! The core's side, as far as a driver sees it: which program its configuration names, and how that is started. oned itself is
//! not here; whoever changes a line of its file sees the effect nevertheless.

use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use super::machine::Machine;
use crate::harness::conversation::{Conversation, Line};
use crate::harness::wait_for;

/// Where oned looks for a program whose name is no absolute path.
const MADS: &str = "/usr/lib/one/mads";

/// The text of the entry `section = [ ... NAME = "name" ... ]`, as a range of `conf`.
pub fn entry(conf: &str, section: &str, name: &str) -> std::ops::Range<usize> {
    let head = format!("{section} = [");
    let mut at = 0;
    for line in conf.split_inclusive('\n') {
        let end = at + conf[at..].find(']').unwrap_or(0);
        if line.starts_with(&head) && value(&conf[at..end], "NAME").as_deref() == Some(name) {
            return at..end;
        }
        at += line.len();
    }
    panic!("no {section} {name}: {conf}")
}

/// The value of a line `key = "value"`.
pub fn value(entry: &str, key: &str) -> Option<String> {
    let line = entry
        .lines()
        .map(str::trim)
        .find(|line| line.split('=').next().is_some_and(|word| word.trim() == key))?;
    line.split('"').nth(1).map(str::to_owned)
}

/// `conf` in which the line EXECUTABLE of an entry is `line`.
pub fn switched(conf: &str, section: &str, name: &str, line: &str) -> String {
    let range = entry(conf, section, name);
    let old = conf[range.clone()]
        .lines()
        .find(|text| text.trim().starts_with("EXECUTABLE"))
        .expect("a line EXECUTABLE")
        .to_owned();
    let indent = &old[..old.len() - old.trim_start().len()];
    let new = conf[range.clone()].replacen(&old, &format!("{indent}{}", line.trim()), 1);
    format!("{}{new}{}", &conf[..range.start], &conf[range.end..])
}

/// A driver, started as the file on the machine says.
pub struct Started {
    child: Child,
    stdin: ChildStdin,
    pub conversation: Conversation,
    pub program: String,
}

impl Started {
    /// Reads `file`, starts what the entry names, as the core's user, and takes its INIT.
    pub fn by(machine: &Machine, file: &str, section: &str) -> Self {
        let conf = std::fs::read_to_string(machine.at(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let entry = &conf[entry(&conf, section, "kvm")];
        let executable = value(entry, "EXECUTABLE").expect("EXECUTABLE");
        let program = if executable.starts_with('/') { executable } else { format!("{MADS}/{executable}") };
        let mut command = machine.user("oneadmin");
        command.args(["perl", "/usr/local/lib/as-oned", &program]);
        command.args(value(entry, "ARGUMENTS").as_deref());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the driver starts");
        let stdin = child.stdin.take().expect("a pipe");
        let conversation = Conversation::of(child.stdout.take().expect("a pipe"));
        let mut started = Self { child, stdin, conversation, program };
        started.line("INIT");
        let first = started.conversation.wait(Duration::from_secs(10), |lines| lines.first().cloned());
        let first = first.unwrap_or_else(|| panic!("{}: no reply to INIT within 10 s", started.program));
        assert_eq!(first.raw, "INIT SUCCESS - -", "{}", started.program);
        started
    }

    pub fn line(&mut self, text: &str) {
        use std::io::Write as _;
        writeln!(self.stdin, "{text}").unwrap_or_else(|e| panic!("{}: {e}", self.program));
    }

    /// A request and its reply.
    pub fn ask(&mut self, verb: &str, id: u32, request: &str) -> Line {
        self.line(request);
        self.conversation.reply(verb, id, 0, Duration::from_secs(120))
    }

    /// FINALIZE.
    pub fn end(mut self) {
        self.line("FINALIZE");
        let ended = wait_for(Duration::from_secs(30), || self.child.try_wait().expect("our child"));
        assert!(ended.is_some_and(|status| status.success()), "{}: {ended:?}", self.program);
    }
}

#[test]
fn the_line_of_the_right_entry_is_switched() {
    let conf = "VM_MAD = [\n  NAME = \"qemu\",\n  EXECUTABLE = \"one_vmm_exec\"\n]\n# VM_MAD\nVM_MAD = [\n  NAME = \"kvm\",\n  EXECUTABLE = \"one_vmm_exec\",\n  ARGUMENTS = \"-t 15 kvm\"\n]\n";
    let new = switched(conf, "VM_MAD", "kvm", "EXECUTABLE = \"/x\",\n");
    assert_eq!(new.matches("one_vmm_exec").count(), 1);
    let entry = &new[entry(&new, "VM_MAD", "kvm")];
    assert_eq!(value(entry, "EXECUTABLE").as_deref(), Some("/x"));
    assert_eq!(value(entry, "ARGUMENTS").as_deref(), Some("-t 15 kvm"));
}
