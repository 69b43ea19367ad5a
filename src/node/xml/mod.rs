//! `kvmad-node xml`: what the action scripts ask of XML, so that none of them reads or writes it itself.
//!
//! Documents come on stdin, answers go to stdout. Exit status: 0 done, 1 a finding (something is not there),
//! 2 the input can't be read or the question is none, 3 something else is there, 4 it is there already; the reason stands on stderr.

mod device;
mod domain;
pub mod edit;
mod fits;
mod path;
pub(crate) mod relocate;
pub(crate) mod snapshot;
mod start;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use crate::template::xml::Document;

use path::Path;

/// Questions about a document on stdin, and changes to it.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the text at each path, one line each; an empty line where there is nothing
    Get {
        /// End each value with NUL instead of a newline
        #[arg(short = '0', long)]
        null: bool,
        /// Paths below the outermost element: `os/nvram`, `devices/disk[@device=cdrom]/target/@dev`, `VM/TEMPLATE/DISK[ATTACH=YES]/TARGET`
        #[arg(required = true)]
        paths: Vec<Path>,
    },
    /// Print all that stands at a path, one line each
    All {
        /// End each value with NUL instead of a newline
        #[arg(short = '0', long)]
        null: bool,
        /// As for `get`
        path: Path,
    },
    /// For each element at a path print the text at each field below it, an empty one where there is nothing
    Each {
        /// End each value with NUL instead of a newline
        #[arg(short = '0', long)]
        null: bool,
        /// As for `get`
        path: Path,
        /// Paths below that element
        #[arg(required = true)]
        fields: Vec<Path>,
    },
    /// Succeed when there is something at a path, exit 1 when there is not
    Has {
        /// As for `get`
        path: Path,
    },
    /// Make a domain ready for `virsh create` and say what the start needs. Each of these ends with the character 0x1e: name,
    /// uuid, folder of the VM, its file of firmware variables with format and template, kind of its TPM, what its VM asks
    /// for (words of: cloud tpm vgpu), what it needs that this host does not have. Behind them stands the domain: links
    /// disk.N are what they point to, a missing uuid is set
    Prepare {
        /// Document of the VM (vm.xml), if there is one
        vm: PathBuf,
    },
    /// Move the paths of a domain from another system datastore to this one
    Relocate {
        /// Folder of the VM on this host: LOCATION/DATASTORE/VM
        folder: String,
    },
    /// Print the XML of the disk to attach; the action on stdin. Exit 3 when another disk is in its place, 4 when the domain has it already
    AttachDisk {
        /// Where its data are on this host
        #[arg(long)]
        path: String,
        /// What else it is made from
        #[command(flatten)]
        around: device::Around,
    },
    /// The same for the interface or PCI device to attach
    AttachNic {
        /// What else it is made from
        #[command(flatten)]
        around: device::Around,
    },
    /// Print the XML of the interface or PCI device to detach; the action on stdin
    DetachNic {
        /// What else it is made from
        #[command(flatten)]
        around: device::Around,
    },
    /// Succeed when the domain has that device, exit 1 when it has not, 3 when another is in its place
    HasDevice {
        /// XML of the device
        #[arg(long)]
        device: PathBuf,
    },
    /// Print the XML of a memory module for the domain
    Memory {
        /// MiB
        #[arg(long)]
        size: u64,
    },
    /// Succeed when a domain can go back to the snapshot on stdin, exit 1 with the reason when it can't
    SnapshotFits {
        /// The domain, as `virsh dumpxml` prints it
        #[arg(long)]
        running: PathBuf,
    },
    /// Write snapshot files, ready to be redefined and parents first, as 0001.xml, 0002.xml ...
    Snapshots {
        /// uuid of the running domain
        #[arg(long)]
        uuid: String,
        /// An empty folder for them
        #[arg(long)]
        into: PathBuf,
        /// What `virsh snapshot-dumpxml` printed
        files: Vec<PathBuf>,
    },
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// {0}
    #[error("{0}")]
    Finding(String),
    /// Another device is in the place of the one asked for.
    #[error("another device is in its place")]
    Another,
    /// What is asked for is there already.
    #[error("it is there already")]
    Already,
    /// {0}
    #[error("{0}")]
    Input(String),
}

/// Answers `command` from the stdin of the process.
#[must_use]
pub fn main(command: Command) -> ExitCode {
    let answer = answer(command, &mut std::io::stdin().lock());
    let (bytes, status, reason) = match answer {
        Ok(bytes) => (bytes, ExitCode::SUCCESS, None),
        Err(Failure::Finding(reason)) => (Vec::new(), ExitCode::from(1), Some(reason)),
        Err(Failure::Input(reason)) => (Vec::new(), ExitCode::from(2), Some(reason)),
        Err(Failure::Another) => (Vec::new(), ExitCode::from(3), None),
        Err(Failure::Already) => (Vec::new(), ExitCode::from(4), None),
    };
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        // Nobody is left to tell when stderr is gone.
        let _ = writeln!(std::io::stderr(), "{reason}");
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(&bytes).and_then(|()| out.flush()) {
        Ok(()) => status,
        Err(_) => ExitCode::from(2),
    }
}

