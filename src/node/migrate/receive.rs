//! `kvmad-node receive`: the other end of a copy. It makes folders, links, files and empty disks in one folder, tells what
//! it made, and takes away what it made, nothing else.
//!
//! On stdin requests, a line of JSON each; behind a `File` its data in pieces. On stdout a line that says who speaks, then
//! one line of JSON for each request. When stdin ends before `Done`, what was made is taken away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::host::capture::{Limits, run_blocking};
use crate::host::process::{self, End, Start};

/// First line of the answers.
pub const GREETING: &str = "kvmad-receive 1";
/// Longest piece of a file, in bytes.
pub const PIECE: usize = 1 << 20;
/// For one `qemu-img`; repairing a large image takes a while.
const IMAGE_LIMIT: Duration = Duration::from_secs(1800);

/// What is asked for. Paths are absolute and lie in the folder of `Home`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The folder everything lies in; made with all above it when it is not there.
    Home {
        /// Where.
        path: String,
        /// Bytes that must be free there.
        bytes: u64,
    },
    /// A folder.
    Folder {
        /// Where.
        path: String,
        /// Permissions.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where.
        path: String,
        /// What it points to.
        to: String,
    },
    /// A file; its data follow: for each piece its place (8 bytes) and its length (4 bytes, most significant first) and
    /// that many bytes; length 0 ends it. What is left out is zero.
    File {
        /// Where.
        path: String,
        /// Bytes in all.
        size: u64,
        /// Permissions.
        mode: u32,
        /// One that is there already is replaced.
        replace: bool,
    },
    /// An empty disk.
    Disk {
        /// Where.
        path: String,
        /// raw or qcow2.
        format: String,
        /// Bytes that the guest sees.
        size: u64,
        /// Permissions.
        mode: u32,
        /// Bytes of a cluster of qcow2.
        cluster: Option<u64>,
        /// Backing file as it is to be written down, and its format.
        backing: Option<(String, String)>,
    },
    /// Of a qcow2 image that was copied while it was in use, keep the snapshots and make the rest empty.
    OnlySnapshots {
        /// Where.
        path: String,
        /// Backing file as it is to be written down, and its format.
        backing: Option<(String, String)>,
    },
    /// Tell which of these are not there.
    Need {
        /// Anywhere.
        paths: Vec<String>,
    },
    /// From now on everything stays.
    Done,
    /// Take these away, the last first, when they are still the same.
    Undo {
        /// As they were told.
        made: Vec<Made>,
    },
}

/// Something that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Where.
    pub path: String,
    /// By this it is known again.
    pub inode: u64,
    /// It is taken away only when it is empty.
    pub folder: bool,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done {
        /// What was made for it.
        made: Vec<Made>,
        /// What is not there.
        missing: Vec<String>,
    },
    /// It is not, for this reason.
    Failed {
        /// For people.
        why: String,
    },
}

