//! `kvmad install-remotes`: lays kvmad's scripts over a front-end's remotes, with a way back.

mod apply;
mod plan;
mod record;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use self::apply::Back;
use self::plan::{Allowed, BESIDE, Item, Step};
use self::record::Store;
use crate::settings::Paths;

/// Arguments of `kvmad install-remotes`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
What stood where a file is laid is kept in REMOTES/.kvmad/installed/before and comes back with --undo, as it was. \
A second run changes nothing. A file that was changed since it was laid (by you, or by an upgrade of OpenNebula's \
packages) is named and stays as it is, unless --force says otherwise; then that one is kept, too. Configuration \
(REMOTES/etc) that is there already stays; ours is laid beside it as NAME.kvmad.

Run it as the user who owns the remotes (oneadmin). Hosts get the scripts with their next action, or at once by \
`kvmad sync HOST...`. After --undo, `onehost sync --force` gives the hosts OpenNebula's scripts again. A script of \
kvmad's that you changed is kept by --undo and works no more, for the files it needs are gone: it is named, and \
--undo --force gives back what stood there before (yours goes to REMOTES/.kvmad/installed/earlier). Do that before the sync.

Exit status: 0 done (or nothing to do), 1 something was kept that stands in the way, 2 wrong usage or no remotes, \
3 it could not be carried out.")]
pub struct Arguments {
    /// The front-end's remotes [default: /var/lib/one/remotes, or those of ONE_LOCATION]
    #[arg(long, value_name = "FOLDER")]
    remotes: Option<PathBuf>,
    /// kvmad's files [default: those that came with this program]
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
    /// Give back what stood there before
    #[arg(long, conflicts_with_all = ["from", "config"])]
    undo: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace (or take away) also what was changed since it was laid; that is kept, too
    #[arg(long)]
    force: bool,
    /// Replace also configuration in REMOTES/etc
    #[arg(long)]
    config: bool,
}

/// Lays or takes back; what was done goes to `out`.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let remotes = arguments.remotes.clone().unwrap_or_else(|| Paths::from_environment().var.join("remotes"));
    if !["vmm", "im"].iter().any(|name| remotes.join(name).is_dir()) {
        let _ = writeln!(
            err,
            "{} is no remotes folder of OpenNebula: there is neither vmm nor im in it; is this the front-end? \
             --remotes FOLDER names another one",
            remotes.display()
        );
        return super::USAGE;
    }
    let done = locked(&remotes)
        .and_then(|_lock| if arguments.undo { undo(arguments, &remotes) } else { lay(arguments, &remotes) });
    match done {
        Ok(Report { lines, kept }) => {
            let hindered =
                if kept > 0 { format!("{kept} kept as they are, see above\n") } else { String::new() };
            match out.write_all((lines.concat() + &hindered).as_bytes()) {
                Err(error) => super::unwritten(&error, err),
                Ok(()) if kept > 0 => super::FINDING,
                Ok(()) => super::FINE,
            }
        }
        Err(Stop::Usage(reason)) => {
            let _ = writeln!(err, "{reason}");
            super::USAGE
        }
        Err(Stop::Io(error)) => {
            let _ = writeln!(err, "{error}");
            super::UNCHECKED
        }
    }
}

/// What was done, as lines; it is told at the end, so that a reader who goes away stops nothing in the middle.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    kept: usize,
}

impl Report {
    fn say(&mut self, line: impl std::fmt::Display) {
        self.lines.push(format!("{line}\n"));
    }
}

enum Stop {
    Usage(String),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Held as long as the file lives: two at once would each take the other's files for the admin's.
fn locked(remotes: &Path) -> Result<fs::File, Stop> {
    let folder = fs::File::open(remotes).map_err(|error| named(remotes, &error))?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(fs::TryLockError::WouldBlock) => {
            Err(Stop::Usage(format!("another kvmad install-remotes works on {}", remotes.display())))
        }
        Err(fs::TryLockError::Error(error)) => Err(named(remotes, &error).into()),
    }
}

fn lay(arguments: &Arguments, remotes: &Path) -> Result<Report, Stop> {
    let from = source(arguments)?;
    let store = Store::of(remotes);
    let mut record = store.read()?.unwrap_or_default();
    let allowed = Allowed { changed: arguments.force, settings: arguments.config };
    let items = plan::plan(&from, remotes, &record, allowed)?;
    let mut report = Report::default();
    for item in &items {
        if let Some(line) = said(item) {
            report.say(line);
        }
        report.kept += usize::from(matches!(item.step, Step::Keep(_)));
    }
    let changed = if arguments.dry_run {
        apply::would_change(&items)
    } else {
        apply::lay(&items, remotes, &store, &mut record)?
    };
    report.say(summary(changed, arguments.dry_run, remotes, &store));
    Ok(report)
}

