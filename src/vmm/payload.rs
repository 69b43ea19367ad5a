//! The document of a request: base64 to XML to a view that answers what the plans ask.
//!
//! The document is parsed once. What is handed on to scripts are slices of its source, so that a document of
//! five megabytes is in memory once however many steps get it.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

use crate::host::job::HostName;
use crate::template::xml::{Document, Element, XmlError};

/// Name of the outermost element of every action document.
pub const ROOT: &str = "VMM_DRIVER_ACTION_DATA";

/// Why a payload is no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The request carries no document
    #[error("the request carries no document")]
    Empty,
    /// The document is not base64
    #[error("the document is not base64")]
    NotBase64,
    /// The document is not UTF-8 (byte {0})
    #[error("the document is not UTF-8 (byte {0})")]
    NotUtf8(usize),
    /// The document is not XML
    #[error("the document is not XML: {0}")]
    NotXml(#[from] XmlError),
    /// The document is something else
    #[error("the document is a {0}, expecting {ROOT}")]
    OtherRoot(String),
    /// An element that every action needs is missing or empty
    #[error("the document lacks {0}")]
    Missing(&'static str),
    /// HOST or MIGR_HOST is no host name
    #[error("{0} of the document: {1}")]
    BadHost(&'static str, crate::host::job::NotAHostName),
    /// VM/ID is no number
    #[error("VM/ID of the document is {0:?}, expecting a number")]
    BadId(String),
}

/// Reads base64 as the drivers always did: characters outside the alphabet are skipped, padding may be missing,
/// and the first `=` ends it.
///
/// # Errors
/// [`PayloadError::Empty`] when nothing is there, [`PayloadError::NotBase64`] when a single character is left over.
pub fn decode(payload: &str) -> Result<Vec<u8>, PayloadError> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );
    if payload.trim().is_empty() {
        return Err(PayloadError::Empty);
    }
    let body = payload.split('=').next().unwrap_or("");
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let decoded = if body.bytes().all(inside) {
        LENIENT.decode(body)
    } else {
        LENIENT.decode(body.bytes().filter(|byte| inside(*byte)).collect::<Vec<u8>>())
    };
    match decoded {
        Ok(bytes) if bytes.is_empty() => Err(PayloadError::NotBase64),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(PayloadError::NotBase64),
    }
}

/// The action document of one request.
#[derive(Debug)]
pub struct Action {
    document: Document,
    bytes: Bytes,
    host: HostName,
    migr_host: Option<HostName>,
    id: String,
}

impl Action {
    /// Understands the payload of a request line.
    ///
    /// # Errors
    /// [`PayloadError`], whose text is the reason for the reply.
    pub fn from_payload(payload: &str) -> Result<Self, PayloadError> {
        let bytes = decode(payload)?;
        let text = String::from_utf8(bytes)
            .map_err(|error| PayloadError::NotUtf8(error.utf8_error().valid_up_to()))?;
        Self::from_xml(text)
    }

    /// Understands a document that was decoded before.
    ///
    /// # Errors
    /// [`PayloadError`]: not XML, another root, no HOST, no VM or no VM/ID.
    pub fn from_xml(text: impl Into<String>) -> Result<Self, PayloadError> {
        let document = Document::parse(text)?;
        let root = document.root();
        if root.name() != ROOT {
            return Err(PayloadError::OtherRoot(root.name().to_owned()));
        }
        let host = host_at(root, "HOST")?.ok_or(PayloadError::Missing("HOST"))?;
        let migr_host = host_at(root, "MIGR_HOST")?;
        let vm = root.child("VM").ok_or(PayloadError::Missing("VM"))?;
        let id = vm.filled("ID").ok_or(PayloadError::Missing("VM/ID"))?.trim().to_owned();
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PayloadError::BadId(id));
        }
        let bytes = Bytes::copy_from_slice(document.source().as_bytes());
        Ok(Self { document, bytes, host, migr_host, id })
    }

    /// The host where the scripts of the action run.
    #[must_use]
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// The second host: the target of MIGRATE, the previous host of CLEANUP.
    #[must_use]
    pub fn migr_host(&self) -> Option<&HostName> {
        self.migr_host.as_ref()
    }

    /// Id of the VM, digits only.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Text at `path` below the outermost element; a missing element gives the empty text, as `oned` writes
    /// unused elements empty.
    #[must_use]
    pub fn text(&self, path: &str) -> String {
        self.document.root().text_at(path).unwrap_or_default()
    }

    /// Text at `path` when it is there and not blank.
    #[must_use]
    pub fn filled(&self, path: &str) -> Option<String> {
        self.document.root().text_at(path).filter(|text| !text.trim().is_empty())
    }

    /// The whole document.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The outermost element.
    #[must_use]
    pub fn root(&self) -> &Element {
        self.document.root()
    }

    /// The element VM.
    #[must_use]
    pub fn vm(&self) -> &Element {
        self.document.root().child("VM").unwrap_or(self.document.root())
    }

    /// The element VM/TEMPLATE.
    #[must_use]
    pub fn template(&self) -> Option<&Element> {
        self.vm().child("TEMPLATE")
    }

    /// `element` as it stands in the document, sharing its memory.
    #[must_use]
    pub fn slice(&self, element: &Element) -> Bytes {
        let range = element.range();
        if range.end <= self.bytes.len() && range.start <= range.end {
            self.bytes.slice(range)
        } else {
            Bytes::new()
        }
    }

    /// `element` as text, as it stands in the document.
    #[must_use]
    pub fn source_of(&self, element: &Element) -> &str {
        self.document.source_of(element)
    }

    /// The first element called `name` below VM/TEMPLATE whose child `flag` says yes (in any case).
    #[must_use]
    pub fn flagged(&self, name: &str, flag: &str) -> Option<&Element> {
        let yes = |element: &&Element| {
            element.text_at(flag).is_some_and(|text| text.trim().eq_ignore_ascii_case("YES"))
        };
        self.template()?.elements().filter(|element| element.name() == name).find(yes)
    }

    /// Whether the document comes from a core up to 4.14, which names the network driver of the host.
    #[must_use]
    pub fn names_net_drv(&self) -> bool {
        self.document.root().child("NET_DRV").is_some()
    }
}

