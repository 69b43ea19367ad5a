//! Which VM, and where it is: from a document, from OpenNebula, or as it is said on the command line.

use std::path::Path;
use std::time::Duration;

use crate::host::job::HostName;
use crate::node::check::migration::about::About;
use crate::node::tools::{Ask, Real, Tools as _};
use crate::template::xml::{Document, Element};

/// The VM.
#[derive(Debug, Clone)]
pub struct Vm {
    /// Name or UUID of its domain.
    pub domain: String,
    /// Host where it is.
    pub source: HostName,
    /// What is known of it beyond its domain.
    pub about: About,
}

/// Longest document, in bytes.
const LIMIT: u64 = 64 << 20;

/// Finds the VM that `word` means: a file with its document (`onevm show --xml`, an action document), else its id or the
/// name of its domain. Without `from`, the host of an id is asked of OpenNebula.
///
/// # Errors
/// What is wrong with `word`, or why its host is not known.
pub async fn find(word: &str, from: Option<&HostName>) -> Result<Vm, String> {
    if Path::new(word).is_file() {
        let bytes = crate::cli::input::bytes(Path::new(word), LIMIT).map_err(|error| error.to_string())?;
        return of_document(&String::from_utf8_lossy(&bytes), from).map_err(|why| format!("{word}: {why}"));
    }
    let number = word.strip_prefix("one-").unwrap_or(word);
    let is_id = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(from) = from {
        let domain = if is_id { format!("one-{number}") } else { word.to_owned() };
        return Ok(Vm { domain, source: from.clone(), about: About::default() });
    }
    if !is_id {
        return Err(format!("{word} is no file and no VM id: say its host with --from HOST"));
    }
    let limit = Duration::from_secs(30);
    let answer = Real::default().ask(Ask::new("onevm", ["show", "--xml", number], limit)).await;
    let xml = answer.and_then(|answer| answer.good("onevm show", limit)).map_err(|why| {
        format!("OpenNebula was asked where VM {number} is: {why}; say it with --from HOST, or give a file that onevm show --xml wrote")
    })?;
    of_document(&xml, None)
}

fn of_document(xml: &str, from: Option<&HostName>) -> Result<Vm, String> {
    let document = Document::parse(xml.trim()).map_err(|error| error.to_string())?;
    let root = document.root();
    let vm = match root.name() {
        "VM" => root,
        "VMM_DRIVER_ACTION_DATA" => root.child("VM").ok_or("the document has no VM")?,
        other => return Err(format!("the document is no VM but an element {other}")),
    };
    let id = vm.filled("ID").ok_or("the VM has no ID")?;
    let record = vm.child("HISTORY_RECORDS").and_then(|all| all.children("HISTORY").last());
    // In an action document the record may name the target already.
    let host = root.filled("HOST").or_else(|| record.and_then(|record| record.filled("HOSTNAME")));
    let source = match (from, host) {
        (Some(from), _) => from.clone(),
        (None, Some(host)) => HostName::new(host.trim()).map_err(|error| error.to_string())?,
        (None, None) => return Err(format!("VM {id} is on no host; is it running?")),
    };
    let domain =
        root.filled("DEPLOY_ID").or_else(|| vm.filled("DEPLOY_ID")).unwrap_or_else(|| format!("one-{id}"));
    let shared = root.at("DATASTORE/TEMPLATE").map(|template| {
        template.text_at("SHARED").is_some_and(|text| text.trim().eq_ignore_ascii_case("yes"))
    });
    Ok(Vm { domain, source, about: About { shared, drivers: drivers(vm) } })
}

fn drivers(vm: &Element) -> std::collections::BTreeMap<String, String> {
    let nics = vm.children("TEMPLATE").flat_map(|template| template.children("NIC"));
    nics.filter_map(|nic| Some((nic.filled("BRIDGE")?, nic.filled("VN_MAD")?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a name")
    }

    const VM: &str = "<VM><ID>7</ID><DEPLOY_ID>9836e20d-beeb-4c38-98b6-b2dccfa000a4</DEPLOY_ID><TEMPLATE><NIC><BRIDGE>br0</BRIDGE><VN_MAD>dummy</VN_MAD></NIC></TEMPLATE>
<HISTORY_RECORDS><HISTORY><HOSTNAME>old</HOSTNAME></HISTORY><HISTORY><HOSTNAME>node1</HOSTNAME></HISTORY></HISTORY_RECORDS></VM>";

    #[test]
    fn a_document_tells_domain_host_and_networks() {
        let vm = of_document(VM, None).expect("a VM");
        assert_eq!(
            (vm.domain.as_str(), vm.source.as_str()),
            ("9836e20d-beeb-4c38-98b6-b2dccfa000a4", "node1")
        );
        assert_eq!(vm.about.drivers["br0"], "dummy");
        assert_eq!(vm.about.shared, None);
        assert_eq!(of_document(VM, Some(&host("other"))).expect("a VM").source.as_str(), "other");
    }

    #[test]
    fn an_action_document_tells_whether_its_datastore_is_shared() {
        let action = |shared: &str| {
            format!(
                "<VMM_DRIVER_ACTION_DATA><HOST>node1</HOST><DEPLOY_ID>one-7</DEPLOY_ID><VM><ID>7</ID></VM><DATASTORE><TEMPLATE>{shared}</TEMPLATE></DATASTORE></VMM_DRIVER_ACTION_DATA>"
            )
        };
        let shared = |text: &str| of_document(&action(text), None).expect("a VM").about.shared;
        assert_eq!(shared("<SHARED>YES</SHARED>"), Some(true));
        assert_eq!(shared("<SHARED>NO</SHARED>"), Some(false));
        assert_eq!(shared(""), Some(false));
    }

    #[tokio::test]
    async fn what_can_not_be_found_says_what_to_do() {
        for (xml, part) in [
            ("<x/>", "element x"),
            ("<VM/>", "no ID"),
            ("<VM><ID>7</ID></VM>", "on no host"),
            ("no", "line 1"),
        ] {
            assert!(of_document(xml, None).is_err_and(|why| why.contains(part)), "{xml}");
        }
        assert!(find("web", None).await.is_err_and(|why| why.contains("--from")));
        let vm = find("7", Some(&host("node1"))).await.expect("a VM");
        assert_eq!(vm.domain, "one-7");
        assert_eq!(find("web", Some(&host("node1"))).await.expect("a VM").domain, "web");
    }
}
