//! Checking kvmad.conf, by the loader of the settings.

use std::path::Path;

use super::finding::{Checked, Kind};
use crate::cli::input::{self, Unreadable};
use crate::conf::nearest::nearest;
use crate::settings::{FlawKind, TABLE, load};
use crate::template::text::Gravity;
use crate::template::{Level, Origin};

/// Most bytes of a kvmad.conf.
const LIMIT: u64 = 1 << 20;

/// Checks the file; the environment does not count.
///
/// # Errors
/// When it can't be read, or is no UTF-8: the drivers refuse it then.
pub fn check(path: &Path) -> Result<Checked, Unreadable> {
    let name = path.display().to_string();
    let text = String::from_utf8(input::bytes(path, LIMIT)?)
        .map_err(|error| Unreadable(format!("{name} can't be read: {error}")))?;
    let mut checked = Checked::new(&name, Kind::Settings, &text);
    for flaw in load::flaws(&text) {
        let line = u32::try_from(flaw.line).unwrap_or(0);
        let at = Origin { level: Level::Defaults, file: None, line, column: 1 };
        let (id, gravity, why, mend) = match flaw.kind {
            FlawKind::Syntax(why) => (
                "syntax",
                Gravity::Error,
                format!("it can't be read: {why}; no driver serves with it"),
                "write [section], key = value, or # before a remark".to_owned(),
            ),
            FlawKind::Value(why) => (
                "bad-value",
                Gravity::Error,
                format!("{}: {why}; no driver serves with it", flaw.key),
                "docs/settings.md (kvmad.conf(5)) says what each setting takes".to_owned(),
            ),
            FlawKind::Unknown(place) => (
                "unknown-key",
                Gravity::Warning,
                format!("there is no setting {} {place}; it is ignored", flaw.key),
                meant(&flaw.key),
            ),
        };
        checked.find(id, gravity, flaw.key, Some(&at), why, mend);
    }
    Ok(checked.sorted())
}

fn meant(key: &str) -> String {
    match nearest(key, TABLE.iter().map(|setting| setting.key)) {
        Some(name) => format!("did you mean {name}? kvmad.conf(5) has all settings with their sections"),
        None => "kvmad.conf(5) has all settings with their sections".to_owned(),
    }
}
