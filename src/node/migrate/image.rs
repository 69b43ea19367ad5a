//! Disk images, as `qemu-img info` tells of them.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::node::tools::{Ask, Tools};

/// One file of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Image {
    /// Its path.
    pub filename: String,
    /// raw, qcow2 ...
    pub format: String,
    /// Bytes that the guest sees.
    pub virtual_size: u64,
    /// Bytes that it takes.
    #[serde(default)]
    pub actual_size: u64,
    /// Bytes of a cluster.
    pub cluster_size: Option<u64>,
    /// Its backing file, as it is written down in it.
    pub backing_filename: Option<String>,
    /// Format of that, when it is written down.
    pub backing_filename_format: Option<String>,
    /// Snapshots inside.
    #[serde(default)]
    pub snapshots: Vec<serde_json::Value>,
    /// Whether it can only be read with a key.
    #[serde(default)]
    pub encrypted: bool,
}

/// The image at `path` and all that it builds on, itself first. It may be in use.
///
/// # Errors
/// Why `qemu-img` can't tell.
pub async fn chain(tools: &Arc<dyn Tools>, path: &str, limit: Duration) -> Result<Vec<Image>, String> {
    let args = ["info", "--force-share", "--output=json", "--backing-chain", path];
    let text = tools.ask(Ask::new("qemu-img", args, limit)).await?.good("qemu-img info", limit)?;
    let images: Vec<Image> =
        serde_json::from_str(&text).map_err(|error| format!("qemu-img info {path}: {error}"))?;
    if images.is_empty() { Err(format!("qemu-img info {path} told nothing")) } else { Ok(images) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::fake::Fake;

    #[tokio::test]
    async fn a_chain_is_read_as_qemu_img_prints_it() {
        // From qemu-img 7.2.
        let text = r#"[{"virtual-size": 4194304, "filename": "/a/disk.0.snap/1", "cluster-size": 65536, "format": "qcow2", "actual-size": 200704,
          "format-specific": {"type": "qcow2", "data": {"compat": "1.1"}}, "full-backing-filename": "/a/disk.0.snap/0", "backing-filename": "0", "dirty-flag": false,
          "snapshots": [{"vm-clock-nsec": 0, "name": "snap-0", "date-sec": 1, "date-nsec": 0, "vm-clock-sec": 0, "id": "1", "vm-state-size": 0}]},
          {"virtual-size": 4194304, "filename": "/a/disk.0.snap/0", "format": "raw", "actual-size": 0, "dirty-flag": false}]"#;
        let tools: Arc<dyn Tools> = Arc::new(Fake(move |ask: &Ask| {
            assert_eq!(ask.args.last().map(String::as_str), Some("/a/disk.0.snap/1"));
            Ok(text.to_owned())
        }));
        let images = chain(&tools, "/a/disk.0.snap/1", Duration::from_secs(5)).await.expect("a chain");
        assert_eq!(images.len(), 2);
        assert_eq!(images[0].backing_filename.as_deref(), Some("0"));
        assert_eq!((images[0].snapshots.len(), images[0].cluster_size), (1, Some(65536)));
        assert_eq!((images[1].format.as_str(), images[1].backing_filename.is_none()), ("raw", true));
    }
}
