//! Lays the files of a plan, and takes them away again.
//!
//! What stood there before is kept as the file itself (a hard link, so with owner, times and attributes), before
//! ours takes its place in one step. The record is written before the first change, so a run that was cut off is
//! finished by the next one, or taken back by an undo.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use super::named;
use super::plan::{Item, Step};
use super::record::{Laid, Record, Store, Thing, remove_empty};
use crate::host::push::{Manifest, OWN, carried_stamp, write_stamp};

/// Whether `items` change anything.
#[must_use]
pub fn would_change(items: &[Item]) -> bool {
    items.iter().any(|item| !matches!(item.step, Step::Same | Step::Keep(_) | Step::Settings))
}

/// Carries out `items`. Whether anything was changed.
///
/// # Errors
/// When something can't be read or written; what was done until then is in the record.
pub fn lay(items: &[Item], remotes: &Path, store: &Store, record: &mut Record) -> io::Result<bool> {
    let changes = would_change(items);
    if changes || record.pending {
        keep_old(items, remotes, store, record)?;
        for item in items {
            match (&item.step, &item.ours, &item.source) {
                (Step::Add | Step::Replace | Step::Update, Some(ours), Some(source)) => {
                    make_folders(remotes, &item.path, record)?;
                    place(source, ours, remotes, &item.path)?;
                }
                (Step::Withdraw, ..) => {
                    withdraw(&item.path, remotes, store, record)?;
                }
                _ => {}
            }
        }
        for item in items {
            if let (Step::Update | Step::Same, Some(ours), Some(laid)) =
                (&item.step, &item.ours, record.files.get_mut(&item.path))
            {
                laid.now = ours.clone();
            }
        }
    }
    let stamped = stamp(remotes, record)?;
    let version = env!("CARGO_PKG_VERSION");
    if changes || stamped || record.pending || record.version != version {
        version.clone_into(&mut record.version);
        record.pending = false;
        store.write(record)?;
        give_to_owner(&remotes.join(OWN), &fs::metadata(remotes)?)?;
    }
    Ok(changes || stamped)
}

/// Puts what will give way into the backups, and all that will be laid into the record.
fn keep_old(items: &[Item], remotes: &Path, store: &Store, record: &mut Record) -> io::Result<()> {
    for item in items {
        let Some(ours) = &item.ours else { continue };
        let before = match item.step {
            Step::Add => None,
            Step::Replace => item.there.clone(),
            _ => continue,
        };
        if item.step == Step::Replace {
            back_up(&remotes.join(&item.path), item, store)?;
        }
        // A file that the admin removed keeps the backup of what stood there first.
        let before = before.or_else(|| record.files.get(&item.path)?.before.clone());
        record.files.insert(item.path.clone(), Laid { now: ours.clone(), before });
    }
    record.pending = true;
    store.write(record)
}

fn back_up(target: &Path, item: &Item, store: &Store) -> io::Result<()> {
    let backup = store.backup(&item.path);
    match Thing::at(&backup)? {
        there @ Some(_) if there == item.there => return Ok(()),
        Some(_) => {
            let earlier = store.earlier(&item.path);
            make_parent(&earlier)?;
            fs::rename(&backup, &earlier).map_err(|error| named(&earlier, &error))?;
        }
        None => make_parent(&backup)?,
    }
    match fs::hard_link(target, &backup) {
        Ok(()) => Ok(()),
        // Another file system, or one without hard links, or a file of somebody else.
        Err(_) => copy(target, &backup).map_err(|error| named(&backup, &error)),
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(from)?;
    if meta.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    fs::copy(from, to)?;
    // Only root may give files away.
    let _ = chown(to, Some(meta.uid()), Some(meta.gid()));
    fs::set_permissions(to, meta.permissions())?;
    let file = fs::File::open(to)?;
    file.set_times(fs::FileTimes::new().set_modified(meta.modified()?))?;
    file.sync_all()
}

fn make_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(|error| named(parent, &error))
}

/// Makes the folders above `path` that are not there, and notes them.
fn make_folders(remotes: &Path, path: &str, record: &mut Record) -> io::Result<()> {
    for (at, _) in path.match_indices('/') {
        let folder = remotes.join(&path[..at]);
        match fs::create_dir(&folder) {
            Ok(()) => {
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
                own_as(&folder, &fs::metadata(remotes)?)?;
                record.folders.push(path[..at].to_owned());
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(named(&folder, &error)),
        }
    }
    Ok(())
}

/// Puts ours at `path` in one step: whoever reads it has the old or the new one.
fn place(source: &Path, ours: &Thing, remotes: &Path, path: &str) -> io::Result<()> {
    let target = remotes.join(path);
    let told = |error: &io::Error| named(&target, error);
    let folder = target.parent().unwrap_or(remotes);
    let owner = fs::metadata(remotes).map_err(|error| told(&error))?;
    match ours {
        Thing::Link(to) => {
            let staging = tempfile::Builder::new()
                .prefix(".kvmad-")
                .tempdir_in(folder)
                .map_err(|error| told(&error))?;
            let new = staging.path().join("link");
            symlink(to, &new).map_err(|error| told(&error))?;
            own_as(&new, &owner)?;
            fs::rename(&new, &target).map_err(|error| told(&error))
        }
        Thing::File { mode, .. } => {
            let new = tempfile::Builder::new()
                .prefix(".kvmad-")
                .tempfile_in(folder)
                .map_err(|error| told(&error))?;
            let mut from = fs::File::open(source).map_err(|error| named(source, &error))?;
            io::copy(&mut from, &mut new.as_file()).map_err(|error| told(&error))?;
            own_as(new.path(), &owner)?;
            new.as_file().set_permissions(fs::Permissions::from_mode(*mode)).map_err(|error| told(&error))?;
            new.as_file().sync_all().map_err(|error| told(&error))?;
            if Thing::at(new.path())?.as_ref() != Some(ours) {
                return Err(named(source, &io::Error::other("it was changed just now; try again")));
            }
            new.persist(&target).map_err(|error| told(&error.error))?;
            Ok(())
        }
        Thing::Folder | Thing::Other => Ok(()),
    }
}

/// Gives `path` the owner of the remotes, as far as this user may.
fn own_as(path: &Path, owner: &fs::Metadata) -> io::Result<()> {
    let now = fs::symlink_metadata(path).map_err(|error| named(path, &error))?;
    if rustix::process::geteuid().is_root() && (now.uid(), now.gid()) != (owner.uid(), owner.gid()) {
        std::os::unix::fs::lchown(path, Some(owner.uid()), Some(owner.gid()))
            .map_err(|error| named(path, &error))?;
    }
    Ok(())
}

/// Our own folder belongs to the owner of the remotes; the backups in it keep the owners they had.
fn give_to_owner(own: &Path, owner: &fs::Metadata) -> io::Result<()> {
    let installed = own.join("installed");
    let files = ["stamp", "manifest", "installed/record.json"].map(|name| own.join(name));
    let mut folders = vec![own.to_path_buf(), installed];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        own_as(&folder, owner)?;
        let inner = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(inner.map(|entry| entry.path()));
    }
    files.iter().filter(|file| file.exists()).try_for_each(|file| own_as(file, owner))
}

