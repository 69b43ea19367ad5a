//! Messages between a host and `onemonitord`: `TYPE STATUS HOSTID EPOCH PAYLOAD`, the same as a UDP datagram and as
//! a TCP stream, without a newline. The payload is base64 of a zlib stream of the text, or, with a key, of its
//! RSA blocks. The receiver takes at most 65535 bytes from UDP, and IPv4 carries at most 65507.

use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::key::PublicKey;

/// The most that is ever inflated from one payload, in bytes.
pub const MOST_TEXT: u64 = 256 << 20;

/// Kind of a message; its name on the wire is [`Kind::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The agent lives; the text is ignored.
    Beacon,
    /// What a host is: goes into its template.
    System,
    /// What a host uses.
    Host,
    /// States of VMs; by TCP.
    State,
    /// Results of commands in guests.
    Exec,
    /// What VMs use.
    Vm,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Beacon, Self::System, Self::Host, Self::State, Self::Exec, Self::Vm];

    /// The type word of the message.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Beacon => "BEACON_HOST",
            Self::System => "SYSTEM_HOST",
            Self::Host => "MONITOR_HOST",
            Self::State => "STATE_VM",
            Self::Exec => "EXEC_VM",
            Self::Vm => "MONITOR_VM",
        }
    }

    /// The kind with this type word.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One message, before encoding or after decoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What it tells.
    pub kind: Kind,
    /// SUCCESS, or FAILURE with a reason as its text.
    pub success: bool,
    /// Id of the host.
    pub host: i64,
    /// Seconds since 1970 as the sender counts them.
    pub epoch: u64,
    /// The text.
    pub text: String,
}