fn summary(changed: bool, dry_run: bool, remotes: &Path, store: &Store) -> String {
    match (changed, dry_run) {
        (false, _) => format!("{}: nothing to do", remotes.display()),
        (true, true) => format!("{}: nothing was changed (--dry-run)", remotes.display()),
        (true, false) => format!(
            "{}: done; what stood there before is in {}, --undo gives it back",
            remotes.display(),
            store.folder().display()
        ),
    }
}

fn said(item: &Item) -> Option<String> {
    let path = super::plain(&item.path);
    match &item.step {
        Step::Same => None,
        Step::Add if path.ends_with(BESIDE) => Some(format!("laid beside {path}")),
        Step::Add => Some(format!("added       {path}")),
        Step::Replace => Some(format!("replaced    {path}")),
        Step::Update => Some(format!("updated     {path}")),
        Step::Withdraw => Some(format!("taken back  {path}")),
        Step::Keep(why) => Some(format!("kept        {path}: {why}")),
        Step::Settings => Some(format!("kept        {path}: your settings stay (see kvmad check-conf)")),
    }
}

/// Where kvmad's files are: named, or where they lie relative to this program in a package or a stage.
fn source(arguments: &Arguments) -> Result<PathBuf, Stop> {
    if let Some(from) = &arguments.from {
        return if from.join("kvmad/serve").is_file() {
            Ok(from.clone())
        } else {
            Err(Stop::Usage(format!(
                "{} does not hold kvmad's remotes: there is no kvmad/serve",
                from.display()
            )))
        };
    }
    // Without /proc the program does not know where it is.
    let program = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/kvmad".into());
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    let places = [prefix.join("share/kvmad/remotes"), prefix.join("var/remotes")];
    places.iter().find(|place| place.join("kvmad/serve").is_file()).cloned().ok_or_else(|| {
        Stop::Usage(format!(
            "kvmad's remotes are neither in {} nor in {}; --from FOLDER says where",
            places[0].display(),
            places[1].display()
        ))
    })
}

fn undo(arguments: &Arguments, remotes: &Path) -> Result<Report, Stop> {
    let store = Store::of(remotes);
    let mut report = Report::default();
    let Some(mut record) = store.read()? else {
        report.say(format_args!("{}: nothing to do, nothing was laid there", remotes.display()));
        return Ok(report);
    };
    let paths: Vec<String> = record.files.keys().cloned().collect();
    let mut dead = Vec::new();
    for path in &paths {
        let back = match record.files.get(path) {
            Some(laid) if arguments.dry_run => {
                apply::would_undo(path, laid, remotes, &store, arguments.force)?
            }
            _ => apply::undo(path, remotes, &store, &mut record, arguments.force)?,
        };
        let path = super::plain(path);
        match back {
            Back::Restored => report.say(format_args!("restored    {path}")),
            Back::Removed => report.say(format_args!("removed     {path}")),
            Back::Already => {}
            Back::Kept(why) => {
                report.kept += 1;
                report.say(format_args!("kept        {path}: {why}"));
                if needs_ours(&remotes.join(&path)) {
                    dead.push(path);
                }
            }
        }
    }
    say_dead(&dead, &store, &mut report);
    let shown = remotes.display();
    if arguments.dry_run {
        report.say(format_args!("{shown}: nothing was changed (--dry-run)"));
        return Ok(report);
    }
    apply::close(remotes, &store, &mut record)?;
    report.say(if dead.is_empty() {
        format!("{shown}: taken back; `onehost sync --force` gives it to the hosts")
    } else {
        format!(
            "{shown}: taken back but for what was kept; give nothing to the hosts before the above is mended"
        )
    });
    if store.folder().exists() {
        report.say(format_args!("what could not go back lies in {}", store.folder().display()));
    }
    Ok(report)
}

/// Whether the script at `path` uses files of ours, which an undo takes away.
fn needs_ours(path: &Path) -> bool {
    const PARTS: [&str; 4] = ["kvmad_common", "kvmad-node", "kvmad/", "BASH_SOURCE[0]%/*}/common.sh"];
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    PARTS.iter().any(|part| text.contains(part))
}

/// Names the scripts that were kept and can't work, and what helps.
fn say_dead(dead: &[String], store: &Store, report: &mut Report) {
    if dead.is_empty() {
        return;
    }
    report.say(format_args!(
        "work no more, because kvmad's files that they need are taken back: {}",
        dead.join(", ")
    ));
    report.say(format_args!(
        "`kvmad install-remotes --undo --force` gives back what stood there before and puts these into {}; where no \
         backup is left, OpenNebula's package has the file; `kvmad install-remotes` makes them work again",
        store.folder().join("earlier").display()
    ));
}

/// An error that says where.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
