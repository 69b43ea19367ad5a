//! What an image is: `qemu-img info` as JSON, and the CPU architecture that its partitions or its name tell.
//!
//! An image may come from anywhere. One that would make QEMU open further files of the host (backing file, data
//! file) is refused, and only the two formats that need no such care are taken.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::error::CloudError;
use crate::node::tools::{Ask, Tools};

/// An image that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `qcow2` or `raw`.
    pub format: &'static str,
    /// What the guest would see, in bytes.
    pub size: u64,
}

/// `qemu-img` has this long.
const LIMIT: Duration = Duration::from_secs(60);

/// Start of the image with the partition table: 34 sectors of 512 bytes hold a GPT.
const HEAD: usize = 34 * 512;

#[derive(Deserialize)]
struct Info {
    format: String,
    #[serde(rename = "virtual-size")]
    size: u64,
    #[serde(rename = "backing-filename")]
    backing: Option<String>,
    #[serde(default)]
    encrypted: bool,
    #[serde(rename = "format-specific")]
    specific: Option<Specific>,
}

#[derive(Deserialize)]
struct Specific {
    #[serde(default)]
    data: serde_json::Value,
}

/// Looks at the image `path` for a host of architecture `arch` (`uname -m`). `named` is how it was asked for: a
/// name that says another architecture is believed.
///
/// # Errors
/// [`CloudError::Image`] says why it can't be used.
pub async fn inspect(tools: &dyn Tools, path: &Path, named: &str, arch: &str) -> Result<Image, CloudError> {
    let refuse = |reason: String| CloudError::image(path, reason);
    let shown = path.to_string_lossy();
    let ask = Ask::new("qemu-img", ["info", "--output=json", "--force-share", "--", &shown], LIMIT);
    let answer = tools.ask(ask).await.map_err(|reason| missing(&reason))?;
    let text = answer.good("qemu-img info", LIMIT).map_err(refuse)?;
    let info: Info = serde_json::from_str(&text)
        .map_err(|error| refuse(format!("qemu-img info gave no JSON that can be read: {error}")))?;
    let format = match info.format.as_str() {
        "qcow2" => "qcow2",
        "raw" => "raw",
        other => return Err(refuse(format!("it is {other}; convert it (qemu-img convert -O qcow2)"))),
    };
    if info.backing.is_some() || has_data_file(&info) {
        return Err(refuse("it refers to a further file; give an image that stands alone".to_owned()));
    }
    if info.encrypted {
        return Err(refuse("it is encrypted".to_owned()));
    }
    let head = head(tools, path, format).await?;
    if format == "raw" && head.get(510..512) != Some(b"\x55\xaa") {
        return Err(refuse(format!("it is no disk image but {}", what(&head))));
    }
    if let Some(other) = architecture(&head, named).filter(|found| *found != family(arch)) {
        return Err(refuse(format!(
            "it is made for {other}, this host is {arch}; give the image for {arch}"
        )));
    }
    Ok(Image { format, size: info.size })
}

/// `qemu-img` could not be started.
pub fn missing(reason: &str) -> CloudError {
    CloudError::Program(format!(
        "{reason}; install qemu-utils (Debian, Ubuntu) or qemu-img (Fedora, RHEL) on this host"
    ))
}

fn has_data_file(info: &Info) -> bool {
    let specific = info.specific.as_ref().map(|specific| &specific.data);
    specific.is_some_and(|data| data.get("data-file").is_some())
}

/// The first bytes that the guest would see.
async fn head(tools: &dyn Tools, path: &Path, format: &str) -> Result<Vec<u8>, CloudError> {
    let mut bytes = Vec::new();
    let read = |from: &Path, bytes: &mut Vec<u8>| {
        let file = File::open(from).map_err(|error| CloudError::file(from, error))?;
        file.take(HEAD as u64).read_to_end(bytes).map_err(|error| CloudError::file(from, error))
    };
    if format == "raw" {
        read(path, &mut bytes)?;
        return Ok(bytes);
    }
    let folder = tempfile::tempdir().map_err(|error| CloudError::file(std::env::temp_dir(), error))?;
    let copy = folder.path().join("head");
    let args = [
        "dd".to_owned(),
        "-f".to_owned(),
        format.to_owned(),
        "-O".to_owned(),
        "raw".to_owned(),
        "bs=512".to_owned(),
        "count=34".to_owned(),
        format!("if={}", path.display()),
        format!("of={}", copy.display()),
    ];
    let answer = tools.ask(Ask::new("qemu-img", args, LIMIT)).await.map_err(|reason| missing(&reason))?;
    answer.good("qemu-img dd", LIMIT).map_err(|reason| CloudError::image(path, reason))?;
    read(&copy, &mut bytes)?;
    Ok(bytes)
}

