//! The VM document as XML, in the form in which a driver gets it.

use std::fmt::Write as _;

use super::Normalised;
use crate::template::value::{Template, Value};

impl Normalised {
    /// The `<VM>` document: a VM that is being deployed, with one history record.
    #[must_use]
    pub fn to_xml(&self) -> String {
        let mut out = String::from("<VM>");
        let vm = &self.vm;
        for (name, value) in [
            ("ID", vm.id.to_string()),
            ("UID", vm.uid.to_string()),
            ("GID", vm.gid.to_string()),
            ("UNAME", vm.uname.clone()),
            ("GNAME", vm.gname.clone()),
            ("NAME", vm.name.clone()),
            ("STATE", "3".to_owned()),
            ("LCM_STATE", "2".to_owned()),
            ("STIME", vm.stime.to_string()),
            ("ETIME", "0".to_owned()),
            ("DEPLOY_ID", String::new()),
        ] {
            element(&mut out, name, &value);
        }
        template(&mut out, "TEMPLATE", &vm.template);
        template(&mut out, "USER_TEMPLATE", &self.user);
        self.history(&mut out);
        out.push_str("</VM>");
        out
    }

    /// The action document: the VM and its system datastore.
    #[must_use]
    pub fn to_action_xml(&self) -> String {
        let around = &self.around;
        let folder = format!("{}/{}", around.datastore.base_path, self.vm.id);
        let mut out = String::from("<VMM_DRIVER_ACTION_DATA>");
        element(&mut out, "HOST", &around.host.0);
        element(&mut out, "DEPLOY_ID", "");
        element(&mut out, "REMOTE_DEPLOYMENT_FILE", &format!("{folder}/deployment.0"));
        out.push_str(&self.to_xml());
        out.push_str("<DATASTORE>");
        element(&mut out, "ID", &around.datastore.id.to_string());
        element(&mut out, "NAME", &around.datastore.name);
        element(&mut out, "TM_MAD", &around.datastore.tm_mad);
        element(&mut out, "BASE_PATH", &around.datastore.base_path);
        if let Some(datastore) = &self.vm.datastore {
            template(&mut out, "TEMPLATE", &datastore.template);
        }
        out.push_str("</DATASTORE></VMM_DRIVER_ACTION_DATA>");
        out
    }

    fn history(&self, out: &mut String) {
        let around = &self.around;
        out.push_str("<HISTORY_RECORDS><HISTORY>");
        for (name, value) in [
            ("OID", self.vm.id.to_string()),
            ("SEQ", "0".to_owned()),
            ("HOSTNAME", around.host.0.clone()),
            ("HID", around.host.1.to_string()),
            ("CID", around.cluster.to_string()),
            ("VM_MAD", "kvm".to_owned()),
            ("TM_MAD", around.datastore.tm_mad.clone()),
            ("DS_ID", around.datastore.id.to_string()),
        ] {
            element(out, name, &value);
        }
        out.push_str("</HISTORY></HISTORY_RECORDS>");
    }
}

fn template(out: &mut String, name: &str, template: &Template) {
    // Writing to a String cannot fail.
    let _ = write!(out, "<{name}>");
    for attribute in template.attributes() {
        match &attribute.value {
            Value::Single(value) => element(out, &attribute.name, value),
            Value::Vector(members) => {
                let _ = write!(out, "<{}>", attribute.name);
                for member in members {
                    element(out, &member.name, &member.value);
                }
                let _ = write!(out, "</{}>", attribute.name);
            }
        }
    }
    let _ = write!(out, "</{name}>");
}

/// An element with text: in CDATA, so that an empty value is there; escaped where CDATA can't hold it.
/// Characters that no XML document can hold become U+FFFD.
/// A member whose name is no XML name (it begins with a digit) is left out: `oned` would break its document.
fn element(out: &mut String, name: &str, value: &str) {
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return;
    }
    let value = value
        .replace(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r') && c < '\u{7f}', "\u{fffd}");
    if value.contains("]]>") || value.contains('\r') {
        let escaped = quick_xml::escape::escape(value.as_str()).replace('\r', "&#13;");
        let _ = write!(out, "<{name}>{escaped}</{name}>");
    } else {
        let _ = write!(out, "<{name}><![CDATA[{value}]]></{name}>");
    }
}