/// Writes the stamp that makes the remotes ours, unless it is right already.
fn stamp(remotes: &Path, record: &mut Record) -> io::Result<bool> {
    let there = carried_stamp(remotes);
    if there.as_deref() == Some(Manifest::of(remotes)?.stamp().as_str()) {
        return Ok(false);
    }
    if record.version.is_empty() {
        record.stamp = fs::read_to_string(remotes.join(OWN).join("stamp")).ok();
    }
    write_stamp(remotes)?;
    Ok(true)
}

/// How one path came back, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Back {
    /// What stood there before stands there again.
    Restored,
    /// Nothing stood there before, and ours is gone.
    Removed,
    /// It stays as it is; why.
    Kept(&'static str),
    /// It was as before already.
    Already,
}

/// What an undo would do with `path`.
///
/// # Errors
/// When it can't be read.
pub fn would_undo(path: &str, laid: &Laid, remotes: &Path, store: &Store, force: bool) -> io::Result<Back> {
    let there = Thing::at(&remotes.join(path))?;
    if there == laid.before {
        return Ok(Back::Already);
    }
    if matches!(there, Some(Thing::Folder)) {
        return Ok(Back::Kept("a folder is there"));
    }
    if there.as_ref() != Some(&laid.now) && !force {
        let why = if there.is_none() {
            "it was removed since it was laid"
        } else {
            "it was changed since it was laid"
        };
        return Ok(Back::Kept(why));
    }
    match &laid.before {
        None => Ok(Back::Removed),
        before if Thing::at(&store.backup(path))? == *before => Ok(Back::Restored),
        Some(_) => Ok(Back::Kept("the backup of what stood there is gone or was changed")),
    }
}

/// Takes one path back and out of the record, unless it is kept.
///
/// # Errors
/// When it can't be read or changed.
pub fn undo(path: &str, remotes: &Path, store: &Store, record: &mut Record, force: bool) -> io::Result<Back> {
    let Some(laid) = record.files.get(path) else { return Ok(Back::Already) };
    let back = would_undo(path, laid, remotes, store, force)?;
    let target = remotes.join(path);
    let told = |error: io::Error| named(&target, &error);
    let changed = Thing::at(&target)?.is_some_and(|there| there != laid.now);
    if changed && matches!(back, Back::Restored | Back::Removed) {
        let earlier = store.earlier(path);
        make_parent(&earlier)?;
        fs::rename(&target, &earlier).map_err(told)?;
    }
    match back {
        Back::Restored => fs::rename(store.backup(path), &target).map_err(told)?,
        Back::Removed if !changed => fs::remove_file(&target).map_err(told)?,
        Back::Already if laid.before.is_some() => {
            // The same as what is there; two names of one file at most.
            let _ = fs::remove_file(store.backup(path));
        }
        Back::Removed | Back::Already | Back::Kept(_) => {}
    }
    if !matches!(back, Back::Kept(_)) {
        record.files.remove(path);
    }
    Ok(back)
}

fn withdraw(path: &str, remotes: &Path, store: &Store, record: &mut Record) -> io::Result<Back> {
    undo(path, remotes, store, record, false)
}

/// After an undo: the folders that were made go as far as they are empty, the stamp is what it was, and the
/// record goes when nothing is in it.
///
/// # Errors
/// When these can't be changed.
pub fn close(remotes: &Path, store: &Store, record: &mut Record) -> io::Result<()> {
    record.folders.sort();
    while let Some(folder) = record.folders.pop() {
        // One that is not empty holds something of somebody else.
        let _ = fs::remove_dir(remotes.join(folder));
    }
    let own = remotes.join(OWN);
    match record.stamp.take() {
        Some(text) => fs::write(own.join("stamp"), text).map_err(|error| named(&own, &error))?,
        None => {
            for name in ["stamp", "manifest"] {
                match fs::remove_file(own.join(name)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(named(&own, &error)),
                    _ => {}
                }
            }
        }
    }
    if record.files.is_empty() {
        store.close()?;
    } else {
        store.write(record)?;
    }
    remove_empty(&own);
    Ok(())
}