fn host_at(root: &Element, name: &'static str) -> Result<Option<HostName>, PayloadError> {
    match root.text_at(name).filter(|text| !text.trim().is_empty()) {
        None => Ok(None),
        Some(text) => {
            HostName::new(text.trim()).map(Some).map_err(|error| PayloadError::BadHost(name, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    const GOOD: &str =
        "<VMM_DRIVER_ACTION_DATA><HOST>h1</HOST><MIGR_HOST/><VM><ID>7</ID></VM></VMM_DRIVER_ACTION_DATA>";

    fn refusal(text: &str) -> String {
        Action::from_xml(text).expect_err(text).to_string()
    }

    #[test]
    fn base64_is_read_leniently() {
        for (text, bytes) in [
            ("aGVsbG8=", &b"hello"[..]),
            ("aGVsbG8", b"hello"),
            ("aGVs\nbG8=\n", b"hello"),
            ("aG-Vs bG8", b"hello"),
            ("aGVsbG8=ignored", b"hello"),
            ("aGVsbG9=", b"hello"),
        ] {
            assert_eq!(decode(text).as_deref(), Ok(bytes), "{text}");
        }
        assert_eq!(decode(""), Err(PayloadError::Empty));
        assert_eq!(decode("  "), Err(PayloadError::Empty));
        assert_eq!(decode("!!!"), Err(PayloadError::NotBase64));
        assert_eq!(decode("a"), Err(PayloadError::NotBase64));
        assert_eq!(decode("===="), Err(PayloadError::NotBase64));
    }

    #[test]
    fn a_document_is_understood_and_its_parts_share_its_memory() {
        let action = Action::from_payload(&STANDARD.encode(GOOD)).expect("good");
        assert_eq!((action.host().as_str(), action.migr_host(), action.id()), ("h1", None, "7"));
        assert_eq!(action.bytes(), GOOD.as_bytes());
        assert_eq!(action.slice(action.vm()), &b"<VM><ID>7</ID></VM>"[..]);
        assert_eq!(action.text("NOT/THERE"), "");
    }

    #[test]
    fn what_is_no_action_is_refused_with_the_reason() {
        let bytes = STANDARD.encode(b"<A>\xff</A>");
        assert_eq!(
            Action::from_payload(&bytes).expect_err("bytes").to_string(),
            "the document is not UTF-8 (byte 3)"
        );
        assert!(refusal("nonsense").starts_with("the document is not XML: line 1"));
        assert_eq!(refusal("<A/>"), "the document is a A, expecting VMM_DRIVER_ACTION_DATA");
        let without = |part: &str| refusal(&GOOD.replace(part, ""));
        assert_eq!(without("<HOST>h1</HOST>"), "the document lacks HOST");
        assert_eq!(without("<VM><ID>7</ID></VM>"), "the document lacks VM");
        assert_eq!(without("<ID>7</ID>"), "the document lacks VM/ID");
        assert_eq!(
            refusal(&GOOD.replace(">7<", ">7;x<")),
            "VM/ID of the document is \"7;x\", expecting a number"
        );
    }

    #[test]
    fn a_host_that_could_be_an_option_or_shell_text_is_refused() {
        for host in ["-oProxyCommand=x", "a b", "a;b", "$(x)", "a'b", "h\n2"] {
            let text = GOOD.replace(">h1<", &format!(">{}<", host.replace('&', "&amp;")));
            assert!(refusal(&text).contains("HOST of the document"), "{host}");
        }
        let text = GOOD.replace("<MIGR_HOST/>", "<MIGR_HOST>-x</MIGR_HOST>");
        assert!(refusal(&text).starts_with("MIGR_HOST of the document"));
    }
}
