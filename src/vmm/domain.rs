//! DEPLOY's own domain (`--generate-domain CONF`): made from the VM document with the defaults in CONF.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::execute::MakeDomain;
use crate::domain::{self, Emulator, Inputs, Options};
use crate::template::document::VmDocument;
use crate::template::text::{self, Rules};
use crate::template::xml::Document;
use crate::template::{Level, Template};

/// Makes domains with the defaults in `conf`, which is read for each: changes of it hold at once. `hypervisor`
/// is that of the driver; `qemu` makes domains without KVM.
#[must_use]
pub fn maker(conf: &Path, hypervisor: &str) -> MakeDomain {
    let conf = conf.to_owned();
    let emulator = if hypervisor == "qemu" { Emulator::Qemu } else { Emulator::Kvm };
    Arc::new(move |document| {
        make(&conf, emulator, document).map_err(|reason| format!("no domain can be made: {reason}"))
    })
}

fn make(conf: &Path, emulator: Emulator, document: &[u8]) -> Result<Vec<u8>, String> {
    let defaults = std::fs::read(conf).map_err(|error| format!("{}: {error}", conf.display()))?;
    let defaults = String::from_utf8_lossy(&defaults);
    let name = conf.display().to_string();
    let parsed = text::parse(&defaults, Level::Defaults, &name, Rules::DEFAULTS);
    let document = std::str::from_utf8(document).map_err(|error| error.to_string())?;
    let document = Document::parse(document).map_err(|error| error.to_string())?;
    let vm = VmDocument::read(&document, None).map_err(|error| error.to_string())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let options = Options {
        emulator,
        // oned chose this host for the VM with the firmware it names.
        check_firmware: false,
        now: i64::try_from(now).unwrap_or(i64::MAX),
        ..Options::default()
    };
    let empty = Template::new();
    let inputs =
        Inputs { vm: &vm, defaults: &parsed.template, host: &empty, cluster: &empty, options: &options };
    let domain = domain::generate(&inputs).map_err(|refusal| refusal.to_string())?;
    Ok(domain.to_xml().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "<VMM_DRIVER_ACTION_DATA><HOST>h</HOST><VM><ID>7</ID><NAME>a</NAME><TEMPLATE>\
         <MEMORY>64</MEMORY><CPU>1</CPU><OS><ARCH>x86_64</ARCH></OS></TEMPLATE><HISTORY_RECORDS><HISTORY>\
         <DS_ID>0</DS_ID></HISTORY></HISTORY_RECORDS></VM></VMM_DRIVER_ACTION_DATA>";

    #[test]
    fn the_domain_has_the_defaults_of_the_file() {
        let dir = tempfile::tempdir().expect("folder");
        let conf = dir.path().join("x.conf");
        std::fs::write(&conf, "OS = [ MACHINE = \"q35\" ]\n").expect("conf");
        let xml = maker(&conf, "kvm")(DOCUMENT.as_bytes()).expect("a domain");
        let xml = String::from_utf8(xml).expect("utf-8");
        assert!(xml.contains("<name>one-7</name>") && xml.contains("type='kvm'"), "{xml}");
        assert!(xml.contains("machine='q35'"), "{xml}");
        let xml = maker(&conf, "qemu")(DOCUMENT.as_bytes()).expect("a domain");
        assert!(String::from_utf8(xml).expect("utf-8").contains("type='qemu'"));
    }

    #[test]
    fn a_file_that_can_not_be_read_is_named() {
        let reason = maker(Path::new("/nowhere/x.conf"), "kvm")(DOCUMENT.as_bytes()).expect_err("no file");
        assert!(reason.starts_with("no domain can be made: /nowhere/x.conf: "), "{reason}");
    }
}
