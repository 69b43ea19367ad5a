//! What the hypervisor can do: machine types, CPU models and features, memory encryption.

use std::time::Duration;

use bytes::Bytes;

use super::text::line;
use super::virsh::Virsh;
use crate::template::xml::{Document, Element};

/// Guest architectures whose machines and models are told.
const ARCHITECTURES: [&str; 3] = ["i686", "x86_64", "aarch64"];
/// Kinds of virtualization, the best first.
const KINDS: [&str; 3] = ["kvm", "kqemu", "qemu"];

/// KVM_CPU_FEATURES, KVM_MACHINES, KVM_CPU_MODELS, KVM_CPU_MODEL, MEMORY_ENCRYPTION. What libvirt does not tell is
/// left out and said to `complain`.
pub async fn attributes(virsh: &Virsh, limit: Duration, text: &mut String, mut complain: impl FnMut(String)) {
    let capabilities = match virsh.run(&["capabilities"], Bytes::new(), limit).await {
        Ok(xml) => xml,
        Err(reason) => return complain(reason),
    };
    let document = match Document::parse(capabilities.trim()) {
        Ok(document) => document,
        Err(error) => return complain(format!("the capabilities of libvirt can't be read: {error}")),
    };
    let stdin = Bytes::from(capabilities.clone());
    match virsh.run(&["cpu-baseline", "--features", "--file", "/dev/stdin"], stdin, limit).await {
        Ok(xml) => line(text, "KVM_CPU_FEATURES", &features(&xml)),
        Err(_) => line(text, "KVM_CPU_FEATURES", ""),
    }
    line(text, "KVM_MACHINES", &machines(document.root()).join(" "));
    let mut models: Vec<String> = Vec::new();
    let mut encryption = None;
    let host = document.root().text_at("host/cpu/arch").unwrap_or_default();
    for arch in offered(document.root()) {
        let command = ["domcapabilities", "--arch", arch.as_str()];
        let Ok(xml) = virsh.run(&command, Bytes::new(), limit).await else { continue };
        let Ok(told) = Document::parse(xml.trim()) else { continue };
        for model in usable_models(told.root()) {
            if !models.contains(&model) {
                models.push(model);
            }
        }
        if arch == host {
            encryption = Some(memory_encryption(told.root()));
        }
    }
    line(text, "KVM_CPU_MODELS", &models.join(" "));
    line(text, "KVM_CPU_MODEL", &document.root().text_at("host/cpu/model").unwrap_or_default());
    if let Some(kind) = encryption {
        text.push_str(&format!("MEMORY_ENCRYPTION={kind}\n"));
    }
}

/// The architectures among [`ARCHITECTURES`] that this host offers to guests.
fn offered(capabilities: &Element) -> Vec<String> {
    let all = guests(capabilities).into_iter().map(|(name, _)| name);
    all.filter(|name| ARCHITECTURES.contains(&name.as_str())).collect()
}

fn guests(capabilities: &Element) -> Vec<(String, &Element)> {
    let arch =
        |guest: &'_ Element| -> Option<String> { guest.child("arch")?.attribute("name").map(str::to_owned) };
    capabilities.children("guest").filter_map(|guest| Some((arch(guest)?, guest.child("arch")?))).collect()
}

/// Machine types, each once: of each architecture those of the best kind of virtualization that names any.
fn machines(capabilities: &Element) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for (name, arch) in guests(capabilities) {
        if !ARCHITECTURES.contains(&name.as_str()) {
            continue;
        }
        let names = |element: &Element| element.children("machine").map(Element::text).collect::<Vec<_>>();
        let best = KINDS
            .iter()
            .filter_map(|kind| arch.children("domain").find(|domain| domain.attribute("type") == Some(kind)))
            .map(names)
            .find(|machines| !machines.is_empty());
        for machine in best.unwrap_or_else(|| names(arch)) {
            if !all.contains(&machine) {
                all.push(machine);
            }
        }
    }
    all
}

fn features(baseline: &str) -> String {
    let Ok(document) = Document::parse(baseline.trim()) else { return String::new() };
    let names: Vec<&str> =
        document.root().children("feature").filter_map(|feature| feature.attribute("name")).collect();
    names.join(",")
}

