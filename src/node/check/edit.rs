//! What `kvmad doctor --fix` may change on a host: small edits that are safe to repeat, each with a backup or a way back.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::libvirt_conf::{self, Value};
use crate::node::root::Root;
use crate::node::tools::{Ask, Tools};

/// One edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edit {
    /// A key of libvirt's configuration gets this text.
    Text {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A key of libvirt's configuration gets this number.
    Number {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// Its value.
        value: i64,
    },
    /// A file gets this line at its end, unless it has it; it is made when it is not there.
    Line {
        /// The file.
        file: String,
        /// The line.
        line: String,
    },
    /// A file has this content, mode 0644.
    File {
        /// The file.
        file: String,
        /// All of it.
        content: String,
    },
    /// A user joins a group.
    Member {
        /// The user.
        user: String,
        /// The group.
        group: String,
    },
    /// A user may pass a folder, by an ACL.
    Pass {
        /// The user.
        user: String,
        /// The folder.
        folder: String,
    },
    /// A folder is there, and belongs to a user and a group of the same name.
    Folder {
        /// The folder.
        folder: String,
        /// The user.
        owner: String,
    },
}

/// A file, its text now (`None`: it is not there), and its text afterwards.
type Change<'a> = (&'a str, Option<String>, String);

/// Time limit of the programs that change something.
const LIMIT: Duration = Duration::from_secs(60);

impl Edit {
    /// What it would do, in lines for people; `None` when it is already so.
    ///
    /// # Errors
    /// When its file can't be read.
    pub fn shown(&self, root: &Root) -> Result<Option<Vec<String>>, String> {
        if let Some((file, old, new)) = self.content(root)? {
            if old.as_deref() == Some(&new) {
                return Ok(None);
            }
            let head = if old.is_some() { "edit" } else { "make" };
            let mut lines = vec![format!("{head} {file}")];
            lines.extend(difference(old.as_deref().unwrap_or_default(), &new));
            return Ok(Some(lines));
        }
        if let Self::Folder { folder, .. } = self
            && root.exists(folder)
        {
            return Ok(None);
        }
        Ok(Some(vec![self.command()]))
    }

    /// For edits of files.
    fn content(&self, root: &Root) -> Result<Option<Change<'_>>, String> {
        let (file, change): (&str, &dyn Fn(&str) -> String) = match self {
            Self::Text { file, key, value } => {
                (file, &|text| libvirt_conf::set(text, key, &Value::Text(value.clone())))
            }
            Self::Number { file, key, value } => {
                (file, &|text| libvirt_conf::set(text, key, &Value::Number(*value)))
            }
            Self::Line { file, line } => (file, &|text| with_line(text, line)),
            Self::File { file, content } => (file, &|_| content.clone()),
            Self::Member { .. } | Self::Pass { .. } | Self::Folder { .. } => return Ok(None),
        };
        let old = match fs::read(root.path(file)) {
            Ok(bytes) => {
                Some(String::from_utf8(bytes).map_err(|_| format!("{file} is no text: edit it by hand"))?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("{file} can't be read: {error}")),
        };
        let new = change(old.as_deref().unwrap_or_default());
        Ok(Some((file, old, new)))
    }

    /// The same as a command for a shell, or as words for who edits a file.
    #[must_use]
    pub fn command(&self) -> String {
        let quoted = |word: &str| shell_words::quote(word).into_owned();
        match self {
            Self::Text { file, key, value } => {
                format!("in {file}: {key} = {}", Value::Text(value.clone()).written())
            }
            Self::Number { file, key, value } => format!("in {file}: {key} = {value}"),
            Self::Line { file, line } => format!("in {file}: {}", line.trim()),
            Self::File { file, .. } => format!("make {file}"),
            Self::Member { user, group } => format!("usermod -aG {} {}", quoted(group), quoted(user)),
            Self::Pass { user, folder } => format!("setfacl -m u:{}:--x {}", quoted(user), quoted(folder)),
            Self::Folder { folder, owner } => {
                let owner = quoted(owner);
                format!("install -d -o {owner} -g {owner} {}", quoted(folder))
            }
        }
    }

    /// Does it. `suffix` ends the names of backups. Gives what was done, for people.
    ///
    /// # Errors
    /// What could not be done, and why; then nothing has changed, or the words say what has.
    pub async fn apply(&self, root: &Root, tools: &dyn Tools, suffix: &str) -> Result<String, String> {
        self.check()?;
        if let Some((file, old, new)) = self.content(root)? {
            if old.as_deref() == Some(&new) {
                return Ok(format!("{file}: is already so"));
            }
            return replace(root, file, old.is_some(), &new, suffix)
                .map_err(|error| format!("{file} can't be changed: {error}"));
        }
        let (program, args, back): (_, Vec<String>, _) = match self {
            Self::Member { user, group } => (
                "usermod",
                vec!["-aG".into(), group.clone(), user.clone()],
                format!("back: gpasswd -d {user} {group}"),
            ),
            Self::Pass { user, folder } => (
                "setfacl",
                vec!["-m".into(), format!("u:{user}:--x"), root.path(folder).display().to_string()],
                format!("back: setfacl -x u:{user} {}", shell_words::quote(folder)),
            ),
            Self::Folder { folder, owner } => {
                let path = root.path(folder).display().to_string();
                let words = ["-d", "-o", owner, "-g", owner, &path].map(str::to_owned);
                ("install", words.to_vec(), format!("back: rmdir {}", shell_words::quote(folder)))
            }
            _ => return Ok(String::new()),
        };
        let answer = tools.ask(Ask::new(program, args, LIMIT)).await;
        let hint = if program == "setfacl" { " (package acl)" } else { "" };
        answer
            .and_then(|answer| answer.good(program, LIMIT))
            .map_err(|error| format!("{}: {error}{hint}", self.command()))?;
        Ok(format!("{} ({back})", self.command()))
    }

