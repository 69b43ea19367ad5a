//! `CLOUD_INIT` of a VM of OpenNebula: what its guest is told, with the addresses of its NICs.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::CloudError;
use super::spec::{Interface, Seed};
use crate::settings::Settings;
use crate::template::Level;
use crate::template::document::{VmDocument, template};
use crate::template::value::Vector;
use crate::template::xml::Document;

/// What `CLOUD_INIT` in the user template of the VM asks for; `None` without one.
///
/// # Errors
/// Which member of it is wrong.
pub fn seed(document: &Document, vm: &VmDocument, settings: &Settings) -> Result<Option<Seed>, CloudError> {
    let user = document.root().child("USER_TEMPLATE");
    let user = user.map(|element| template(document, element, Level::Vm, None)).unwrap_or_default();
    // OpenNebula 3.8 has one template only.
    let Some(init) = user.vector("CLOUD_INIT").or_else(|| vm.template.vector("CLOUD_INIT")) else {
        return Ok(None);
    };
    let uuid = vm.template.vector("OS").and_then(|os| os.get("UUID")).unwrap_or("");
    let hostname = init.filled("HOSTNAME").map_or_else(|| host_name(&vm.name, vm.id), str::to_owned);
    let resolvers = addresses(init.filled("RESOLVERS").unwrap_or(""), "CLOUD_INIT/RESOLVERS")?;
    let nics = vm.template.vectors("NIC").filter(|nic| nic.filled("MAC").is_some());
    Ok(Some(Seed {
        instance: format!("one-{}-{uuid}", vm.id),
        hostname,
        user: init.filled("USER").map(str::to_owned),
        keys: lines(init.filled("SSH_PUBLIC_KEY").unwrap_or("")),
        packages: words(init.filled("PACKAGES").unwrap_or("")),
        user_data: own(init)?,
        interfaces: nics.map(|nic| interface(vm, nic, &resolvers, settings)).collect::<Result<_, _>>()?,
    }))
}

fn own(init: Vector<'_>) -> Result<Option<String>, CloudError> {
    if let Some(text) = init.filled("USER_DATA_BASE64") {
        let compact: String = text.split_whitespace().collect();
        let bytes =
            STANDARD.decode(compact).map_err(|_| wrong("CLOUD_INIT/USER_DATA_BASE64 is not base64"))?;
        return String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| wrong("CLOUD_INIT/USER_DATA_BASE64 is no text"));
    }
    Ok(init.filled("USER_DATA").map(str::to_owned))
}

