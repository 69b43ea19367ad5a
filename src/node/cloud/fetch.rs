//! The cache of images from URLs: each is downloaded once, by one of those who want it, and gone on with when it was
//! cut. A file appears under its name only when it is complete and good.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Sha256, Sha512};

use super::Ground;
use super::download::{self, Ending};
use super::error::CloudError;
use super::inspect;
use super::spec::Places;

/// Where a download and what belongs to it lie.
struct Files {
    /// The image, when it is complete.
    image: PathBuf,
    /// What is there of it so far.
    part: PathBuf,
    /// The version (ETag) that the part belongs to.
    version: PathBuf,
    /// Where the image came from.
    origin: PathBuf,
}

impl Files {
    fn new(base: &Path, file: &str) -> Self {
        Self {
            image: base.join(file),
            part: base.join(format!(".{file}.part")),
            version: base.join(format!(".{file}.version")),
            origin: base.join(format!(".{file}.url")),
        }
    }

    fn forget_part(&self) {
        for file in [&self.part, &self.version] {
            // It may not be there.
            let _ = fs::remove_file(file);
        }
    }
}

/// The image of `url` in the cache, downloaded if it is not there yet.
///
/// # Errors
/// [`CloudError`] of the cache, the download, the checksum or the image.
pub async fn get(
    ground: &Ground,
    url: &str,
    file: &str,
    places: &Places,
    checksum: Option<&str>,
) -> Result<PathBuf, CloudError> {
    let wanted = checksum.map(Checksum::parse).transpose()?;
    make_folder(&places.base)?;
    let files = Files::new(&places.base, file);
    let _lock = lock(ground, &places.base.join(format!(".{file}.lock")), file).await?;
    if files.image.exists() {
        if let Some(wanted) = &wanted {
            wanted.check(&files.image, &files.image, OTHER_IMAGE).await?;
        }
        tell_origin(ground, &files, url);
        return Ok(files.image);
    }
    download(ground, url, &files, places).await?;
    finish(ground, url, &files, wanted.as_ref()).await?;
    Ok(files.image)
}

const OTHER_IMAGE: &str =
    ": another image of that name is in the cache; VMs may use it, so give this one by another name or path";

fn tell_origin(ground: &Ground, files: &Files, url: &str) {
    let name = files.image.display();
    match fs::read_to_string(&files.origin) {
        Ok(from) if from.trim() != url => {
            ground.say(&format!("{name} is used; it came from {}", from.trim()))
        }
        _ => ground.say(&format!("{name} is there already, nothing is downloaded")),
    }
}

/// Makes `folder` so that QEMU, which runs as another user, can pass.
pub fn make_folder(folder: &Path) -> Result<(), CloudError> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|error| {
        let first = folder.ancestors().take_while(|path| !path.exists()).last().unwrap_or(folder);
        let user = std::env::var("USER").unwrap_or_else(|_| "USER".to_owned());
        let mend = format!("sudo install -d -o {user} {}", first.display());
        CloudError::file(
            folder,
            format!("the folder can't be made: {error}; make it for the driver's user: {mend}"),
        )
    })?;
    // A umask may have made it private.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
        .map_err(|error| CloudError::file(folder, error))
}

/// One caller at a time for each file; it is freed with the process, however that ends.
async fn lock(ground: &Ground, path: &Path, file: &str) -> Result<File, CloudError> {
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    let lock = opened.map_err(|error| CloudError::file(path, error))?;
    if lock.try_lock().is_ok() {
        return Ok(lock);
    }
    ground.say(&format!("another download of {file} is running; waiting for it"));
    let taken = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await;
    let taken = taken.map_err(|error| CloudError::file(path, error))?;
    taken.map_err(|error| CloudError::file(path, error))
}