    /// Refuses what would be taken for an option, and paths that are not absolute.
    fn check(&self) -> Result<(), String> {
        let (path, words): (Option<&String>, Vec<&String>) = match self {
            Self::Text { file, .. } | Self::Number { file, .. } => (Some(file), vec![]),
            Self::Line { file, .. } | Self::File { file, .. } => (Some(file), vec![]),
            Self::Member { user, group } => (None, vec![user, group]),
            Self::Pass { user, folder } => (Some(folder), vec![user]),
            Self::Folder { folder, owner } => (Some(folder), vec![owner]),
        };
        let plain = |word: &&String| {
            let good = |c: char| c.is_alphanumeric() || "._-$".contains(c);
            word.starts_with(|c: char| c.is_alphanumeric() || c == '_') && word.chars().all(good)
        };
        match path {
            Some(path) if !path.starts_with('/') => Err(format!("{path:?} is no absolute path")),
            _ => match words.iter().find(|word| !plain(word)) {
                Some(word) => Err(format!("{word:?} is no name of a user or group")),
                None => Ok(()),
            },
        }
    }
}

fn with_line(text: &str, line: &str) -> String {
    if text.lines().any(|other| other.trim() == line.trim()) {
        return text.to_owned();
    }
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{gap}{line}\n")
}

/// The lines that differ: all between the common beginning and the common end.
fn difference(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
    let head = same(&mut old.iter().zip(&new));
    let tail = same(&mut old[head..].iter().rev().zip(new[head..].iter().rev()));
    let gone = old[head..old.len() - tail].iter().map(|line| format!("  - {line}"));
    let come = new[head..new.len() - tail].iter().map(|line| format!("  + {line}"));
    gone.chain(come).collect()
}

/// Writes `text` beside the file and puts it in its place, with owner and mode of the old one, which is copied first.
fn replace(root: &Root, file: &str, there: bool, text: &str, suffix: &str) -> io::Result<String> {
    // A link stays a link.
    let path = if there { fs::canonicalize(root.path(file))? } else { root.path(file) };
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !there {
        fs::create_dir_all(folder)?;
    }
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    let mut backup = None;
    let mode = if there {
        let meta = fs::metadata(&path)?;
        std::os::unix::fs::chown(new.path(), Some(meta.uid()), Some(meta.gid()))?;
        backup = Some(keep(&path, &meta, suffix)?);
        meta.permissions().mode() & 0o7777
    } else {
        0o644
    };
    new.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    new.as_file().sync_all()?;
    new.persist(&path).map_err(|error| error.error)?;
    Ok(match backup {
        Some(backup) => {
            let name = backup.file_name().unwrap_or_default().to_string_lossy();
            format!("{file}: changed (as it was: {name} beside it)")
        }
        None => format!("{file}: made (back: rm {})", shell_words::quote(file)),
    })
}

