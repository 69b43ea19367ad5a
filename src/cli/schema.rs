//! Asking libvirt's schema, by `virt-xml-validate`.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;

use crate::domain::Domain;
use crate::domain::tree::{Element, Node};
use crate::host::capture::{Limits, run_blocking};
use crate::host::process::{End, Start, StartError};

/// The program.
const VALIDATE: &str = "virt-xml-validate";
/// Longest that it may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Exit status of xmllint for a document that the schema refuses.
const REFUSED: i32 = 3;

/// What the schema says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It accepts the domain.
    Valid,
    /// It refuses it, with these lines.
    Invalid(String),
    /// It could not be asked, for this reason.
    Unchecked(String),
}

/// The domain as one document that the schema can judge: libvirt itself takes several `devices`, which
/// OpenNebula writes, its schema only one.
#[must_use]
pub fn merged(domain: &Domain) -> String {
    let mut root = domain.root.clone();
    let mut moved = Vec::new();
    let mut seen = false;
    root.children.retain_mut(|node| {
        let Node::Element(element) = node else { return true };
        if element.name != "devices" || !std::mem::replace(&mut seen, true) {
            return true;
        }
        moved.append(&mut element.children);
        false
    });
    if let Some(devices) = first_devices(&mut root) {
        devices.children.append(&mut moved);
    }
    Domain { root, warnings: Vec::new() }.to_xml()
}

fn first_devices(root: &mut Element) -> Option<&mut Element> {
    root.children.iter_mut().find_map(|node| match node {
        Node::Element(element) if element.name == "devices" => Some(element),
        _ => None,
    })
}

/// Asks the schema for domains about `xml`. Blocks; not for use inside a runtime.
#[must_use]
pub fn check(xml: &str) -> Verdict {
    let file = tempfile::Builder::new().prefix("kvmad-").suffix(".xml").tempfile();
    let file = match file.and_then(|mut file| file.write_all(xml.as_bytes()).map(|()| file)) {
        Ok(file) => file,
        Err(error) => return Verdict::Unchecked(format!("no temporary file: {error}")),
    };
    let start = Start::new(VALIDATE).arg(file.path().as_os_str()).arg("domain").env("LC_ALL", "C");
    let limits = Limits { limit: Some(LIMIT), grace: Duration::from_secs(1), ..Limits::default() };
    let finished = match run_blocking(&start, Bytes::new(), &limits) {
        Ok(finished) => finished,
        Err(StartError::NotFound { .. }) => {
            return Verdict::Unchecked(format!("{VALIDATE} is not installed (package libvirt-clients)"));
        }
        Err(error) => return Verdict::Unchecked(error.to_string()),
    };
    let path = file.path().display().to_string();
    let said = String::from_utf8_lossy(&finished.stderr).replace(&path, "line ").replace("line :", "line ");
    match finished.end {
        End::Exited(0) => Verdict::Valid,
        End::Exited(REFUSED) => Verdict::Invalid(complaints(&said)),
        End::Exited(status) => {
            Verdict::Unchecked(format!("{VALIDATE} ended with status {status}: {}", said.trim()))
        }
        End::Signaled(signal) => Verdict::Unchecked(format!("{VALIDATE} was ended by signal {signal}")),
    }
}

/// What it complains about, without the last line, which only repeats that it does.
fn complaints(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let useful = if lines.len() > 1 { &lines[..lines.len() - 1] } else { &lines[..] };
    useful.iter().take(20).map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
