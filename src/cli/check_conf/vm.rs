//! Checking a VM: can its domain be made, and what will libvirt refuse?

use std::path::Path;

use super::attributes;
use super::finding::{Checked, Finding, Kind};
use crate::cli::domain::crowded_ide;
use crate::cli::input::{self, Unreadable};
use crate::cli::schema::{self, Verdict};
use crate::domain::{self, Inputs, Options};
use crate::template::Template;
use crate::template::text::Gravity;

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
        let vm = input::vm_document(bytes, &name)?;
        attributes::check(&mut checked, &vm.document.template);
        vm
    } else {
        let text = input::vm_text(&bytes, &name)?;
        checked = Checked::new(&name, Kind::Vm, &text.text);
        checked.add_text(text.parsed.error.as_ref(), &text.parsed.notices);
        if text.parsed.error.is_some() {
            return Ok(checked.sorted());
        }
        attributes::check(&mut checked, &text.parsed.template);
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
            for warning in &domain.warnings {
                let mend = "correct the VM, or take the part out";
                checked.find("ignored", Gravity::Warning, String::new(), None, warning.clone(), mend);
            }
            if let Some(why) = crowded_ide(&domain.root) {
                let mend = "give some of them DEV_PREFIX vd or sd, or take the machine type q35";
                checked.find("too-many-ide-disks", Gravity::Error, "DISK".to_owned(), None, why, mend);
            }
            by_schema(&mut checked, &schema::merged(&domain));
        }
    }
    Ok(checked.sorted())
}

/// What libvirt's schema says of the whole domain.
fn by_schema(checked: &mut Checked, domain: &str) {
    match schema::check(domain) {
        Verdict::Valid => {}
        Verdict::Invalid(why) => {
            let why = format!(
                "the schema of the libvirt that is installed here refuses the domain (kvmad domain-xml prints it):\n{why}"
            );
            let mend = "correct the attribute that this comes from, kvmad explain names it; what only a newer libvirt \
                        knows is refused by an older one, too";
            checked.find("refused-by-libvirt", Gravity::Error, String::new(), None, why, mend);
        }
        Verdict::Unchecked(why) => checked.unchecked.push(format!("whether libvirt takes the domain: {why}")),
    }
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
