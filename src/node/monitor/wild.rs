//! Domains that run here and are not OpenNebula's: told so that they can be imported.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::text::{line, quoted};
use super::virsh::Virsh;
use crate::template::xml::{Document, Element};

/// VM blocks with ID -1 for the active domains whose name does not begin with `one-` and a digit. One that can't be
/// read is left out and said to `complain`.
pub async fn attributes(
    virsh: &Virsh,
    active: &[(String, String)],
    text: &mut String,
    mut complain: impl FnMut(String),
) {
    let wild: Vec<&(String, String)> = active.iter().filter(|(_, name)| is_wild(name)).collect();
    if wild.is_empty() {
        return;
    }
    let uuids: Vec<String> = wild.iter().map(|(uuid, _)| uuid.clone()).collect();
    let dumps = match virsh.xml(&uuids).await {
        Ok(dumps) => dumps,
        Err(reason) => return complain(format!("domains that are not OpenNebula's can't be read: {reason}")),
    };
    for (uuid, name) in wild {
        let xml = dumps.iter().find(|(other, _)| other == uuid);
        let Some(template) = xml.and_then(|(_, xml)| template(xml)) else {
            complain(format!("the domain {name} ({uuid}) can't be read"));
            continue;
        };
        let fields = [
            ("ID", "-1".to_owned()),
            ("DEPLOY_ID", uuid.clone()),
            ("VM_NAME", name.clone()),
            ("IMPORT_TEMPLATE", STANDARD.encode(template)),
        ];
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        text.push_str(&format!("VM = [{}]\n", fields.join(", ")));
    }
}

/// Whether a domain of this name is not OpenNebula's.
#[must_use]
pub fn is_wild(name: &str) -> bool {
    !name.strip_prefix("one-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The same template in base64, for one domain's XML.
#[must_use]
pub fn template_of(xml: &str) -> Option<String> {
    template(xml).map(|text| STANDARD.encode(text))
}

/// The template under which it would be imported.
fn template(xml: &str) -> Option<String> {
    let document = Document::parse(xml).ok()?;
    let domain = document.root();
    let mut text = String::new();
    line(&mut text, "NAME", &domain.text_at("name")?);
    let cpus = domain.text_at("vcpu").and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(1);
    text.push_str(&format!("CPU={cpus}\nVCPU={cpus}\nMEMORY={}\nHYPERVISOR=\"kvm\"\n", mebibytes(domain)));
    line(&mut text, "DEPLOY_ID", &domain.text_at("uuid").unwrap_or_default());
    let arch = domain.at("os/type").and_then(|kind| kind.attribute("arch")).unwrap_or_default();
    text.push_str(&format!("OS=[ARCH={}]\n", quoted(arch)));
    let features: Vec<String> = ["acpi", "apic", "pae"]
        .iter()
        .filter(|name| domain.at(&format!("features/{name}")).is_some())
        .map(|name| format!("{}=\"yes\"", name.to_ascii_uppercase()))
        .collect();
    if !features.is_empty() {
        text.push_str(&format!("FEATURES=[{}]\n", features.join(", ")));
    }
    let graphics = domain.child("devices").into_iter().flat_map(|devices| devices.children("graphics"));
    for screen in graphics {
        let (Some(kind), Some(port)) = (screen.attribute("type"), screen.attribute("port")) else { continue };
        if matches!(kind, "spice" | "vnc") {
            text.push_str(&format!("GRAPHICS = [ TYPE={}, PORT={} ]\n", quoted(kind), quoted(port)));
        }
    }
    Some(text)
}

/// Memory in MiB; libvirt writes KiB unless it says another unit.
fn mebibytes(domain: &Element) -> u64 {
    let Some(memory) = domain.child("memory") else { return 0 };
    let amount: u64 = memory.text().trim().parse().unwrap_or(0);
    let bytes = match memory.attribute("unit").unwrap_or("KiB") {
        "b" | "bytes" => amount,
        "MiB" | "M" => amount.saturating_mul(1 << 20),
        "GiB" | "G" => amount.saturating_mul(1 << 30),
        "TiB" | "T" => amount.saturating_mul(1 << 40),
        _ => amount.saturating_mul(1 << 10),
    };
    bytes >> 20
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::node::tools::fake::Fake;

    const A: &str = "19062f04-b7aa-4e3e-8fcd-de3db72803d6";
    const B: &str = "d5927dae-fd85-4012-87a5-8fcb225a4f22";

    #[tokio::test]
    async fn a_wild_domain_is_told_and_a_broken_one_costs_only_itself() {
        let xml = format!(
            "=kvmad={A}=<domain type='kvm'><name>we\"ird]]&gt;</name><uuid>{A}</uuid><memory unit='KiB'>1048576</memory><vcpu placement='static'>2</vcpu><os><type arch='x86_64'>hvm</type></os><features><acpi/><pae/></features><devices><graphics type='vnc' port='5901'/></devices></domain>=kvmad==kvmad={B}==kvmad="
        );
        let virsh = Virsh::new(Arc::new(Fake(move |_: &_| Ok(xml.clone()))), "u", Duration::from_secs(1));
        let active = [
            (A.to_owned(), "we\"ird]]>".to_owned()),
            (B.to_owned(), "broken".to_owned()),
            (B.to_owned(), "one-7".to_owned()),
        ];
        let (mut text, mut said) = (String::new(), Vec::new());
        attributes(&virsh, &active, &mut text, |reason| said.push(reason)).await;
        assert_eq!(said, [format!("the domain broken ({B}) can't be read")]);
        assert_eq!(super::super::text::check(&text), Ok(()));
        assert!(
            text.starts_with(&format!(
                "VM = [ID=\"-1\", DEPLOY_ID=\"{A}\", VM_NAME=\"we\\\"ird]] >\", IMPORT_TEMPLATE=\""
            )),
            "{text}"
        );
        let packed =
            text.split("IMPORT_TEMPLATE=\"").nth(1).and_then(|t| t.split('"').next()).expect("there");
        let template = String::from_utf8(STANDARD.decode(packed).expect("base64")).expect("text");
        assert_eq!(
            template,
            format!(
                "NAME=\"we\\\"ird]] >\"\nCPU=2\nVCPU=2\nMEMORY=1024\nHYPERVISOR=\"kvm\"\nDEPLOY_ID=\"{A}\"\nOS=[ARCH=\"x86_64\"]\nFEATURES=[ACPI=\"yes\", PAE=\"yes\"]\nGRAPHICS = [ TYPE=\"vnc\", PORT=\"5901\" ]\n"
            )
        );
    }

    #[test]
    fn wild_is_what_does_not_begin_like_ours() {
        assert!(is_wild("web") && is_wild("one-") && is_wild("one-x") && is_wild("One-1"));
        assert!(!is_wild("one-1") && !is_wild("one-12x"));
    }
}
