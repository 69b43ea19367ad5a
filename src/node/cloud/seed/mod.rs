//! The seed: a small file system called `cidata` with what cloud-init's NoCloud source reads in the guest.

mod interfaces;
mod user;

pub use interfaces::check_address;
pub use user::check_key;

use std::path::Path;
use std::time::Duration;

use super::Ground;
use super::error::CloudError;
use super::spec::Seed;
use crate::node::tools::Ask;

/// Programs that make a seed, the first that is there does it, and what each needs before the common arguments.
const MAKERS: [(&str, &[&str]); 3] =
    [("genisoimage", &[]), ("mkisofs", &[]), ("xorriso", &["-as", "mkisofs"])];

const LIMIT: Duration = Duration::from_secs(60);

/// Makes the seed as `file`, readable for its owner only: it may hold secrets.
///
/// # Errors
/// What is wrong with the description, or that no program makes it.
pub async fn make(ground: &Ground, seed: &Seed, file: &Path) -> Result<(), CloudError> {
    let folder = tempfile::tempdir().map_err(|error| CloudError::file(std::env::temp_dir(), error))?;
    let inside = folder.path().join("seed");
    std::fs::create_dir(&inside).map_err(|error| CloudError::file(&inside, error))?;
    for (name, text) in [
        ("user-data", user::user_data(seed)?),
        ("meta-data", meta_data(seed)?),
        ("network-config", interfaces::network_config(&seed.interfaces)?),
    ] {
        let path = inside.join(name);
        std::fs::write(&path, text).map_err(|error| CloudError::file(&path, error))?;
    }
    let image = folder.path().join("seed.iso");
    run_maker(ground, &inside, &image).await?;
    let bytes = std::fs::read(&image).map_err(|error| CloudError::file(&image, error))?;
    super::write_private(file, &bytes)
}

async fn run_maker(ground: &Ground, inside: &Path, image: &Path) -> Result<(), CloudError> {
    for (program, before) in MAKERS {
        let mut args: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        args.extend(["-quiet", "-volid", "cidata", "-joliet", "-rock", "-output"].map(str::to_owned));
        args.extend([image, inside].map(|path| path.to_string_lossy().into_owned()));
        if let Ok(answer) = ground.ask_tied(Ask::new(program, args, LIMIT)).await {
            return answer.good(program, LIMIT).map(|_| ()).map_err(CloudError::Program);
        }
    }
    Err(CloudError::Program(
        "no program makes the seed on this host; install genisoimage, mkisofs or xorriso".to_owned(),
    ))
}

fn meta_data(seed: &Seed) -> Result<String, CloudError> {
    #[derive(serde::Serialize)]
    struct MetaData<'a> {
        #[serde(rename = "instance-id")]
        instance: &'a str,
        #[serde(rename = "local-hostname")]
        hostname: &'a str,
    }
    yaml(&MetaData { instance: &seed.instance, hostname: &seed.hostname })
}

fn yaml<T: serde::Serialize>(value: &T) -> Result<String, CloudError> {
    serde_saphyr::to_string(value).map_err(|error| CloudError::Program(format!("YAML: {error}")))
}