/// Models of the mode `custom`, when it is supported, that are not unusable here.
fn usable_models(domain: &Element) -> Vec<String> {
    let Some(cpu) = domain.child("cpu") else { return Vec::new() };
    cpu.children("mode")
        .filter(|mode| mode.attribute("name") == Some("custom") && mode.attribute("supported") == Some("yes"))
        .flat_map(|mode| mode.children("model"))
        .filter(|model| model.attribute("usable") != Some("no"))
        .map(Element::text)
        .collect()
}

fn memory_encryption(domain: &Element) -> &'static str {
    let Some(features) = domain.child("features") else { return "NONE" };
    let yes = |element: Option<&Element>| element.is_some_and(|e| e.attribute("supported") == Some("yes"));
    let sev = features.child("sev").filter(|sev| yes(Some(sev)));
    if let Some(sev) = sev {
        if yes(sev.child("sevsnp")) || yes(features.child("sevsnp")) {
            return "SEV-SNP";
        }
        let guests = sev.text_at("maxESGuests").and_then(|text| text.trim().parse::<u64>().ok());
        return if guests.unwrap_or(0) > 0 { "SEV-ES" } else { "SEV" };
    }
    if yes(features.child("tdx")) { "TDX" } else { "NONE" }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::tools::fake::Fake;

    const CAPABILITIES: &str = "<capabilities><host><cpu><arch>x86_64</arch><model>Skylake-Server-IBRS</model></cpu></host>\
<guest><os_type>hvm</os_type><arch name='i686'><machine>pc</machine><machine>isapc</machine><domain type='qemu'/><domain type='kvm'><machine>pc</machine></domain></arch></guest>\
<guest><arch name='x86_64'><machine>pc</machine><machine>q35</machine><domain type='qemu'/><domain type='kvm'/></arch></guest>\
<guest><arch name='mips'><machine>malta</machine></arch></guest></capabilities>";

    fn domcapabilities(features: &str) -> String {
        format!(
            "<domainCapabilities><cpu><mode name='host-model' supported='yes'><model>X</model></mode><mode name='custom' supported='yes'><model usable='yes'>qemu64</model><model usable='no'>EPYC</model><model>kvm64</model></mode></cpu><features>{features}</features></domainCapabilities>"
        )
    }

    #[tokio::test]
    async fn everything_is_told() {
        let virsh = Virsh::new(
            Arc::new(Fake(|ask: &crate::node::tools::Ask| match ask.args[3].as_str() {
                "capabilities" => Ok(CAPABILITIES.to_owned()),
                "cpu-baseline" => {
                    assert_eq!(ask.stdin, CAPABILITIES.as_bytes());
                    Ok("<cpu><model>m</model><feature policy='require' name='vme'/><feature policy='require' name='ss'/></cpu>".into())
                }
                _ => Ok(domcapabilities("<sev supported='no'/>")),
            })),
            "qemu:///system",
            Duration::from_secs(1),
        );
        let mut text = String::new();
        attributes(&virsh, Duration::from_secs(1), &mut text, |reason| panic!("{reason}")).await;
        assert_eq!(
            text,
            "KVM_CPU_FEATURES=\"vme,ss\"\nKVM_MACHINES=\"pc q35\"\nKVM_CPU_MODELS=\"qemu64 kvm64\"\nKVM_CPU_MODEL=\"Skylake-Server-IBRS\"\nMEMORY_ENCRYPTION=NONE\n"
        );
    }

    #[tokio::test]
    async fn a_libvirt_that_is_down_is_said_and_nothing_told() {
        let virsh = Virsh::new(Arc::new(Fake(|_: &_| Err((1, "no".into())))), "u", Duration::from_secs(1));
        let (mut text, mut said) = (String::new(), Vec::new());
        attributes(&virsh, Duration::from_secs(1), &mut text, |reason| said.push(reason)).await;
        assert_eq!((text.as_str(), said.len()), ("", 1));
    }

    #[test]
    fn memory_encryption_is_the_best_there_is() {
        for (features, expected) in [
            ("", "NONE"),
            ("<sev supported='yes'><maxESGuests>0</maxESGuests></sev>", "SEV"),
            ("<sev supported='yes'><maxESGuests>15</maxESGuests></sev>", "SEV-ES"),
            ("<sev supported='yes'><sevsnp supported='yes'/></sev>", "SEV-SNP"),
            ("<sev supported='no'/><tdx supported='yes'/>", "TDX"),
            ("<tdx supported='no'/>", "NONE"),
        ] {
            let document = Document::parse(domcapabilities(features)).expect("good");
            assert_eq!(memory_encryption(document.root()), expected, "{features}");
        }
    }
}
