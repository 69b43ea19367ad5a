//! The front-end's remotes folder: what is in it, its stamp, and the archive that goes to a host.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::host::stdin::Stdin;

/// Folder below the remotes with what we know of them: `stamp` and `manifest`. Not part of the stamp.
pub const OWN: &str = ".kvmad";

/// Folders deeper than this are a loop of links.
const DEEPEST: usize = 40;

/// One file or folder, as it will be on a host: links are followed, as OpenNebula's own copy does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Permission bits.
    pub mode: u32,
    /// SHA-256 of a file's content in hexadecimal; `None` for a folder.
    pub hash: Option<String>,
}

/// What is in a remotes folder, by path below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest(pub BTreeMap<String, Entry>);

/// Differences between two manifests, in paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Only in the new one.
    pub added: Vec<String>,
    /// In both, but not the same.
    pub changed: Vec<String>,
    /// Only in the old one.
    pub removed: Vec<String>,
}

impl Manifest {
    /// Reads a folder and all below it.
    ///
    /// # Errors
    /// When something in it can't be read; names it.
    pub fn of(dir: &Path) -> io::Result<Self> {
        let mut all = BTreeMap::new();
        walk(dir, "", 0, &mut all)?;
        Ok(Self(all))
    }

    /// Puts a file from elsewhere at `path`, with the folders above it; what is there already gives way.
    fn add(&mut self, file: &Path, path: &str) -> io::Result<()> {
        let Some(meta) = usable(file)?.filter(Metadata::is_file) else { return Ok(()) };
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Entry { mode: 0o755, hash: None });
        }
        let entry = Entry { mode: meta.permissions().mode() & 0o7777, hash: Some(hash(file)?) };
        self.0.insert(path.to_owned(), entry);
        Ok(())
    }

    /// Lines `MODE HASH PATH`, `-` as the hash of a folder; newlines and backslashes in paths escaped.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (path, entry) in &self.0 {
            let path = path.replace('\\', "\\\\").replace('\n', "\\n");
            let hash = entry.hash.as_deref().unwrap_or("-");
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:04o} {hash} {path}", entry.mode);
        }
        text
    }

    /// Reads what [`Manifest::text`] wrote; lines that are none are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let mode = u32::from_str_radix(words.next()?, 8).ok()?;
            let hash = words.next().map(|hash| (hash != "-").then(|| hash.to_owned()))?;
            Some((unescape(words.next()?), Entry { mode, hash }))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    /// One word that differs when anything differs: SHA-256 over paths, modes and contents, in hexadecimal.
    #[must_use]
    pub fn stamp(&self) -> String {
        hex(&Sha256::digest(self.text()))
    }

    /// What is different in `new`.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Changes {
        let mut changes = Changes::default();
        for (path, entry) in &new.0 {
            match self.0.get(path) {
                None => changes.added.push(path.clone()),
                Some(old) if old != entry => changes.changed.push(path.clone()),
                Some(_) => {}
            }
        }
        changes.removed = self.0.keys().filter(|path| !new.0.contains_key(*path)).cloned().collect();
        changes
    }
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => out.push(if chars.next() == Some('n') { '\n' } else { '\\' }),
            (c, false) => out.push(c),
        }
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn walk(dir: &Path, below: &str, depth: usize, all: &mut BTreeMap<String, Entry>) -> io::Result<()> {
    let told =
        |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if depth > DEEPEST {
        return Err(told(dir, io::Error::other("the folders are too deep, or links go in a circle")));
    }
    for entry in fs::read_dir(dir).map_err(|error| told(dir, error))? {
        let path = entry.map_err(|error| told(dir, error))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(told(&path, io::Error::other("the name is not UTF-8")));
        };
        if depth == 0 && name == OWN {
            continue;
        }
        // A link that leads nowhere, a socket: nothing that a host could use.
        let Some(meta) = usable(&path)? else { continue };
        let name = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        let mode = meta.permissions().mode() & 0o7777;
        if meta.is_dir() {
            walk(&path, &name, depth + 1, all)?;
            all.insert(name, Entry { mode, hash: None });
        } else {
            let hash = Some(hash(&path).map_err(|error| told(&path, error))?);
            all.insert(name, Entry { mode, hash });
        }
    }
    Ok(())
}

