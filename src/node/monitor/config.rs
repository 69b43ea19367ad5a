//! What `onemonitord` tells an agent: the MONITOR_CONFIGURATION document.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::template::xml::{Document, Element, XmlError};

/// How often each group of probes runs, in seconds. The defaults are those of OpenNebula 7.4's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// BEACON_HOST, 30.
    pub beacon: Duration,
    /// SYSTEM_HOST, 600.
    pub system: Duration,
    /// MONITOR_HOST, 120.
    pub host: Duration,
    /// STATE_VM, 5.
    pub state: Duration,
    /// EXEC_VM, 5.
    pub exec: Duration,
    /// MONITOR_VM, 30.
    pub vm: Duration,
    /// SYNC_STATE_VM, 180.
    pub sync: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self { beacon: s(30), system: s(600), host: s(120), state: s(5), exec: s(5), vm: s(30), sync: s(180) }
    }
}

/// The settings of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// HOST_ID, when the document has one.
    pub host_id: Option<i64>,
    /// NETWORK/MONITOR_ADDRESS; `auto` (also when absent) means the address that ssh came from.
    pub address: String,
    /// NETWORK/PORT, 4124.
    pub port: u16,
    /// NETWORK/PUBKEY, the content of the key file; empty without encryption.
    pub public_key: String,
    /// DATASTORE_LOCATION, /var/lib/one/datastores.
    pub datastores: String,
    /// PROBES_PERIOD.
    pub periods: Periods,
    /// The document itself, one element.
    pub document: String,
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// the monitoring configuration on stdin is empty
    #[error("the monitoring configuration on stdin is empty")]
    Empty,
    /// the monitoring configuration is no XML: {0}
    #[error("the monitoring configuration is no XML: {0}")]
    Xml(#[from] XmlError),
    /// the monitoring configuration is a {0} document, not MONITOR_CONFIGURATION
    #[error("the monitoring configuration is a {0} document, not MONITOR_CONFIGURATION")]
    Other(String),
}

/// Port of `onemonitord`.
const PORT: u16 = 4124;
/// Longest period that is believed; a year.
const LONGEST: u64 = 366 * 24 * 3600;

impl Config {
    /// Reads the document as the driver sends it, as an old start script folds it (blanks for newlines), or in
    /// base64, as OpenNebula's driver hands it to local scripts. Absent, empty or odd periods are the defaults.
    ///
    /// # Errors
    /// [`ConfigError`] when there is no such document.
    pub fn read(stdin: &[u8]) -> Result<Self, ConfigError> {
        let text = String::from_utf8_lossy(stdin);
        let mut text = text.trim().to_owned();
        if text.is_empty() {
            return Err(ConfigError::Empty);
        }
        if !text.starts_with('<') {
            let bare: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            if let Ok(bytes) = STANDARD.decode(bare) {
                text = String::from_utf8_lossy(&bytes).trim().to_owned();
            }
        }
        let document = Document::parse(text)?;
        let root = document.root();
        let root = match root.name() {
            "MONITOR_CONFIGURATION" => root,
            other => {
                root.child("MONITOR_CONFIGURATION").ok_or_else(|| ConfigError::Other(other.to_owned()))?
            }
        };
        Ok(Self::from_element(root, document.source_of(root)))
    }

    fn from_element(root: &Element, source: &str) -> Self {
        let text =
            |path: &str| root.filled(path).map(|text| text.trim().to_owned()).filter(|t| !t.is_empty());
        let standard = Periods::default();
        let period = |name: &str, default: Duration| {
            let seconds = text(&format!("PROBES_PERIOD/{name}")).and_then(|text| text.parse::<u64>().ok());
            seconds.filter(|s| (1..=LONGEST).contains(s)).map_or(default, Duration::from_secs)
        };
        Self {
            host_id: text("HOST_ID").and_then(|text| text.parse().ok()),
            address: text("NETWORK/MONITOR_ADDRESS").unwrap_or_else(|| "auto".to_owned()),
            port: text("NETWORK/PORT").and_then(|t| t.parse().ok()).filter(|p| *p != 0).unwrap_or(PORT),
            public_key: root.filled("NETWORK/PUBKEY").unwrap_or_default(),
            datastores: text("DATASTORE_LOCATION").unwrap_or_else(|| "/var/lib/one/datastores".to_owned()),
            periods: Periods {
                beacon: period("BEACON_HOST", standard.beacon),
                system: period("SYSTEM_HOST", standard.system),
                host: period("MONITOR_HOST", standard.host),
                state: period("STATE_VM", standard.state),
                exec: period("EXEC_VM", standard.exec),
                vm: period("MONITOR_VM", standard.vm),
                sync: period("SYNC_STATE_VM", standard.sync),
            },
            document: source.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = "<MONITOR_CONFIGURATION><DATASTORE_LOCATION><![CDATA[/var/lib/one//datastores]]></DATASTORE_LOCATION>\
<NETWORK><MONITOR_ADDRESS><![CDATA[10.0.0.1]]></MONITOR_ADDRESS><PORT><![CDATA[4125]]></PORT>\
<PUBKEY><![CDATA[a\nb]]></PUBKEY></NETWORK><PROBES_PERIOD><STATE_VM><![CDATA[7]]></STATE_VM>\
<MONITOR_VM><![CDATA[]]></MONITOR_VM><BEACON_HOST>x</BEACON_HOST><EXEC_VM>0</EXEC_VM></PROBES_PERIOD>\
<HOST_ID>3</HOST_ID></MONITOR_CONFIGURATION>";

    #[test]
    fn what_is_told_is_taken_and_the_rest_is_default() {
        let config = Config::read(SENT.as_bytes()).expect("good");
        assert_eq!((config.host_id, config.address.as_str(), config.port), (Some(3), "10.0.0.1", 4125));
        assert_eq!(
            (config.datastores.as_str(), config.public_key.as_str()),
            ("/var/lib/one//datastores", "a\nb")
        );
        let expected = Periods { state: Duration::from_secs(7), ..Periods::default() };
        assert_eq!(config.periods, expected);
    }

    #[test]
    fn base64_folded_and_wrapped_documents_are_the_same() {
        let plain = Config::read(SENT.as_bytes()).expect("good");
        let wrapped =
            STANDARD.encode(SENT).as_bytes().chunks(60).map(|l| [l, b"\n"].concat()).collect::<Vec<_>>();
        assert_eq!(Config::read(&wrapped.concat()).expect("base64"), plain);
        let folded = SENT.replace('\n', " ");
        assert_eq!(Config::read(folded.as_bytes()).expect("folded").periods, plain.periods);
        let action = format!("<MONITOR_DRIVER_ACTION><HOST/>{SENT}</MONITOR_DRIVER_ACTION>");
        assert_eq!(Config::read(action.as_bytes()).expect("wrapped"), plain);
    }

    #[test]
    fn an_empty_document_means_defaults_and_auto() {
        let config = Config::read(b"<MONITOR_CONFIGURATION/>").expect("good");
        assert_eq!(
            (config.address.as_str(), config.port, config.periods),
            ("auto", 4124, Periods::default())
        );
    }

    #[test]
    fn broken_input_says_what_it_is() {
        assert!(matches!(Config::read(b" \n"), Err(ConfigError::Empty)));
        assert!(matches!(Config::read(b"<MONITOR_CONFIGURATION>"), Err(ConfigError::Xml(_))));
        assert!(matches!(Config::read(b"hello"), Err(ConfigError::Xml(_))));
        assert!(matches!(Config::read(b"<VM/>"), Err(ConfigError::Other(_))));
    }
}