/// Why a message can't be made or read.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// the message can't be encrypted: {0}
    #[error("the message can't be encrypted: {0}")]
    Key(#[from] super::key::KeyError),
    /// the message has no {0}
    #[error("the message has no {0}")]
    Missing(&'static str),
    /// {0:?} is no message type that hosts send
    #[error("{0:?} is no message type that hosts send")]
    Type(String),
    /// the payload is not base64: {0}
    #[error("the payload is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// the payload is no zlib stream: {0}
    #[error("the payload is no zlib stream: {0}")]
    Zlib(#[from] std::io::Error),
}

impl Message {
    /// The bytes on the wire, with RSA blocks when there is a key.
    ///
    /// # Errors
    /// [`MessageError::Key`] when the key can't encrypt.
    pub fn encode(&self, key: Option<&PublicKey>) -> Result<Vec<u8>, MessageError> {
        let plain = self.text.as_bytes();
        let payload = match key {
            Some(key) => pack(&key.encrypt(plain)?),
            None => pack(plain),
        };
        let status = if self.success { "SUCCESS" } else { "FAILURE" };
        Ok(format!("{} {status} {} {} {payload}", self.kind.name(), self.host, self.epoch).into_bytes())
    }

    /// Reads a message, without a key. A newline at the end is accepted.
    ///
    /// # Errors
    /// What is missing or can't be decoded.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        Self::decode_with(bytes, |plain| plain)
    }

    /// Reads a message; `open` undoes the encryption of the inflated bytes.
    ///
    /// # Errors
    /// What is missing or can't be decoded.
    pub fn decode_with(bytes: &[u8], open: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Result<Self, MessageError> {
        let line = String::from_utf8_lossy(bytes);
        let line = line.lines().next().unwrap_or("");
        let mut words = line.splitn(5, ' ');
        let mut word = |what| words.next().ok_or(MessageError::Missing(what));
        let kind = word("type")?;
        let kind = Kind::of(kind).ok_or_else(|| MessageError::Type(kind.to_owned()))?;
        let success = word("status")? == "SUCCESS";
        let host = word("host id")?.parse().map_err(|_| MessageError::Missing("numeric host id"))?;
        let epoch = word("time")?.parse().map_err(|_| MessageError::Missing("numeric time"))?;
        let payload = words.next().unwrap_or("");
        let text = if payload.is_empty() { Vec::new() } else { open(unpack(payload)?) };
        Ok(Self { kind, success, host, epoch, text: String::from_utf8_lossy(&text).into_owned() })
    }
}

/// base64 of the zlib stream of `plain`, one line.
#[must_use]
pub fn pack(plain: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(plain).and_then(|()| encoder.finish());
    STANDARD.encode(packed.expect("writing to memory does not fail"))
}

/// Undoes [`pack`]; line breaks inside the base64 are accepted.
///
/// # Errors
/// When it is no base64 or no zlib stream, or more than [`MOST_TEXT`] comes out.
pub fn unpack(packed: &str) -> Result<Vec<u8>, MessageError> {
    let bare: String = packed.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(bare)?;
    let mut plain = Vec::new();
    let mut reader = ZlibDecoder::new(&bytes[..]).take(MOST_TEXT + 1);
    reader.read_to_end(&mut plain)?;
    if plain.len() as u64 > MOST_TEXT {
        return Err(std::io::Error::other(format!("more than {MOST_TEXT} bytes come out")).into());
    }
    Ok(plain)
}

/// The first reply: what one round of all groups gave, as the answer to START_MONITOR. Base64 only, never
/// compressed or encrypted. Beacons are left out; the receiver takes the first element of each name.
#[must_use]
pub fn first_reply(parts: &[(Kind, String)], epoch: u64) -> String {
    let mut out = String::from("<MONITOR_MESSAGES>");
    for (kind, text) in parts.iter().filter(|(kind, _)| *kind != Kind::Beacon) {
        let name = kind.name();
        out.push_str(&format!("<{name}>{}</{name}>\n", STANDARD.encode(text)));
    }
    out.push_str(&format!("<TIMESTAMP>{epoch}</TIMESTAMP></MONITOR_MESSAGES>"));
    out
}

/// Whether a text is the whole first reply of an agent (also of one of another hypervisor), or nothing to be one:
/// scripts that start no agent print an empty line.
#[must_use]
pub fn first_reply_is_complete(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || (text.starts_with("<MONITOR_MESSAGES>") && text.ends_with("</MONITOR_MESSAGES>"))
}

/// Joins `parts` (texts that each stand for themselves, such as one VM's block) into as few texts as possible
/// whose messages stay within `most` bytes. A part that is too large alone stays alone.
#[must_use]
pub fn split(parts: Vec<String>, most: usize, size: &dyn Fn(&str) -> usize) -> Vec<String> {
    let whole = parts.concat();
    if parts.len() < 2 || size(&whole) <= most {
        return if whole.is_empty() { Vec::new() } else { vec![whole] };
    }
    let mut right = parts;
    let left: Vec<String> = right.drain(..right.len() / 2).collect();
    let mut out = split(left, most, size);
    out.extend(split(right, most, size));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_protocol_is_read() {
        let message = Message::decode(b"BEACON_HOST SUCCESS 3 1700000001 eNozNDeAAgAKowHp").expect("good");
        let text = "1700000000".to_owned();
        assert_eq!(
            message,
            Message { kind: Kind::Beacon, success: true, host: 3, epoch: 1_700_000_001, text }
        );
    }

    #[test]
    fn what_is_written_is_read_back_and_stands_on_one_line() {
        for text in ["", "A=1\nB=\"ü\"\n", &"x".repeat(100_000)] {
            let message =
                Message { kind: Kind::State, success: false, host: 11, epoch: 7, text: text.to_owned() };
            let bytes = message.encode(None).expect("no key");
            assert!(!bytes.contains(&b'\n'));
            assert!(bytes.starts_with(b"STATE_VM FAILURE 11 7 "));
            assert_eq!(Message::decode(&bytes).expect("good"), message);
        }
    }

    #[test]
    fn a_newline_at_the_end_and_no_payload_are_accepted() {
        let message = Message::decode(b"MONITOR_VM SUCCESS -1 0 eNozNDeAAgAKowHp\n").expect("good");
        assert_eq!((message.host, message.epoch, message.text.as_str()), (-1, 0, "1700000000"));
        assert_eq!(Message::decode(b"BEACON_HOST SUCCESS 3 4").expect("good").text, "");
    }

    #[test]
    fn garbage_is_an_error() {
        for bad in [
            "",
            "X",
            "BEACON_HOST",
            "BEACON_HOST SUCCESS x 1 ",
            "NOPE SUCCESS 1 1 eJ",
            "STATE_VM SUCCESS 1 1 !!!!",
        ] {
            assert!(Message::decode(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_first_reply_has_the_documents_shape() {
        let parts =
            [(Kind::Beacon, "1".to_owned()), (Kind::System, "A=1".to_owned()), (Kind::Exec, String::new())];
        assert_eq!(
            first_reply(&parts, 9),
            "<MONITOR_MESSAGES><SYSTEM_HOST>QT0x</SYSTEM_HOST>\n<EXEC_VM></EXEC_VM>\n<TIMESTAMP>9</TIMESTAMP></MONITOR_MESSAGES>"
        );
    }

    #[test]
    fn large_texts_are_split_between_parts_only() {
        let parts: Vec<String> = (0..100).map(|n| format!("VM{n:03};")).collect();
        let all = parts.concat();
        let texts = split(parts, 60, &str::len);
        assert!(texts.len() >= 10 && texts.iter().all(|t| t.len() <= 60 && t.len() % 6 == 0));
        assert_eq!(texts.concat(), all);
        assert_eq!(split(vec!["x".repeat(99)], 10, &str::len).len(), 1);
        assert!(split(vec![], 10, &str::len).is_empty());
    }
}
