//! What is asked for: the arguments of the action script and its document.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::host::job::HostName;
use crate::template::xml::Document;

/// One migration.
#[derive(Debug)]
pub struct Action {
    /// uuid or name of the domain.
    pub id: String,
    /// The VM's number.
    pub vm: String,
    /// Where it is.
    pub source: HostName,
    /// Where it is to go.
    pub target: HostName,
    /// Folder of the VM on the source: BASE_PATH of its datastore and the VM's number.
    pub from: Option<String>,
    /// Folder of the VM on the target.
    pub to: Option<String>,
    /// Whether both hosts see the same files.
    pub shared: bool,
    /// It is said that they do not.
    pub private: bool,
    document: Option<Document>,
}

impl Action {
    /// Reads it. Without a document (cores before 5.0) the storage is taken as shared.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn read(id: &str, target: &str, source: &str, vm: &str, document: &str) -> Result<Self, String> {
        let host = |name: &str| HostName::new(name.trim()).map_err(|error| error.to_string());
        let document = match document.trim() {
            "" => None,
            text => Some(
                Document::parse(plain(text))
                    .map_err(|error| format!("the action is no XML document: {error}"))?,
            ),
        };
        let at = |path: &str| document.as_ref().and_then(|d| d.root().filled(path));
        let id = if id.is_empty() || id == "-" { format!("one-{vm}") } else { id.to_owned() };
        if id.starts_with('-') || id.bytes().all(|byte| byte.is_ascii_digit()) || id.contains('\n') {
            return Err(format!("{id:?} is no id of a domain"));
        }
        let folder = |base: String| format!("{}/{vm}", base.trim_end_matches('/'));
        let shared = at("DATASTORE/TEMPLATE/SHARED").map(|text| text.eq_ignore_ascii_case("yes"));
        Ok(Self {
            id,
            vm: vm.to_owned(),
            source: host(source)?,
            target: host(target)?,
            from: at("DATASTORE/BASE_PATH").map(folder),
            to: at("DISK_TARGET_PATH").map(|path| path.trim_end_matches('/').to_owned()),
            shared: shared.unwrap_or(document.is_none()),
            private: shared == Some(false),
            document,
        })
    }

    /// Whether the VM is to go to another datastore, too: the number of its folder's datastore changes. A folder that is
    /// only written differently (a moved or linked location) is no other datastore.
    #[must_use]
    pub fn changes_datastore(&self) -> bool {
        let datastore = |folder: &Option<String>| {
            let above = Path::new(folder.as_deref()?).parent()?;
            above.file_name().map(std::ffi::OsStr::to_owned)
        };
        match (datastore(&self.from), datastore(&self.to)) {
            (Some(from), Some(to)) => from != to,
            _ => false,
        }
    }

    /// An attribute of FEATURES of the VM.
    #[must_use]
    pub fn feature(&self, name: &str) -> Option<String> {
        self.document.as_ref()?.root().filled(&format!("VM/TEMPLATE/FEATURES/{name}"))
    }

    /// The document.
    #[must_use]
    pub fn document(&self) -> Option<&Document> {
        self.document.as_ref()
    }
}

/// The XML of a document that may be base64: so OpenNebula's own driver gives it to a script on the front-end.
fn plain(text: &str) -> String {
    let packed = || text.split_ascii_whitespace().collect::<String>();
    let decoded = || String::from_utf8(STANDARD.decode(packed()).ok()?).ok();
    if text.starts_with('<') { text.to_owned() } else { decoded().unwrap_or_else(|| text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "<A><DISK_TARGET_PATH>/ds/101/7/</DISK_TARGET_PATH><VM><TEMPLATE><FEATURES><MIGRATE_BANDWIDTH>9</MIGRATE_BANDWIDTH></FEATURES></TEMPLATE></VM>\
        <DATASTORE><BASE_PATH>/ds//100</BASE_PATH><TEMPLATE><SHARED>YES</SHARED></TEMPLATE></DATASTORE></A>";

    fn read(id: &str, document: &str) -> Result<Action, String> {
        Action::read(id, "node2", "node1", "7", document)
    }

    #[test]
    fn it_is_what_arguments_and_document_say() {
        let action = read("x", DOCUMENT).expect("an action");
        assert_eq!(action.from.as_deref(), Some("/ds//100/7"));
        assert_eq!(action.to.as_deref(), Some("/ds/101/7"));
        assert!(action.shared);
        assert_eq!(action.feature("MIGRATE_BANDWIDTH").as_deref(), Some("9"));
        assert_eq!(read("-", DOCUMENT).expect("an action").id, "one-7");
    }

    #[test]
    fn storage_is_shared_only_when_it_is_said_or_nothing_is() {
        assert!(read("x", "").expect("an action").shared);
        for text in ["", "<TEMPLATE/>", "<TEMPLATE><SHARED>NO</SHARED></TEMPLATE>"] {
            assert!(!read("x", &format!("<A><DATASTORE>{text}</DATASTORE></A>")).expect("an action").shared);
        }
    }

    /// What `base64` of coreutils makes of `<A><DISK_TARGET_PATH>/ds/9/7</DISK_TARGET_PATH></A>`, in one line and in two.
    #[test]
    fn the_document_may_be_base64() {
        let one = "PEE+PERJU0tfVEFSR0VUX1BBVEg+L2RzLzkvNzwvRElTS19UQVJHRVRfUEFUSD48L0E+";
        for text in [one.to_owned(), format!("{}\n{}\n", &one[..40], &one[40..])] {
            assert_eq!(read("x", &text).expect("an action").to.as_deref(), Some("/ds/9/7"));
        }
        let refused = read("x", "PEE").expect_err("half a document");
        assert!(refused.contains("no XML document"), "{refused}");
    }

    #[test]
    fn another_datastore_is_another_number_not_another_spelling() {
        assert!(read("x", DOCUMENT).expect("an action").changes_datastore());
        for to in ["/ds/100/7", "/ds//100//7/", "/elsewhere/100/7", ""] {
            let action = read("x", &DOCUMENT.replace("/ds/101/7/", to)).expect("an action");
            assert!(!action.changes_datastore(), "{to}");
        }
        assert!(!read("x", "").expect("an action").changes_datastore());
    }

    #[test]
    fn what_is_no_domain_no_host_or_no_document_is_refused() {
        assert!(read("12", "").is_err());
        assert!(read("--x", "").is_err());
        assert!(read("x", "<A>").is_err());
        assert!(Action::read("x", "node2; rm", "node1", "7", "").is_err());
    }
}
