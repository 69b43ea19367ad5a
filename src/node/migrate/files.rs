//! What a migration brings to the target before it begins, and what virsh must know of it.

use std::time::Duration;

use super::receive::Made;
use super::{copy, storage};
use crate::node::xml::relocate::relocate;
use crate::template::xml::Document;

/// What was brought to the target.
#[derive(Default)]
pub struct Files {
    /// Where that is.
    pub at: Option<copy::Where>,
    /// What was made there.
    pub made: Vec<Made>,
    /// Words for virsh.
    pub options: Vec<String>,
    /// The domain as it is to be there, while virsh may read it.
    domains: Vec<tempfile::NamedTempFile>,
}

/// For what was made to be taken away; the driver ends us half a minute after its TERM.
const UNDO: Duration = Duration::from_secs(20);

impl Files {
    /// What virsh must know of disks that are filled while the guest runs.
    pub fn fills(&mut self, storage: &storage::Storage) {
        if storage.disks.is_empty() {
            return;
        }
        let all: Vec<&str> = storage.disks.iter().map(|disk| disk.target.as_str()).collect();
        let how = if storage.layered() { "--copy-storage-inc" } else { "--copy-storage-all" };
        self.options.extend([how.to_owned(), "--migrate-disks".to_owned(), all.join(",")]);
    }

    /// The domain with its paths in another folder; `option` tells virsh.
    ///
    /// # Errors
    /// When that can't be made: a disk that was brought to the other folder must be used from there.
    pub fn rewrite(&mut self, option: &str, domain: &str, storage: &storage::Storage) -> Result<(), String> {
        let document = Document::parse(domain).map_err(|error| error.to_string())?;
        let text = relocate(&document, &storage.to).map_err(|error| error.to_string())?;
        storage.used_by(&Document::parse(text.as_str()).map_err(|error| error.to_string())?)?;
        let mut file =
            tempfile::NamedTempFile::new().map_err(|error| format!("no temporary file: {error}"))?;
        std::io::Write::write_all(&mut file, text.as_bytes())
            .map_err(|error| format!("a temporary file: {error}"))?;
        self.options.extend([option.to_owned(), file.path().to_string_lossy().into_owned()]);
        self.domains.push(file);
        Ok(())
    }

    /// Takes away what was made; what is to be said of it.
    pub async fn undo(self) -> String {
        let Some(at) = self.at else { return String::new() };
        match copy::undo(self.made, &at, UNDO).await {
            Ok(()) => String::new(),
            Err(why) => format!("; files that were made for it are left on the target: {why}"),
        }
    }

    /// What is to be said when it stays.
    #[must_use]
    pub fn left(&self) -> String {
        match self.made.first() {
            Some(one) => format!("; files that were made for it stay on the target: {}", one.path),
            None => String::new(),
        }
    }
}