/// Serves stdin until its end.
#[must_use]
pub fn main() -> ExitCode {
    process::settle();
    let mut stdin = io::stdin().lock();
    let mut stdout = io::stdout().lock();
    let mut receiver = Receiver::default();
    let served = receiver.serve(&mut stdin, &mut stdout);
    receiver.close();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

#[derive(Debug, Default)]
struct Receiver {
    home: Option<PathBuf>,
    made: Vec<Made>,
}

impl Receiver {
    fn serve(&mut self, input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
        writeln!(output, "{GREETING}")?;
        output.flush()?;
        let mut line = String::new();
        loop {
            line.clear();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let before = self.made.len();
            let answer = match serde_json::from_str(&line) {
                Ok(request) => self.answer(request, input),
                Err(error) => Err(format!("the request can't be read: {error}")),
            };
            let failed = answer.is_err();
            let answer = match answer {
                Ok(missing) => {
                    Answer::Done { made: self.made.get(before..).unwrap_or_default().to_vec(), missing }
                }
                Err(why) => Answer::Failed { why },
            };
            let text = serde_json::to_string(&answer).map_err(io::Error::other)?;
            writeln!(output, "{text}")?;
            output.flush()?;
            if failed {
                // The data of a file that failed may still come: nothing behind it could be understood.
                return Ok(());
            }
        }
    }

    fn answer(&mut self, request: Request, input: &mut dyn Read) -> Result<Vec<String>, String> {
        match request {
            Request::Home { path, bytes } => self.open(&path, bytes)?,
            Request::Folder { path, mode } => {
                let path = self.inside(&path)?;
                if !path.is_dir() {
                    fs::create_dir(&path).map_err(|error| said(&path, &error))?;
                    self.note(&path, true)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o700))
                        .map_err(|error| said(&path, &error))?;
                }
            }
            Request::Link { path, to } => {
                let path = self.inside(&path)?;
                if fs::read_link(&path).is_ok_and(|there| there == Path::new(&to)) {
                    return Ok(Vec::new());
                }
                symlink(&to, &path).map_err(|error| said(&path, &error))?;
                self.note(&path, false)?;
            }
            Request::File { path, size, mode, replace } => {
                let path = self.inside(&path)?;
                if replace && path.is_file() {
                    let aside = path.with_extension("kvmad-new");
                    let _ = fs::remove_file(&aside); // of an earlier attempt
                    self.file(&aside, size, mode, input)?;
                    fs::rename(&aside, &path).map_err(|error| said(&path, &error))?;
                    self.made.pop();
                } else {
                    self.file(&path, size, mode, input)?;
                }
            }
            Request::Disk { path, format, size, mode, cluster, backing } => {
                let path = self.inside(&path)?;
                self.new_file(&path, mode)?;
                make_disk(&path, &format, size, cluster, backing)?;
            }
            Request::OnlySnapshots { path, backing } => {
                let path = self.inside(&path)?;
                only_snapshots(&path)?;
                if let Some((file, format)) = backing {
                    let start = Start::new("qemu-img")
                        .args(["rebase", "-u", "-f", "qcow2", "-b", &file, "-F", &format]);
                    image(start.arg(&path), "rebase", &path)?;
                }
            }
            Request::Need { paths } => {
                return Ok(paths.into_iter().filter(|path| !Path::new(path).exists()).collect());
            }
            Request::Done => self.made.clear(),
            Request::Undo { made } => {
                self.made = made;
                let left = undo(&std::mem::take(&mut self.made));
                if !left.is_empty() {
                    return Err(left.join("; "));
                }
            }
        }
        Ok(Vec::new())
    }

    fn open(&mut self, path: &str, bytes: u64) -> Result<(), String> {
        let home = clean(path)?;
        let mut missing: Vec<&Path> = home.ancestors().take_while(|path| !path.is_dir()).collect();
        while let Some(folder) = missing.pop() {
            fs::create_dir(folder).map_err(|error| said(folder, &error))?;
            self.note(folder, true)?;
        }
        let room = rustix::fs::statvfs(&home).map_err(|error| said(&home, &error.into()))?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if free < bytes {
            let (need, have) = (super::job::bytes(bytes), super::job::bytes(free));
            return Err(format!("{need} are needed in {}, {have} are free there", home.display()));
        }
        self.home = Some(home);
        Ok(())
    }

    /// `path` when it lies in the folder.
    fn inside(&self, path: &str) -> Result<PathBuf, String> {
        let path = clean(path)?;
        match &self.home {
            Some(home) if path.starts_with(home) && path != *home => Ok(path),
            _ => Err(format!("{} does not lie in the VM's folder", path.display())),
        }
    }

    fn note(&mut self, path: &Path, folder: bool) -> Result<(), String> {
        let about = fs::symlink_metadata(path).map_err(|error| said(path, &error))?;
        let path = path.to_string_lossy().into_owned();
        self.made.push(Made { path, inode: about.ino(), folder });
        Ok(())
    }

    /// A file that was not there before.
    fn new_file(&mut self, path: &Path, mode: u32) -> Result<File, String> {
        let file = OpenOptions::new().write(true).read(true).create_new(true).mode(mode & 0o777).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{} is there already; it was not touched", path.display())
            }
            _ => said(path, &error),
        })?;
        self.note(path, false)?;
        Ok(file)
    }

    fn file(&mut self, path: &Path, size: u64, mode: u32, input: &mut dyn Read) -> Result<(), String> {
        let file = self.new_file(path, mode)?;
        let failed = |error: io::Error| said(path, &error);
        file.set_len(size).map_err(failed)?;
        let mut buffer = vec![0; PIECE];
        loop {
            let (mut place, mut length) = ([0; 8], [0; 4]);
            input.read_exact(&mut place).and_then(|()| input.read_exact(&mut length)).map_err(failed)?;
            let (place, length) = (u64::from_be_bytes(place), u32::from_be_bytes(length) as usize);
            if length == 0 {
                return file.sync_all().map_err(failed);
            }
            let piece =
                buffer.get_mut(..length).ok_or_else(|| format!("a piece of {length} bytes is too long"))?;
            input.read_exact(piece).and_then(|()| file.write_all_at(piece, place)).map_err(failed)?;
        }
    }

    /// The other side is gone: what was made before `Done` is of no use.
    fn close(&mut self) {
        undo(&std::mem::take(&mut self.made));
    }
}