/// What bytes are that are no disk.
fn what(head: &[u8]) -> &'static str {
    let text = || String::from_utf8_lossy(&head[..head.len().min(512)]).trim_start().to_ascii_lowercase();
    match head {
        [] => "an empty file",
        [0x1f, 0x8b, ..] => "compressed by gzip: unpack it first",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "compressed by xz: unpack it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "compressed by zstd: unpack it first",
        [b'B', b'Z', b'h', ..] => "compressed by bzip2: unpack it first",
        [b'P', b'K', 3, 4, ..] => "a zip archive: unpack it first",
        _ if text().starts_with("<!doctype") || text().starts_with("<html") => {
            "a web page: the URL leads to a page about the image, not to the image"
        }
        _ => "a file without a boot sector",
    }
}

/// Architectures by their names in files, by `uname -m`.
const NAMES: [(&str, &[&str]); 6] = [
    ("x86_64", &["amd64", "x86_64", "x86-64"]),
    ("aarch64", &["arm64", "aarch64"]),
    ("ppc64le", &["ppc64el", "ppc64le"]),
    ("riscv64", &["riscv64"]),
    ("s390x", &["s390x"]),
    ("armv7l", &["armhf", "armv7", "armv7l"]),
];

/// Types of root partitions of the Discoverable Partitions Specification, and the BIOS boot partition, which only
/// PCs have; as they are written in a GPT.
const PARTITIONS: [(&str, &str); 5] = [
    ("4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "x86_64"),
    ("21686148-6449-6e6f-744e-656564454649", "x86_64"),
    ("b921b045-1df0-41c3-af44-4c6f280d3fae", "aarch64"),
    ("72ec70a6-cf74-40e6-bd49-4bda08e8f224", "riscv64"),
    ("c31c45e6-3f39-412e-80fb-4809c4980599", "ppc64le"),
];

fn family(arch: &str) -> &str {
    NAMES.iter().find(|(name, others)| *name == arch || others.contains(&arch)).map_or(arch, |(name, _)| name)
}

/// The architecture that the partitions tell, else the one that the name tells.
fn architecture(head: &[u8], named: &str) -> Option<&'static str> {
    partitions(head)
        .iter()
        .find_map(|guid| PARTITIONS.iter().find(|(known, _)| known == guid).map(|(_, arch)| *arch))
        .or_else(|| from_name(named))
}

fn from_name(named: &str) -> Option<&'static str> {
    let end = named.find(['?', '#']).unwrap_or(named.len());
    let file = named[..end].rsplit('/').next().unwrap_or("").to_ascii_lowercase();
    // x86_64 has a separator inside, so words are looked for with their surroundings
    let holds = |word: &&str| {
        file.match_indices(*word).any(|(at, _)| {
            let outside = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
            outside(file[..at].chars().next_back()) && outside(file[at + word.len()..].chars().next())
        })
    };
    NAMES.iter().find(|(_, words)| words.iter().any(holds)).map(|(arch, _)| *arch)
}

/// Types of the partitions of a GPT whose entries lie where they normally do (128 bytes each, from sector 2 on).
fn partitions(head: &[u8]) -> Vec<String> {
    if head.get(512..520) != Some(b"EFI PART") {
        return Vec::new();
    }
    let entries = head.get(1024..).unwrap_or_default().chunks_exact(128);
    entries.map(|entry| guid(&entry[..16])).filter(|guid| !guid.starts_with("00000000-")).collect()
}