fn answer(command: Command, stdin: &mut dyn Read) -> Result<Vec<u8>, Failure> {
    match command {
        Command::Get { null, paths } => {
            let document = read(stdin)?;
            let values = paths.iter().map(|path| path.first(document.root()).unwrap_or_default());
            Ok(list(values, null))
        }
        Command::All { null, path } => Ok(list(path.all(read(stdin)?.root()).into_iter(), null)),
        Command::Each { null, path, fields } => {
            let document = read(stdin)?;
            let rows = path.elements(document.root()).into_iter();
            let values = rows.flat_map(|row| fields.iter().map(|field| field.first(row).unwrap_or_default()));
            Ok(list(values, null))
        }
        Command::Has { path } => {
            if path.first(read(stdin)?.root()).is_none() {
                return Err(Failure::Finding(String::new()));
            }
            Ok(Vec::new())
        }
        Command::Prepare { vm } => start::start(&read(stdin)?, &vm).map(String::into_bytes),
        Command::Relocate { folder } => relocate::relocate(&read(stdin)?, &folder).map(String::into_bytes),
        Command::AttachDisk { path, around } => {
            device::to_attach(&read(stdin)?, &around, device::Which::Disk(&path))
        }
        Command::AttachNic { around } => device::to_attach(&read(stdin)?, &around, device::Which::Nic),
        Command::DetachNic { around } => device::to_detach(&read(stdin)?, &around),
        Command::HasDevice { device } => {
            let device = device::read_file(&device)?;
            match device::meet(read(stdin)?.root(), device.root()) {
                device::Meeting::There => Ok(Vec::new()),
                device::Meeting::Absent => Err(Failure::Finding(String::new())),
                device::Meeting::Another => Err(Failure::Another),
            }
        }
        Command::Memory { size } => device::memory(read(stdin)?.root(), size).map(String::into_bytes),
        Command::SnapshotFits { running } => {
            let running = device::read_file(&running)?;
            fits::fits(read(stdin)?.root(), running.root()).map(|notes| list(notes.into_iter(), false))
        }
        Command::Snapshots { uuid, into, files } => {
            snapshot::write_ordered(&uuid, &into, &files).map(|notes| list(notes.into_iter(), false))
        }
    }
}

fn read(stdin: &mut dyn Read) -> Result<Document, Failure> {
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).map_err(|error| Failure::Input(format!("can't read stdin: {error}")))?;
    parse(bytes, "the document on stdin")
}

/// Parses `bytes`; `what` names them in the reason.
fn parse(bytes: Vec<u8>, what: &str) -> Result<Document, Failure> {
    let text =
        String::from_utf8(bytes).map_err(|error| Failure::Input(format!("{what} is not UTF-8: {error}")))?;
    Document::parse(text).map_err(|error| Failure::Input(format!("{what}: {error}")))
}

fn list(values: impl Iterator<Item = String>, null: bool) -> Vec<u8> {
    let end = if null { b'\0' } else { b'\n' };
    let mut out = Vec::new();
    for value in values {
        out.extend_from_slice(value.as_bytes());
        out.push(end);
    }
    out
}

/// Text form of a path given as an argument, for messages.
fn shown(path: &std::path::Path) -> String {
    OsString::from(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(command: Command, document: &str) -> Result<String, Failure> {
        answer(command, &mut document.as_bytes()).map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    fn paths(texts: &[&str]) -> Vec<Path> {
        texts.iter().map(|text| text.parse().expect("a path")).collect()
    }

    #[test]
    fn get_prints_one_value_a_path_also_where_there_is_none() {
        let get = |null| Command::Get { null, paths: paths(&["A", "B/C", "D/@e"]) };
        let document = "<X><A>1\n2</A><D e='&lt;'/></X>";
        assert_eq!(ask(get(true), document).expect("an answer"), "1\n2\0\0<\0");
        assert_eq!(ask(get(false), document).expect("an answer"), "1\n2\n\n<\n");
    }

    #[test]
    fn each_prints_a_row_for_every_element_and_no_field_shifts() {
        let command = Command::Each {
            null: false,
            path: "T/N[V=a]".parse().expect("a path"),
            fields: paths(&["B", "C"]),
        };
        let document = "<X><T><N><V>a</V><C>1</C></N><N><V>b</V></N></T><T><N><V>a</V><B>2</B></N></T></X>";
        assert_eq!(ask(command, document).expect("an answer"), "\n1\n2\n\n");
    }

    #[test]
    fn has_tells_there_from_not_there_and_from_unreadable() {
        let has = |path: &str| Command::Has { path: path.parse().expect("a path") };
        assert!(ask(has("A"), "<X><A/></X>").is_ok());
        assert!(matches!(ask(has("B"), "<X><A/></X>"), Err(Failure::Finding(_))));
        assert!(matches!(ask(has("A"), "<X><A></X>"), Err(Failure::Input(_))));
        assert!(matches!(ask(has("A"), ""), Err(Failure::Input(_))));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let command = Command::All { null: false, path: "A".parse().expect("a path") };
        let answer = answer(command, &mut &b"<X>\xff</X>"[..]);
        assert!(matches!(answer, Err(Failure::Input(reason)) if reason.contains("UTF-8")));
    }
}
