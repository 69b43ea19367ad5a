//! Why a cloud image could not become a VM.

use std::path::PathBuf;

/// What went wrong, in words for the operator: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// {text:?} names no image: {reason}
    #[error("{text:?} names no image: {reason}")]
    Reference {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such image in the library.
    #[error("there is no image {name:?} in the library {library}; there are: {there}", library = library.display())]
    NotInLibrary {
        /// The name.
        name: String,
        /// The folder.
        library: PathBuf,
        /// What is in it.
        there: String,
    },
    /// A file or folder can't be used.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// What was downloaded, or lies in the cache, is something else than was asked for.
    #[error("{path} has the {kind} checksum {found}, but {wanted} was given{advice}", path = path.display())]
    Checksum {
        /// The file, or where it came from.
        path: PathBuf,
        /// `sha256` or `sha512`.
        kind: &'static str,
        /// What it has.
        found: String,
        /// What it should have.
        wanted: String,
        /// What to do.
        advice: &'static str,
    },
    /// The download failed.
    #[error("{url} can't be downloaded: {reason}")]
    Download {
        /// From where.
        url: String,
        /// Why.
        reason: String,
    },
    /// The file is no disk image that a VM can boot from here.
    #[error("{path} can't be used as an image: {reason}", path = path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A program that is needed failed or is missing.
    #[error("{0}")]
    Program(String),
    /// What was asked for does not fit together.
    #[error("{0}")]
    Refused(String),
}

impl CloudError {
    /// A failed operation on `path`.
    pub fn file(path: impl Into<PathBuf>, reason: impl std::fmt::Display) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }

    /// `path` is no image to be used, because of `reason`.
    pub fn image(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Image { path: path.into(), reason: reason.into() }
    }
}
