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
    /// The same as a path that can be opened from anywhere.
    pub full_backing_filename: Option<String>,
    /// Format of that, when it is written down.
    pub backing_filename_format: Option<String>,
    /// Snapshots inside.
    #[serde(default)]
    pub snapshots: Vec<serde_json::Value>,
    /// Whether it can only be read with a key.
    #[serde(default)]
    pub encrypted: bool,
}

/// Layers of a chain at most.
const LAYERS: usize = 256;

/// The image at `path` and all that it builds on, itself first. It may be in use. `formats` are those that libvirt opened
/// them with, in that order: an image is never asked for its own format, because what a raw one begins with is the guest's to
/// write, and it could look like a chain to files of the host. Below what `formats` tells, that which is written down in the layer above
/// counts. The first one is raw when nothing is told.
///
/// # Errors
/// Why `qemu-img` can't tell; a backing file whose format nobody tells.
pub async fn chain(
    tools: &Arc<dyn Tools>,
    path: &str,
    formats: &[String],
    limit: Duration,
) -> Result<Vec<Image>, String> {
    let mut images: Vec<Image> = Vec::new();
    let mut next = Some((path.to_owned(), None));
    while let Some((path, noted)) = next {
        let format = match (formats.get(images.len()).cloned().or(noted), images.last()) {
            (Some(format), _) => format,
            (None, None) => "raw".to_owned(),
            (None, Some(above)) => {
                return Err(format!(
                    "{}: neither libvirt nor the image tells the format of its backing file {path}; write it down with the VM off: \
                     qemu-img rebase -u -b {path} -F FORMAT {}",
                    above.filename, above.filename
                ));
            }
        };
        let args = ["info", "--force-share", "--output=json", "-f", &format, &path];
        let text = tools.ask(Ask::new("qemu-img", args, limit)).await?.good("qemu-img info", limit)?;
        let image: Image =
            serde_json::from_str(&text).map_err(|error| format!("qemu-img info {path}: {error}"))?;
        let below = image.full_backing_filename.clone().or_else(|| image.backing_filename.clone());
        next = below.map(|below| (below, image.backing_filename_format.clone()));
        images.push(image);
        if images.len() > LAYERS {
            return Err(format!("{} builds on more than {LAYERS} layers", images[0].filename));
        }
    }
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::fake::Fake;

    #[tokio::test]
    async fn a_chain_is_read_layer_by_layer_each_in_its_own_format() {
        // In the form of qemu-img 7.2.
        let texts = [
            (
                "qcow2 /a/disk.0.snap/1",
                r#"{"virtual-size": 4194304, "filename": "/a/disk.0.snap/1", "cluster-size": 65536, "format": "qcow2", "actual-size": 200704,
          "format-specific": {"type": "qcow2", "data": {"compat": "1.1"}}, "full-backing-filename": "/a/disk.0.snap/0", "backing-filename": "0", "backing-filename-format": "raw", "dirty-flag": false,
          "snapshots": [{"vm-clock-nsec": 0, "name": "snap-0", "date-sec": 1, "date-nsec": 0, "vm-clock-sec": 0, "id": "1", "vm-state-size": 0}]}"#,
            ),
            (
                "raw /a/disk.0.snap/0",
                r#"{"virtual-size": 4194304, "filename": "/a/disk.0.snap/0", "format": "raw", "actual-size": 0, "dirty-flag": false}"#,
            ),
        ];
        let tools: Arc<dyn Tools> = Arc::new(Fake(move |ask: &Ask| {
            let asked = ask.args[4..].join(" ");
            Ok(texts.iter().find(|(about, _)| *about == asked).expect("a layer").1.to_owned())
        }));
        let formats = ["qcow2".to_owned()];
        let images =
            chain(&tools, "/a/disk.0.snap/1", &formats, Duration::from_secs(5)).await.expect("a chain");
        assert_eq!(images.len(), 2);
        assert_eq!(images[0].backing_filename.as_deref(), Some("0"));
        assert_eq!((images[0].snapshots.len(), images[0].cluster_size), (1, Some(65536)));
        assert_eq!((images[1].format.as_str(), images[1].backing_filename.is_none()), ("raw", true));
    }

    #[tokio::test]
    async fn a_backing_file_of_unknown_format_is_not_opened() {
        let tools: Arc<dyn Tools> = Arc::new(Fake(|ask: &Ask| {
            assert!(ask.args.ends_with(&["qcow2".to_owned(), "/a/1".to_owned()]), "{ask:?}");
            Ok(r#"{"virtual-size": 512, "filename": "/a/1", "format": "qcow2", "full-backing-filename": "/a/0", "backing-filename": "0"}"#.to_owned())
        }));
        let limit = Duration::from_secs(5);
        let why = chain(&tools, "/a/1", &["qcow2".to_owned()], limit).await.expect_err("refused");
        assert!(why.contains("/a/0") && why.contains("-F FORMAT"), "{why}");
    }
}
