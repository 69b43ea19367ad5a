//! The disk of a VM: a qcow2 layer over the image in the cache, or a copy of it where the disk must be raw.

use std::path::Path;
use std::time::Duration;

use super::Ground;
use super::error::CloudError;
use super::inspect::{Image, missing};
use crate::node::tools::Ask;

/// Size of a disk that nobody gave, unless its image is larger: 10 GiB.
pub const STANDARD: u64 = 10 << 30;

/// A copy of a large image to a slow disk has this long.
const COPY: Duration = Duration::from_secs(6 * 3600);
const QUICK: Duration = Duration::from_secs(120);

/// How a disk is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A layer over the image, which must stay.
    Overlay,
    /// A file of its own.
    Raw,
}

/// The size that a disk gets.
///
/// # Errors
/// When `wanted` is smaller than the image.
pub fn size(wanted: Option<u64>, image: &Image, path: &Path) -> Result<u64, CloudError> {
    match wanted {
        None => Ok(image.size.max(STANDARD)),
        Some(size) if size < image.size => Err(CloudError::image(
            path,
            format!(
                "it needs a disk of {} MiB, {} MiB were asked for",
                image.size.div_ceil(1 << 20),
                size >> 20
            ),
        )),
        Some(size) => Ok(size),
    }
}

/// Makes `disk` of `size` bytes from `image` at `path`. It appears when it is complete; what was in its place is
/// replaced.
///
/// # Errors
/// What `qemu-img` said.
pub async fn make(
    ground: &Ground,
    path: &Path,
    image: &Image,
    disk: &Path,
    size: u64,
    form: Form,
) -> Result<(), CloudError> {
    let mut name = disk.as_os_str().to_owned();
    name.push(".new");
    let new = std::path::PathBuf::from(name);
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    let bytes = size.to_string();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (path, to) = (shown(path), shown(&new));
    let done = match form {
        Form::Overlay => {
            let args =
                words(&["create", "-q", "-f", "qcow2", "-b", &path, "-F", image.format, "--", &to, &bytes]);
            qemu_img(ground, args, QUICK).await
        }
        Form::Raw => {
            let args = words(&["convert", "-q", "-f", image.format, "-O", "raw", "--", &path, &to]);
            match qemu_img(ground, args, COPY).await {
                Ok(()) => {
                    qemu_img(ground, words(&["resize", "-q", "-f", "raw", "--", &to, &bytes]), QUICK).await
                }
                failed => failed,
            }
        }
    };
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    let done = done.and_then(|()| {
        std::fs::set_permissions(&new, private)
            .and_then(|()| std::fs::rename(&new, disk))
            .map_err(|error| CloudError::file(disk, error))
    });
    if done.is_err() {
        // Ours, and of no use.
        let _ = std::fs::remove_file(&new);
    }
    done
}

async fn qemu_img(ground: &Ground, args: Vec<String>, limit: Duration) -> Result<(), CloudError> {
    let asked = ground.ask_tied(Ask::new("qemu-img", args, limit)).await;
    let answer = asked.map_err(|reason| missing(&reason))?;
    answer.good("qemu-img", limit).map(|_| ()).map_err(CloudError::Program)
}