async fn download(ground: &Ground, url: &str, files: &Files, places: &Places) -> Result<(), CloudError> {
    let mut tries = 0;
    loop {
        let had = size(&files.part);
        let ending = download::run(ground, url, &files.part, &files.version, places).await?;
        let failed = |reason: String| CloudError::Download { url: url.to_owned(), reason };
        match ending {
            Ending::Complete => return Ok(()),
            Ending::NotThere(reason) => return Err(failed(reason)),
            Ending::Full(reason) => {
                files.forget_part();
                return Err(failed(format!("{reason}; is there room in {}?", places.base.display())));
            }
            Ending::Changed => {
                ground.say(
                    "the image on the server has changed, or its server can't go on; it is downloaded anew",
                );
                files.forget_part();
            }
            Ending::Cut(reason) if tries + 1 >= places.tries => {
                let kept = size(&files.part) >> 20;
                return Err(failed(format!(
                    "{reason}; {kept} MiB are kept, the next try goes on from there"
                )));
            }
            Ending::Cut(reason) => {
                ground.say(&format!(
                    "the download was cut at {} MiB ({reason}); it goes on",
                    size(&files.part) >> 20
                ));
            }
        }
        // Progress starts the count anew, with a bound for servers that send a little each time.
        tries = if size(&files.part) > had + (64 << 20) { 0 } else { tries + 1 };
        if tries >= places.tries {
            return Err(failed("the server never sends it to its end".to_owned()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Checks the complete part and gives it its name.
async fn finish(
    ground: &Ground,
    url: &str,
    files: &Files,
    wanted: Option<&Checksum>,
) -> Result<(), CloudError> {
    let checked = async {
        if let Some(wanted) = wanted {
            wanted.check(&files.part, Path::new(url), "; what was downloaded is thrown away").await?;
        }
        inspect::inspect(ground.tools(), &files.part, url, ground.arch()).await.map_err(|error| match error {
            CloudError::Image { reason, .. } => CloudError::image(url, reason),
            other => other,
        })
    };
    if let Err(error) = checked.await {
        // It is what this call downloaded, and of no use to anybody.
        files.forget_part();
        return Err(error);
    }
    let failed = |error: std::io::Error| CloudError::file(&files.image, error);
    let part = File::open(&files.part).map_err(failed)?;
    part.sync_all().map_err(failed)?;
    part.set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)?;
    fs::write(&files.origin, format!("{url}\n")).map_err(failed)?;
    fs::rename(&files.part, &files.image).map_err(failed)?;
    files.forget_part();
    ground.say(&format!("{url} is complete: {} ({} MiB)", files.image.display(), size(&files.image) >> 20));
    Ok(())
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

/// A checksum that an image must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    kind: &'static str,
    digits: String,
}

impl Checksum {
    /// `sha256:HEX`, `sha512:HEX`, or the digits alone.
    ///
    /// # Errors
    /// What it must look like.
    pub fn parse(text: &str) -> Result<Self, CloudError> {
        let (kind, digits) = match text.split_once(':') {
            Some((kind, digits)) => (kind.to_ascii_lowercase(), digits),
            None => (if text.len() == 128 { "sha512" } else { "sha256" }.to_owned(), text),
        };
        let good = |length| digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let kind = match kind.as_str() {
            "sha256" if good(64) => "sha256",
            "sha512" if good(128) => "sha512",
            _ => {
                return Err(CloudError::Refused(format!(
                    "{text:?} is no checksum: give sha256: and 64, or sha512: and 128 hexadecimal digits"
                )));
            }
        };
        Ok(Self { kind, digits: digits.to_ascii_lowercase() })
    }

    /// Compares with that of `file`; `named` stands for it in the message.
    ///
    /// # Errors
    /// [`CloudError::Checksum`].
    pub async fn check(&self, file: &Path, named: &Path, advice: &'static str) -> Result<(), CloudError> {
        let (path, kind) = (file.to_owned(), self.kind);
        let digits = tokio::task::spawn_blocking(move || match kind {
            "sha512" => digest::<Sha512>(&path),
            _ => digest::<Sha256>(&path),
        });
        let found = digits.await.map_err(|error| CloudError::file(file, error))?;
        let found = found.map_err(|error| CloudError::file(file, error))?;
        if found == self.digits {
            return Ok(());
        }
        let wanted = self.digits.clone();
        Err(CloudError::Checksum { path: named.to_owned(), kind: self.kind, found, wanted, advice })
    }
}

fn digest<D: sha2::Digest>(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = D::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