/// Copies a file to a name of its own beside it; never over another one.
fn keep(path: &Path, meta: &fs::Metadata, suffix: &str) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 0..1000 {
        let more = if number == 0 { String::new() } else { format!("-{number}") };
        let backup = path.with_file_name(format!("{name}.kvmad-{suffix}{more}"));
        let made = fs::File::options().write(true).create_new(true).open(&backup);
        let mut to = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            other => other?,
        };
        to.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        std::os::unix::fs::fchown(&to, Some(meta.uid()), Some(meta.gid()))?;
        io::copy(&mut fs::File::open(path)?, &mut to)?;
        to.sync_all()?;
        return Ok(backup);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::fake::Fake;

    fn host() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a folder");
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn no_program() -> Fake<impl Fn(&Ask) -> Result<String, (i32, String)> + Send + Sync> {
        Fake(|ask: &Ask| panic!("{ask:?} is not wanted"))
    }

    fn user() -> Edit {
        Edit::Text { file: "/etc/q.conf".into(), key: "user".into(), value: "oneadmin".into() }
    }

    #[tokio::test]
    async fn a_key_is_shown_set_backed_up_and_not_set_again() {
        let (dir, root) = host();
        fs::create_dir(dir.path().join("etc")).expect("made");
        let file = dir.path().join("etc/q.conf");
        fs::write(&file, "a = 1\nuser = \"root\"\nb = 2\n").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("mode");
        let shown = user().shown(&root).expect("readable").expect("something to do");
        assert_eq!(shown, ["edit /etc/q.conf", "  - user = \"root\"", "  + user = \"oneadmin\""]);
        let done = user().apply(&root, &no_program(), "now").await.expect("done");
        assert!(done.contains("q.conf.kvmad-now"), "{done}");
        assert_eq!(fs::read_to_string(&file).expect("there"), "a = 1\nuser = \"oneadmin\"\nb = 2\n");
        let backup = dir.path().join("etc/q.conf.kvmad-now");
        assert_eq!(fs::read_to_string(&backup).expect("kept"), "a = 1\nuser = \"root\"\nb = 2\n");
        for file in [&file, &backup] {
            assert_eq!(fs::metadata(file).expect("there").mode() & 0o7777, 0o600);
        }
        assert_eq!(user().shown(&root), Ok(None));
        user().apply(&root, &no_program(), "later").await.expect("nothing to do");
        assert_eq!(root.names("/etc"), ["q.conf", "q.conf.kvmad-now"]);
    }

    #[tokio::test]
    async fn two_edits_of_a_file_keep_both_states() {
        let (dir, root) = host();
        fs::create_dir(dir.path().join("etc")).expect("made");
        fs::write(dir.path().join("etc/q.conf"), "").expect("written");
        user().apply(&root, &no_program(), "now").await.expect("done");
        let number = Edit::Number { file: "/etc/q.conf".into(), key: "n".into(), value: 0 };
        number.apply(&root, &no_program(), "now").await.expect("done");
        assert_eq!(root.read("/etc/q.conf").as_deref(), Some("user = \"oneadmin\"\nn = 0\n"));
        assert_eq!(root.read("/etc/q.conf.kvmad-now").as_deref(), Some(""));
        assert_eq!(root.read("/etc/q.conf.kvmad-now-1").as_deref(), Some("user = \"oneadmin\"\n"));
    }

    #[tokio::test]
    async fn a_line_or_a_file_is_made_once_and_a_link_stays_one() {
        let (dir, root) = host();
        let line = Edit::Line { file: "/etc/local/l".into(), line: "  owner /x/** rwk,".into() };
        line.apply(&root, &no_program(), "now").await.expect("done");
        assert_eq!(line.shown(&root), Ok(None));
        assert_eq!(root.read("/etc/local/l").as_deref(), Some("  owner /x/** rwk,\n"));
        std::os::unix::fs::symlink("l", dir.path().join("etc/local/link")).expect("a link");
        let other = Edit::Line { file: "/etc/local/link".into(), line: "more".into() };
        other.apply(&root, &no_program(), "now").await.expect("done");
        assert_eq!(root.read("/etc/local/l").as_deref(), Some("  owner /x/** rwk,\nmore\n"));
        assert!(fs::symlink_metadata(dir.path().join("etc/local/link")).expect("there").is_symlink());
        let file = Edit::File { file: "/etc/rules.d/r".into(), content: "r\n".into() };
        assert!(file.apply(&root, &no_program(), "now").await.expect("done").contains("rm /etc/rules.d/r"));
        assert_eq!(file.shown(&root), Ok(None));
    }

    #[tokio::test]
    async fn programs_get_names_as_arguments_and_odd_names_are_refused() {
        let (_dir, root) = host();
        let tools = Fake(|ask: &Ask| {
            assert_eq!(
                (ask.program.as_str(), &ask.args[..]),
                ("usermod", &["-aG", "kvm", "o"].map(String::from)[..])
            );
            Ok(String::new())
        });
        let member = |user: &str| Edit::Member { user: user.into(), group: "kvm".into() };
        let done = member("o").apply(&root, &tools, "now").await.expect("done");
        assert_eq!(done, "usermod -aG kvm o (back: gpasswd -d o kvm)");
        for odd in ["-R", "", "a b", "a;b"] {
            assert!(member(odd).apply(&root, &no_program(), "now").await.is_err(), "{odd:?}");
        }
        let pass = Edit::Pass { user: "q".into(), folder: "home".into() };
        assert!(pass.apply(&root, &no_program(), "now").await.is_err());
        let missing = Fake(|_: &_| Err((127, "setfacl: not found".into())));
        let pass = Edit::Pass { user: "q".into(), folder: "/home/a b".into() };
        let why = pass.apply(&root, &missing, "now").await.expect_err("no setfacl");
        assert!(why.starts_with("setfacl -m u:q:--x '/home/a b'") && why.contains("package acl"), "{why}");
    }

    #[tokio::test]
    async fn a_file_that_is_no_text_is_left_alone() {
        let (dir, root) = host();
        fs::create_dir(dir.path().join("etc")).expect("made");
        fs::write(dir.path().join("etc/q.conf"), b"user\xff").expect("written");
        assert!(user().apply(&root, &no_program(), "now").await.is_err_and(|why| why.contains("no text")));
        assert_eq!(root.names("/etc"), ["q.conf"]);
    }
}
