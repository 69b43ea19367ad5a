//! Action documents (`VMM_DRIVER_ACTION_DATA`), as oned 7.4 writes them: children in its order, unused ones empty.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What differs from action to action. Texts are escaped when written; `template` and `user_template` are XML.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// HOST
    pub host: String,
    /// MIGR_HOST
    pub migr_host: String,
    /// DEPLOY_ID
    pub deploy_id: String,
    /// LOCAL_DEPLOYMENT_FILE
    pub local_file: String,
    /// REMOTE_DEPLOYMENT_FILE
    pub remote_file: String,
    /// CHECKPOINT_FILE
    pub checkpoint: String,
    /// TM_COMMAND
    pub tm_command: String,
    /// TM_COMMAND_ROLLBACK
    pub tm_rollback: String,
    /// DISK_TARGET_PATH
    pub disk_path: String,
    /// SECURITY_GROUP_ID or VIRTUAL_NETWORK_ID, with its value; only the actions that change those have one.
    pub changed: Option<(&'static str, u32)>,
    /// Whether the VM is backed up while it runs (LCM_STATE 69).
    pub live_backup: bool,
    /// DS_MAD of a backup datastore that stands in the place of the system datastore.
    pub backup_driver: String,
    /// VM/ID
    pub vm: u32,
    /// Inner XML of VM/TEMPLATE.
    pub template: String,
    /// Inner XML of VM/USER_TEMPLATE.
    pub user_template: String,
    /// Folder of the system datastore, without the VM's own.
    pub datastore: String,
    /// Whether each host has a folder of its own there (SHARED = NO).
    pub local_storage: bool,
}

fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

fn element(name: &str, text: &str) -> String {
    if text.is_empty() { format!("<{name}/>") } else { format!("<{name}>{}</{name}>", escaped(text)) }
}

/// A CDATA element, as OpenNebula's templates are made of.
pub fn cdata(name: &str, text: &str) -> String {
    format!("<{name}><![CDATA[{}]]></{name}>", text.replace("]]>", "]]]]><![CDATA[>"))
}

impl Document {
    /// The document.
    pub fn xml(&self) -> String {
        let head = [
            ("HOST", &self.host),
            ("MIGR_HOST", &self.migr_host),
            ("DEPLOY_ID", &self.deploy_id),
            ("LOCAL_DEPLOYMENT_FILE", &self.local_file),
            ("REMOTE_DEPLOYMENT_FILE", &self.remote_file),
            ("CHECKPOINT_FILE", &self.checkpoint),
            ("TM_COMMAND", &self.tm_command),
            ("TM_COMMAND_ROLLBACK", &self.tm_rollback),
            ("DISK_TARGET_PATH", &self.disk_path),
        ];
        let head: String = head.iter().map(|(name, text)| element(name, text)).collect();
        let changed = self.changed.map_or(String::new(), |(name, id)| element(name, &id.to_string()));
        format!(
            "<VMM_DRIVER_ACTION_DATA>{head}{changed}{}{}</VMM_DRIVER_ACTION_DATA>",
            self.vm_xml(),
            self.datastore_xml()
        )
    }

    /// Its VM element.
    pub fn vm_xml(&self) -> String {
        let history = if self.migr_host.is_empty() { &self.host } else { &self.migr_host };
        format!(
            "<VM><ID>{id}</ID><UID>0</UID><GID>0</GID><UNAME>oneadmin</UNAME><GNAME>oneadmin</GNAME><NAME>bed-{id}</NAME>\
             <STATE>3</STATE><LCM_STATE>{lcm}</LCM_STATE>{deploy}<TEMPLATE>{template}{vmid}</TEMPLATE>\
             <USER_TEMPLATE>{user}</USER_TEMPLATE><HISTORY_RECORDS><HISTORY><OID>{id}</OID><SEQ>0</SEQ>{hostname}<HID>0</HID>\
             <CID>0</CID>{mad}{tm}<DS_ID>0</DS_ID></HISTORY></HISTORY_RECORDS></VM>",
            id = self.vm,
            lcm = if self.live_backup { 69 } else { 3 },
            deploy = element("DEPLOY_ID", &self.deploy_id),
            template = self.template,
            vmid = cdata("VMID", &self.vm.to_string()),
            user = self.user_template,
            hostname = element("HOSTNAME", history),
            mad = cdata("VM_MAD", "kvm"),
            tm = cdata("TM_MAD", "shared"),
        )
    }

    /// Its DATASTORE element, or nothing.
    pub fn datastore_xml(&self) -> String {
        if !self.backup_driver.is_empty() {
            return format!(
                "<DATASTORE><ID>103</ID><NAME>backups</NAME>{}{}<TYPE>3</TYPE></DATASTORE>",
                cdata("DS_MAD", &self.backup_driver),
                cdata("TM_MAD", "-"),
            );
        }
        if self.datastore.is_empty() {
            return String::new();
        }
        format!(
            "<DATASTORE><ID>0</ID><NAME>system</NAME>{ds}{tm}{base}<TYPE>1</TYPE><DISK_TYPE>0</DISK_TYPE><TEMPLATE>{tm}{shared}\
             </TEMPLATE></DATASTORE>",
            ds = cdata("DS_MAD", "-"),
            tm = cdata("TM_MAD", "shared"),
            base = cdata("BASE_PATH", &self.datastore),
            shared = cdata("SHARED", if self.local_storage { "NO" } else { "YES" }),
        )
    }

    /// The document as it stands on a request line.
    pub fn payload(&self) -> String {
        STANDARD.encode(self.xml())
    }
}
