//! All that the script which starts a domain wants to know, in one answer: every further process would cost the
//! start a millisecond.

use std::fs;
use std::io;
use std::path::Path as File;

use super::path::Path;
use super::{Failure, domain, parse, shown};
use crate::template::xml::{Document, Element};

/// Behind each value. XML can't hold it.
const MARK: char = '\u{1e}';

/// Values of the domain, in the order of the answer.
const VALUES: [&str; 7] = [
    "name",
    "uuid",
    "metadata/vm/system_datastore",
    "os/nvram",
    "os/nvram/@format",
    "os/nvram/@template",
    "devices/tpm/backend/@type",
];

/// What a VM may ask for: a word for the script, and where it stands in the VM's document.
const WANTS: [(&str, &str); 5] = [
    ("cloud", "TEMPLATE/DISK/CLOUD_IMAGE"),
    ("cloud", "TEMPLATE/CLOUD_INIT"),
    ("cloud", "USER_TEMPLATE/CLOUD_INIT"),
    ("tpm", "USER_TEMPLATE/TPM_STATE"),
    ("vgpu", "TEMPLATE/PCI/UUID"),
];

/// The answer for `document`, a domain, whose VM's own document is the file `vm`, if there is one.
///
/// # Errors
/// [`Failure::Input`] when one of them can't be read, or the first is no domain with a name.
pub(super) fn start(document: &Document, vm: &File) -> Result<String, Failure> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map_err(|error| Failure::Input(format!("no uuid can be made: {error}")))?;
    let text = domain::prepare(document, uuid.trim())?;
    let ready = parse(text.clone().into_bytes(), "the domain")?;
    let mut values: Vec<String> =
        VALUES.iter().map(|at| first(at, ready.root()).unwrap_or_default()).collect();
    values.push(wants(vm)?.join(" "));
    values.push(domain::missing(ready.root()).join("; "));
    values.push(text);
    if values.iter().any(|value| value.contains(MARK)) {
        return Err(Failure::Input("the domain holds a character that XML does not allow (0x1e)".to_owned()));
    }
    Ok(values.join(&MARK.to_string()))
}

fn first(at: &str, root: &Element) -> Option<String> {
    at.parse::<Path>().ok()?.first(root)
}

fn wants(vm: &File) -> Result<Vec<&'static str>, Failure> {
    let bytes = match fs::read(vm) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::Input(format!("{}: {error}", shown(vm)))),
    };
    let document = parse(bytes, &shown(vm))?;
    let mut found: Vec<_> =
        WANTS.iter().filter(|(_, at)| first(at, document.root()).is_some()).map(|(word, _)| *word).collect();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "<domain><name>one-7</name><uuid>11111111-2222-3333-4444-555555555555</uuid><os><nvram format='qcow2' \
        template='/nowhere/VARS'>/ds/7/nvram</nvram></os><devices><tpm><backend type='emulator'/></tpm></devices>\
        <metadata><one:vm xmlns:one='u'><one:system_datastore>/ds/7</one:system_datastore></one:vm></metadata></domain>";

    fn answer(domain: &str, vm: &File) -> Result<Vec<String>, Failure> {
        let document = Document::parse(domain).expect("a document");
        start(&document, vm).map(|text| text.split(MARK).map(str::to_owned).collect())
    }

    #[test]
    fn values_stand_in_their_places_also_when_some_are_missing() {
        let all = answer(DOMAIN, File::new("/nowhere/vm.xml")).expect("an answer");
        assert_eq!(all[0], "one-7");
        assert_eq!(
            all[1..6],
            ["11111111-2222-3333-4444-555555555555", "/ds/7", "/ds/7/nvram", "qcow2", "/nowhere/VARS"]
        );
        assert_eq!((all[6].as_str(), all[7].as_str(), all.len()), ("emulator", "", 10));
        assert!(all[8].contains("/nowhere/VARS can't be used"), "{}", all[8]);
        assert_eq!(all[9], DOMAIN);
        let least =
            answer("<domain><name>a</name></domain>", File::new("/nowhere/vm.xml")).expect("an answer");
        assert_eq!((least.len(), least[0].as_str(), least[1].len()), (10, "a", 36));
        assert_eq!(least[2..9].concat(), "");
        assert!(least[9].contains(&least[1]), "the uuid is in the domain");
    }

    #[test]
    fn what_the_vm_asks_for_is_named_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let vm = folder.path().join("vm.xml");
        for (inside, expected) in [
            (
                "<TEMPLATE><DISK><A/></DISK></TEMPLATE><USER_TEMPLATE><NOTE>CLOUD_INIT TPM_STATE</NOTE></USER_TEMPLATE>",
                "",
            ),
            (
                "<TEMPLATE><DISK><CLOUD_IMAGE>x</CLOUD_IMAGE></DISK></TEMPLATE><USER_TEMPLATE><CLOUD_INIT/></USER_TEMPLATE>",
                "cloud",
            ),
            ("<TEMPLATE><CLOUD_INIT><USER>a</USER></CLOUD_INIT></TEMPLATE>", "cloud"),
            (
                "<TEMPLATE><PCI><A/></PCI><PCI><UUID>u</UUID></PCI></TEMPLATE><USER_TEMPLATE><TPM_STATE>x</TPM_STATE></USER_TEMPLATE>",
                "tpm vgpu",
            ),
        ] {
            fs::write(&vm, format!("<VM>{inside}</VM>")).expect("a file");
            assert_eq!(answer(DOMAIN, &vm).expect("an answer")[7], expected, "{inside}");
        }
        fs::write(&vm, "<VM><TEMPLATE>").expect("a file");
        assert!(matches!(answer(DOMAIN, &vm), Err(Failure::Input(reason)) if reason.contains("vm.xml")));
    }

    #[test]
    fn a_value_that_would_shift_the_others_is_refused() {
        let domain = "<domain><name>a\u{1e}b</name></domain>";
        assert!(matches!(answer(domain, File::new("/nowhere")), Err(Failure::Input(_))));
    }
}