fn wrong(text: impl Into<String>) -> CloudError {
    CloudError::Refused(text.into())
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split([',', ' ', '\n', '\t']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Addresses separated by commas or blanks.
///
/// # Errors
/// Which is none; `what` names the place.
pub fn addresses(text: &str, what: &str) -> Result<Vec<IpAddr>, CloudError> {
    let parse = |word: String| word.parse().map_err(|_| wrong(format!("{what}: {word:?} is no address")));
    words(text).into_iter().map(parse).collect()
}

/// A host name from the name of a VM.
fn host_name(name: &str, id: i64) -> String {
    let kept: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
    let kept = kept.trim_matches('-').to_ascii_lowercase();
    if kept.is_empty() { format!("one-{id}") } else { kept }
}

/// A NIC with an address gets it, as the contextualisation of OpenNebula would give it (mask 255.255.255.0 where the
/// network tells none); one without asks by DHCP.
fn interface(
    vm: &VmDocument,
    nic: Vector<'_>,
    resolvers: &[IpAddr],
    settings: &Settings,
) -> Result<Interface, CloudError> {
    let id = nic.get("NIC_ID").unwrap_or("0");
    let context = vm.template.vector("CONTEXT");
    let told = |name: &str, in_context: &str| {
        let context = || context?.members.iter().find(|m| m.name == format!("ETH{id}_{in_context}"));
        nic.filled(name)
            .map(str::to_owned)
            .or_else(|| context().map(|m| m.value.clone()).filter(|v| !v.is_empty()))
    };
    let mut found = Interface { mac: nic.get("MAC").unwrap_or("").to_owned(), ..Interface::default() };
    if let Some(ip) = nic.filled("IP") {
        let mask = told("NETWORK_MASK", "MASK").unwrap_or_else(|| "255.255.255.0".to_owned());
        let mask: Ipv4Addr = mask.parse().map_err(|_| wrong(format!("NIC {id}: {mask:?} is no mask")))?;
        found.addresses.push(format!("{ip}/{}", mask.to_bits().leading_ones()));
    }
    if let Some(ip) = nic.filled("IP6") {
        let prefix = told("PREFIX_LENGTH", "IP6_PREFIX_LENGTH").unwrap_or_else(|| "64".to_owned());
        found.addresses.push(format!("{ip}/{prefix}"));
    }
    for (name, in_context) in [("GATEWAY", "GATEWAY"), ("GATEWAY6", "IP6_GATEWAY")] {
        if !found.addresses.is_empty()
            && let Some(gateway) = told(name, in_context)
        {
            found.gateways.extend(addresses(&gateway, "GATEWAY")?);
        }
    }
    let own = addresses(&told("DNS", "DNS").unwrap_or_default(), "DNS")?;
    found.resolvers = if !resolvers.is_empty() {
        resolvers.to_vec()
    } else if !own.is_empty() {
        own
    } else if found.addresses.is_empty() {
        Vec::new()
    } else {
        addresses(&settings.cloud.resolvers, "resolvers of [cloud]")?
    };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(template: &str, user: &str) -> Result<Option<Seed>, String> {
        let text = format!(
            "<VM><ID>7</ID><NAME>My VM!</NAME><TEMPLATE>{template}</TEMPLATE><USER_TEMPLATE>{user}</USER_TEMPLATE></VM>"
        );
        let document = Document::parse(text.as_str()).expect("XML");
        let vm = VmDocument::read(&document, None).expect("a VM");
        seed(&document, &vm, &Settings::default()).map_err(|error| error.to_string())
    }

    const NIC: &str = "<NIC><NIC_ID>0</NIC_ID><MAC>02:00:0a:00:00:07</MAC><IP>10.0.0.7</IP></NIC>";

    #[test]
    fn the_vector_and_the_nics_give_the_seed() {
        let context =
            "<CONTEXT><ETH0_MASK>255.255.0.0</ETH0_MASK><ETH0_GATEWAY>10.0.0.1</ETH0_GATEWAY></CONTEXT>";
        let seed = read(
            &format!("<OS><UUID>u-1</UUID></OS>{NIC}{context}"),
            "<CLOUD_INIT><USER>adm</USER><SSH_PUBLIC_KEY><![CDATA[k1\nk2\n]]></SSH_PUBLIC_KEY><PACKAGES>a, b</PACKAGES>\
             <USER_DATA_BASE64>IyFh\nCg==</USER_DATA_BASE64></CLOUD_INIT>",
        )
        .expect("good")
        .expect("a seed");
        assert_eq!((seed.instance.as_str(), seed.hostname.as_str()), ("one-7-u-1", "my-vm"));
        assert_eq!((seed.keys.len(), seed.packages.len(), seed.user_data.as_deref()), (2, 2, Some("#!a\n")));
        let nic = &seed.interfaces[0];
        assert_eq!(nic.addresses, ["10.0.0.7/16"]);
        assert_eq!(nic.gateways, ["10.0.0.1".parse::<IpAddr>().expect("an address")]);
        assert_eq!(nic.resolvers.len(), 2, "those of the settings, never the gateway");
        assert!(!nic.resolvers.contains(&nic.gateways[0]));
    }

    #[test]
    fn without_the_vector_there_is_no_seed_and_without_an_address_dhcp() {
        assert_eq!(read(NIC, ""), Ok(None));
        let nic = "<NIC><NIC_ID>0</NIC_ID><MAC>02:00:0a:00:00:07</MAC></NIC>";
        let seed = read(nic, "<CLOUD_INIT><USER>a</USER></CLOUD_INIT>").expect("good").expect("a seed");
        assert!(seed.interfaces[0].addresses.is_empty() && seed.interfaces[0].resolvers.is_empty());
    }

    #[test]
    fn wrong_members_are_named() {
        for (user, part) in [
            ("<RESOLVERS>1.1.1.x</RESOLVERS>", "CLOUD_INIT/RESOLVERS"),
            ("<USER_DATA_BASE64>***</USER_DATA_BASE64>", "USER_DATA_BASE64"),
        ] {
            let error = read(NIC, &format!("<CLOUD_INIT>{user}</CLOUD_INIT>")).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
