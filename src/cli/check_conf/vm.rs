//! Checking a VM: can its domain be made, and what will libvirt refuse?

use std::path::Path;

use super::finding::{Checked, Finding, Kind};
use crate::cli::input::{self, Unreadable};
use crate::domain::tree::Element;
use crate::domain::{self, Inputs, Options};
use crate::template::Template;
use crate::template::text::Gravity;

/// Disks that the IDE controller of a pc machine takes.
const IDE_DISKS: usize = 4;

/// Checks the VM; `defaults` is the vmm_exec_kvm.conf that goes with it, if it is known.
///
/// # Errors
/// When it can't be read or is no VM.
pub fn check(path: &Path, defaults: Option<&Template>) -> Result<Checked, Unreadable> {
    let name = path.display().to_string();
    let shipped;
    let defaults = match defaults {
        Some(defaults) => defaults,
        None => {
            shipped = input::defaults(None, &mut std::io::sink())?.parsed.template;
            &shipped
        }
    };
    let bytes = input::vm_bytes(path)?;
    let mut checked = Checked::new(&name, Kind::Vm, "");
    let vm = if input::is_xml(&bytes) {
        input::vm_document(bytes, &name)?
    } else {
        let text = input::vm_text(&bytes, &name)?;
        checked = Checked::new(&name, Kind::Vm, &text.text);
        checked.add_text(text.parsed.error.as_ref(), &text.parsed.notices);
        if text.parsed.error.is_some() {
            return Ok(checked.sorted());
        }
        let machine = defaults.vector("OS").and_then(|os| os.filled("MACHINE"));
        match input::made(&text.parsed.template, machine) {
            Ok(vm) => vm,
            Err(why) => {
                refused(&mut checked, why);
                return Ok(checked.sorted());
            }
        }
    };
    let (host, cluster) = (Template::new(), Template::new());
    let options = Options::default();
    let inputs = Inputs { vm: &vm.document, defaults, host: &host, cluster: &cluster, options: &options };
    match domain::generate(&inputs) {
        Err(refusal) => refused(&mut checked, refusal.to_string()),
        Ok(domain) => {
            for warning in domain.warnings {
                let mend = "correct the VM, or take the part out";
                checked.find("ignored", Gravity::Warning, String::new(), None, warning, mend);
            }
            ide(&mut checked, &domain.root);
        }
    }
    Ok(checked.sorted())
}

fn refused(checked: &mut Checked, why: String) {
    checked.findings.push(Finding {
        id: "refused",
        gravity: Gravity::Error,
        key: String::new(),
        place: None,
        why,
        mend: "correct the VM".to_owned(),
    });
}

/// An IDE controller takes four disks, hda to hdd.
fn ide(checked: &mut Checked, domain: &Element) {
    let devices = domain.elements().filter(|element| element.name == "devices");
    let disks = devices.flat_map(Element::elements).filter(|element| element.name == "disk");
    let targets: Vec<&str> = disks
        .filter_map(|disk| disk.elements().find(|element| element.name == "target"))
        .filter(|target| target.attribute("bus") == Some("ide"))
        .filter_map(|target| target.attribute("dev"))
        .collect();
    let beyond = targets.iter().any(|target| target.strip_prefix("hd").is_some_and(|rest| rest > "d"));
    if targets.len() > IDE_DISKS || beyond {
        let why = format!(
            "{} disks are on the IDE bus ({}), which has room for {IDE_DISKS}, hda to hdd",
            targets.len(),
            targets.join(", ")
        );
        let mend = "give some of them DEV_PREFIX vd or sd, or take the machine type q35";
        checked.find("too-many-ide-disks", Gravity::Error, "DISK".to_owned(), None, why, mend);
    }
}
