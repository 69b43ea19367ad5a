//! What laying our files over a remotes folder would do: a comparison, nothing is changed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::named;
use super::record::{Laid, Record, Thing};
use crate::host::push::OWN;

/// Appended to the name of a configuration file of ours that is laid beside the admin's.
pub const BESIDE: &str = ".kvmad";

/// Folders deeper than this are not of our making.
const DEEPEST: usize = 20;

/// What is to be done with one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ours is there already.
    Same,
    /// Nothing was there.
    Add,
    /// What is there is kept in the backups and gives way.
    Replace,
    /// An older one of ours gives way.
    Update,
    /// Ours of an older version has no successor: what was before comes back.
    Withdraw,
    /// What is there stays; why.
    Keep(&'static str),
    /// The admin's configuration stays, which is as it should be; ours is laid beside it.
    Settings,
}

/// One path of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Below the remotes.
    pub path: String,
    /// The file of ours; `None` for [`Step::Withdraw`].
    pub source: Option<PathBuf>,
    /// What ours is; `None` for [`Step::Withdraw`].
    pub ours: Option<Thing>,
    /// What is there now.
    pub there: Option<Thing>,
    /// What to do.
    pub step: Step,
}

/// What may be replaced beyond what is known to be safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    /// Files that were changed since they were laid.
    pub changed: bool,
    /// Configuration files (`etc/`) that are not ours.
    pub settings: bool,
}

/// All files and links below `dir` but our own folder, by path below it.
///
/// # Errors
/// When something can't be read; names it.
pub fn files(dir: &Path) -> io::Result<BTreeMap<String, Thing>> {
    let mut all = BTreeMap::new();
    walk(dir, "", 0, &mut all)?;
    Ok(all)
}

fn walk(dir: &Path, below: &str, depth: usize, all: &mut BTreeMap<String, Thing>) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(named(dir, &io::Error::other("the folders are too deep")));
    }
    for entry in fs::read_dir(dir).map_err(|error| named(dir, &error))? {
        let path = entry.map_err(|error| named(dir, &error))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(named(&path, &io::Error::other("the name is not UTF-8")));
        };
        if depth == 0 && name == OWN {
            continue;
        }
        let name = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        match Thing::at(&path)? {
            Some(Thing::Folder) => walk(&path, &name, depth + 1, all)?,
            Some(thing @ (Thing::File { .. } | Thing::Link(_))) => {
                all.insert(name, thing);
            }
            Some(Thing::Other) | None => {}
        }
    }
    Ok(())
}

/// Compares the files of `from` with the remotes at `remotes` and what `record` says was laid there.
///
/// # Errors
/// When something can't be read; names it.
pub fn plan(from: &Path, remotes: &Path, record: &Record, allowed: Allowed) -> io::Result<Vec<Item>> {
    let ours = files(from)?;
    let root = remotes.canonicalize().map_err(|error| named(remotes, &error))?;
    let mut items = Vec::new();
    for (path, thing) in &ours {
        let there = Thing::at(&remotes.join(path))?;
        let laid = record.files.get(path);
        let step = if leads_out(&root, path) {
            Step::Keep("its folder is a file, or a link that leads out of the remotes")
        } else {
            step(path, thing, there.as_ref(), laid, record.pending, allowed)
        };
        let beside = step == Step::Settings && laid.is_none_or(|laid| laid.now != *thing);
        let source = Some(from.join(path));
        items.push(Item {
            path: path.clone(),
            source: source.clone(),
            ours: Some(thing.clone()),
            there,
            step,
        });
        if beside {
            let path = format!("{path}{BESIDE}");
            let there = Thing::at(&remotes.join(&path))?;
            let step =
                self::step(&path, thing, there.as_ref(), record.files.get(&path), record.pending, allowed);
            items.push(Item { path, source, ours: Some(thing.clone()), there, step });
        }
    }
    for (path, laid) in &record.files {
        let beside = path.strip_suffix(BESIDE).is_some_and(|path| ours.contains_key(path));
        if ours.contains_key(path) || beside {
            continue;
        }
        let there = Thing::at(&remotes.join(path))?;
        let step = if there.as_ref() == Some(&laid.now) || there == laid.before {
            Step::Withdraw
        } else {
            Step::Keep("it was changed since it was laid, and kvmad has it no more")
        };
        items.push(Item { path: path.clone(), source: None, ours: None, there, step });
    }
    Ok(items)
}

fn step(
    path: &str,
    ours: &Thing,
    there: Option<&Thing>,
    laid: Option<&Laid>,
    pending: bool,
    allowed: Allowed,
) -> Step {
    let Some(there) = there else {
        return match laid {
            Some(_) if !pending && !allowed.changed => Step::Keep("it was removed since it was laid"),
            _ => Step::Add,
        };
    };
    if there == ours {
        return Step::Same;
    }
    match (there, ours) {
        (Thing::Folder, Thing::Link(_)) => return Step::Keep("a folder is there, ours is a link to one"),
        (Thing::Folder, _) => return Step::Keep("a folder is there"),
        (Thing::Other, _) => return Step::Keep("it is no file"),
        _ => {}
    }
    let settings = path.starts_with("etc/") && !allowed.settings;
    match laid {
        None if settings && !path.ends_with(BESIDE) => Step::Settings,
        None => Step::Replace,
        Some(laid) if laid.now == *there => Step::Update,
        Some(laid) if pending && laid.before.as_ref() == Some(there) => Step::Replace,
        Some(_) if settings && !path.ends_with(BESIDE) => Step::Settings,
        Some(_) if allowed.changed => Step::Replace,
        Some(_) => Step::Keep("it was changed since it was laid"),
    }
}

/// Whether the folder of `path` is somewhere else than below `root`.
fn leads_out(root: &Path, path: &str) -> bool {
    let mut folder = root.to_path_buf();
    for part in Path::new(path).parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        match folder.canonicalize() {
            Ok(real) if real.is_dir() && real.starts_with(root) => folder = real,
            Ok(_) => return true,
            // Not there yet, or a link that leads nowhere.
            Err(_) => return fs::symlink_metadata(&folder).is_ok(),
        }
    }
    false
}