/// Takes away what is still the same, the last first; what could not be taken away.
fn undo(made: &[Made]) -> Vec<String> {
    let mut left = Vec::new();
    for one in made.iter().rev() {
        let path = Path::new(&one.path);
        let same = fs::symlink_metadata(path).is_ok_and(|about| about.ino() == one.inode);
        let done = match (same, one.folder) {
            (false, _) => Ok(()),
            (true, true) => fs::remove_dir(path),
            (true, false) => fs::remove_file(path),
        };
        // A folder into which somebody else has put something stays.
        if let Err(error) = done
            && !one.folder
        {
            left.push(said(path, &error));
        }
    }
    left
}

fn clean(path: &str) -> Result<PathBuf, String> {
    let parts = Path::new(path).components();
    let good = path.starts_with('/')
        && parts.clone().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if good { Ok(parts.collect()) } else { Err(format!("{path:?} is no absolute path without ..")) }
}

fn said(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn make_disk(
    path: &Path,
    format: &str,
    size: u64,
    cluster: Option<u64>,
    backing: Option<(String, String)>,
) -> Result<(), String> {
    let mut start = Start::new("qemu-img").args(["create", "-q", "-f", format]);
    if let Some((file, format)) = backing {
        start = start.args(["-u", "-b", &file, "-F", &format]);
    }
    if let Some(cluster) = cluster {
        start = start.arg("-o").arg(format!("cluster_size={cluster}"));
    }
    image(start.arg(path).arg(size.to_string()), "create", path).map(|_| ())
}

fn image(start: Start, verb: &str, path: &Path) -> Result<Vec<u8>, String> {
    let limits = Limits { limit: Some(IMAGE_LIMIT), ..Limits::default() };
    let done = run_blocking(&start.no_stdin().env("LC_ALL", "C"), Bytes::new(), &limits)
        .map_err(|error| error.to_string())?;
    if done.end == End::Exited(0) {
        return Ok(done.stdout);
    }
    let why = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
    Err(format!("qemu-img {verb} {}: {why} ({:?})", path.display(), done.end))
}

/// The active table of the image is emptied, then `qemu-img check` counts anew what is in use: the snapshots. Their
/// clusters do not change while the image is in use, so their copy is whole; the counts and the active table are not.
fn only_snapshots(path: &Path) -> Result<(), String> {
    let failed = |error: io::Error| said(path, &error);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let mut header = [0; 72];
    file.read_exact_at(&mut header, 0).map_err(failed)?;
    let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().unwrap_or_default());
    let short = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap_or_default());
    if header[..4] != *b"QFI\xfb" {
        return Err(format!("{} is no qcow2 image", path.display()));
    }
    let (entries, table) = (short(36), number(40));
    if entries > 1 << 25 || table == 0 {
        return Err(format!("{} has an impossible table", path.display()));
    }
    let zeros = vec![0; 8 * entries as usize];
    file.write_all_at(&zeros, table).and_then(|()| file.sync_all()).map_err(failed)?;
    drop(file);
    let check =
        |words: &[&str]| image(Start::new("qemu-img").args(words.iter().copied()).arg(path), words[0], path);
    // It mends and looks again; only what is whole then is good.
    check(&["check", "-q", "-f", "qcow2", "-r", "all"]).map(|_| ())?;
    check(&["check", "-q", "-f", "qcow2"]).map(|_| ())
}

#[cfg(test)]
mod tests;