fn usable(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() || meta.is_file() => Ok(Some(meta)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

fn hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// A remotes folder that is ready to go: its archive says what its stamp says.
#[derive(Debug)]
pub struct Packed {
    /// What is in it.
    pub manifest: Manifest,
    /// Its stamp.
    pub stamp: String,
    archive: Arc<File>,
}

impl Packed {
    /// Packs `dir` with `extras`, files from elsewhere and where they will be.
    ///
    /// # Errors
    /// When it can't be read, or changed while it was read.
    pub fn of(dir: &Path, extras: &[(PathBuf, String)]) -> io::Result<Self> {
        let mut manifest = Manifest::of(dir)?;
        for (file, path) in extras {
            manifest.add(file, path)?;
        }
        let source = |path: &str| {
            let extra = extras.iter().find(|(file, to)| to == path && file.is_file());
            extra.map_or_else(|| dir.join(path), |(file, _)| file.clone())
        };
        let stamp = manifest.stamp();
        let told = |error: io::Error| io::Error::new(error.kind(), format!("a temporary file: {error}"));
        let mut tar = tar::Builder::new(BufWriter::new(tempfile::tempfile().map_err(told)?));
        for (path, entry) in &manifest.0 {
            match &entry.hash {
                None => put(&mut tar, path, entry.mode, tar::EntryType::Directory, &[])?,
                Some(hash) => {
                    copy(&mut tar, path, entry.mode, &source(path), hash)?;
                }
            }
        }
        put(&mut tar, OWN, 0o755, tar::EntryType::Directory, &[])?;
        for (name, text) in [("stamp", format!("{stamp}\n")), ("manifest", manifest.text())] {
            put(&mut tar, &format!("{OWN}/{name}"), 0o644, tar::EntryType::Regular, text.as_bytes())?;
        }
        let archive = tar.into_inner()?.into_inner().map_err(|error| told(error.into_error()))?;
        Ok(Self { stamp, archive: Arc::new(archive), manifest })
    }

    /// A tar archive of it, with our own folder. It lies in a file without a name, which goes with the last user.
    ///
    /// # Errors
    /// When that file can't be looked at.
    pub fn archive(&self) -> io::Result<Stdin> {
        Stdin::of_file(self.archive.clone())
    }
}

type Archive = tar::Builder<BufWriter<File>>;

/// Adds the file at `source`, which must still be what `wanted` says.
fn copy(tar: &mut Archive, path: &str, mode: u32, source: &Path, wanted: &str) -> io::Result<()> {
    let changed = || io::Error::other(format!("{path} was changed just now; try again"));
    let file = File::open(source)?;
    let size = file.metadata()?.len();
    let mut content = Hashing { source: file.take(size), hasher: Sha256::new(), count: 0 };
    tar.append_data(&mut header(mode, tar::EntryType::Regular, size), path, &mut content)?;
    if content.count != size || hex(&content.hasher.finalize()) != wanted {
        return Err(changed());
    }
    Ok(())
}

/// Hashes what is read through it.
struct Hashing<R> {
    source: R,
    hasher: Sha256,
    count: u64,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.count += count as u64;
        Ok(count)
    }
}

fn put(tar: &mut Archive, path: &str, mode: u32, kind: tar::EntryType, content: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(mode, kind, content.len() as u64), path, content)
}

fn header(mode: u32, kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(super::now());
    header
}

/// The stamp that a remotes folder carries; `None`: they are foreign (OpenNebula's alone).
#[must_use]
pub fn carried_stamp(dir: &Path) -> Option<String> {
    let text = fs::read_to_string(stamp_file(dir)).ok()?;
    let word = text.split_whitespace().next()?;
    Some(word.to_owned())
}

/// Writes the stamp of what is in `dir` there, which makes the folder ours. Gives the stamp.
///
/// # Errors
/// When the folder can't be read or written.
pub fn write_stamp(dir: &Path) -> io::Result<String> {
    let manifest = Manifest::of(dir)?;
    let stamp = manifest.stamp();
    fs::create_dir_all(dir.join(OWN))?;
    for (name, text) in [("manifest", manifest.text()), ("stamp", format!("{stamp}\n"))] {
        let mut file = tempfile::NamedTempFile::new_in(dir.join(OWN))?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        file.persist(dir.join(OWN).join(name)).map_err(|error| error.error)?;
    }
    Ok(stamp)
}

fn stamp_file(dir: &Path) -> PathBuf {
    dir.join(OWN).join("stamp")
}

#[cfg(test)]
mod tests;
