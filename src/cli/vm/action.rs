//! The action documents of VMs that oned does not know.

use crate::host::HostName;
use crate::template::normalise::Normalised;

/// Number of a VM that is not oned's, which counts its own from 0: the largest that it could ever reach. Domains and
/// folders bear the name, never this.
pub const ID: i64 = 2_147_483_647;

/// DEPLOY of `vm` on `host`; `file` is where its domain is stored there.
pub fn deploy(host: &HostName, file: &str, vm: &Normalised) -> String {
    document(host, "", file, &vm.to_xml())
}

/// An action on a VM of which no more is needed than its domain.
pub fn of_domain(host: &HostName, domain: &str, file: &str) -> String {
    document(host, domain, file, &format!("<VM><ID>{ID}</ID><TEMPLATE></TEMPLATE></VM>"))
}

fn document(host: &HostName, domain: &str, file: &str, vm: &str) -> String {
    let text = |value: &str| quick_xml::escape::escape(value).into_owned();
    format!(
        "<VMM_DRIVER_ACTION_DATA><HOST>{}</HOST><DEPLOY_ID>{}</DEPLOY_ID><REMOTE_DEPLOYMENT_FILE>{}\
         </REMOTE_DEPLOYMENT_FILE>{vm}</VMM_DRIVER_ACTION_DATA>",
        text(host.as_str()),
        text(domain),
        text(file)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmm::payload::Action;

    #[test]
    fn values_stay_what_they_are() {
        let host = HostName::new("node1").expect("a name");
        let action =
            Action::from_xml(of_domain(&host, "kvmad-a", "/srv/a<b&c/deployment.0")).expect("an action");
        assert_eq!(action.text("REMOTE_DEPLOYMENT_FILE"), "/srv/a<b&c/deployment.0");
        assert_eq!((action.text("DEPLOY_ID").as_str(), action.id()), ("kvmad-a", "2147483647"));
    }
}