/// A GUID as it is written: the first three numbers have their lowest byte first.
fn guid(bytes: &[u8]) -> String {
    let hex = |order: &[usize]| order.iter().map(|at| format!("{:02x}", bytes[*at])).collect::<String>();
    [hex(&[3, 2, 1, 0]), hex(&[5, 4]), hex(&[7, 6]), hex(&[8, 9]), hex(&[10, 11, 12, 13, 14, 15])].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::fake::Fake;

    fn raw(folder: &Path, bytes: &[u8]) -> std::path::PathBuf {
        let path = folder.join("x.raw");
        std::fs::write(&path, bytes).expect("a file");
        path
    }

    async fn look(json: &'static str, bytes: &[u8], named: &str) -> Result<Image, String> {
        let dir = tempfile::tempdir().expect("a folder");
        let path = raw(dir.path(), bytes);
        let tools = Fake(move |_: &Ask| Ok(json.to_owned()));
        inspect(&tools, &path, named, "x86_64").await.map_err(|error| error.to_string())
    }

    const RAW: &str = r#"{"format":"raw","virtual-size":1048576}"#;

    fn disk() -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[510..512].copy_from_slice(b"\x55\xaa");
        bytes
    }

    fn gpt(kind: [u8; 16]) -> Vec<u8> {
        let mut bytes = disk();
        bytes[512..520].copy_from_slice(b"EFI PART");
        bytes[1024 + 128..1024 + 144].copy_from_slice(&kind);
        bytes
    }

    // B921B045-1DF0-41C3-AF44-4C6F280D3FAE as sgdisk writes it
    const ROOT_ARM64: [u8; 16] =
        [0x45, 0xb0, 0x21, 0xb9, 0xf0, 0x1d, 0xc3, 0x41, 0xaf, 0x44, 0x4c, 0x6f, 0x28, 0x0d, 0x3f, 0xae];

    #[tokio::test]
    async fn a_disk_is_taken_as_it_is() {
        assert_eq!(look(RAW, &disk(), "a").await, Ok(Image { format: "raw", size: 1 << 20 }));
        assert!(look(RAW, &disk(), "https://h/debian-12-amd64.raw?arm64").await.is_ok());
    }

    #[tokio::test]
    async fn what_is_no_disk_is_named() {
        for (bytes, part) in [
            (&b""[..], "an empty file"),
            (b"\x1f\x8b..", "gzip"),
            (b"\xfd7zXZ..", "xz"),
            (b" <!DOCTYPE html>", "a web page"),
            (&[0; 4096], "without a boot sector"),
        ] {
            let error = look(RAW, bytes, "a").await.expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }

    #[tokio::test]
    async fn another_architecture_is_refused_by_its_partitions_or_its_name() {
        for (bytes, named) in [
            (gpt(ROOT_ARM64), "debian-12"),
            (gpt(ROOT_ARM64), "debian-12-amd64.raw"),
            (disk(), "https://h/noble-server-cloudimg-arm64.img"),
            (disk(), "Fedora-Cloud-Base.aarch64.raw"),
        ] {
            let error = look(RAW, &bytes, named).await.expect_err(named);
            assert!(error.contains("made for aarch64, this host is x86_64"), "{error}");
        }
        assert!(look(RAW, &disk(), "charm64er.raw").await.is_ok(), "a word inside another is none");
    }

    #[tokio::test]
    async fn an_image_that_opens_other_files_is_refused() {
        for (json, part) in [
            (r#"{"format":"qcow2","virtual-size":1,"backing-filename":"/etc/shadow"}"#, "further file"),
            (
                r#"{"format":"qcow2","virtual-size":1,"format-specific":{"type":"qcow2","data":{"data-file":"/x"}}}"#,
                "further file",
            ),
            (r#"{"format":"vmdk","virtual-size":1}"#, "convert it"),
            (r#"{"format":"raw","virtual-size":1,"encrypted":true}"#, "encrypted"),
            ("what", "no JSON"),
        ] {
            let error = look(json, &disk(), "a").await.expect_err(json);
            assert!(error.contains(part), "{json}: {error}");
        }
    }
}
