//! The driver's own log: where `[log]` of the settings says. stdout is never written to: it is the protocol.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::table::Log;

/// Why the log can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// level {level:?} in section `[log]`: {message}
    #[error("level {level:?} in section [log]: {message}")]
    Level {
        /// As it was set.
        level: String,
        /// What is wrong with it.
        message: String,
    },
    /// target {target:?} in section `[log]`: {message}
    #[error("target {target:?} in section [log]: {message}")]
    Target {
        /// As it was set.
        target: String,
        /// What is wrong with it.
        message: String,
    },
}

/// Sets the log up for this process; does nothing when that was done before.
///
/// # Errors
/// [`LogError`]: there is no log then.
pub fn init(log: &Log) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(&log.level)
        .map_err(|error| LogError::Level { level: log.level.clone(), message: error.to_string() })?;
    let wrong = |message: String| LogError::Target { target: log.target.clone(), message };
    let registry = tracing_subscriber::registry().with(filter);
    let plain = || tracing_subscriber::fmt::layer().with_ansi(false);
    // An error means that there is a log already.
    let _ = match log.target.as_str() {
        "none" => Ok(()),
        "stderr" => registry.with(plain().with_writer(std::io::stderr)).try_init(),
        "journald" => {
            let journal = tracing_journald::layer().map_err(|error| wrong(format!("no journal: {error}")))?;
            registry.with(journal).try_init()
        }
        path if path.starts_with('/') => {
            let file = append(Path::new(path)).map_err(|error| wrong(error.to_string()))?;
            registry.with(plain().with_writer(Mutex::new(file))).try_init()
        }
        _ => return Err(wrong("write stderr, journald, none, or an absolute path".to_owned())),
    };
    Ok(())
}

/// Makes `file` the stderr of this process and of what it starts; it is appended to.
///
/// # Errors
/// When it can't be opened.
pub fn stderr_to(file: &Path) -> std::io::Result<()> {
    let file = append(file)?;
    rustix::stdio::dup2_stderr(&file)?;
    Ok(())
}

fn append(file: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).open(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_levels_and_targets_are_named() {
        let log = |target: &str, level: &str| Log { target: target.to_owned(), level: level.to_owned() };
        let error = init(&log("none", "a=b=c")).expect_err("bad level");
        assert!(error.to_string().starts_with("level \"a=b=c\" in section [log]: "), "{error}");
        for target in ["somewhere", "/nowhere/at/all"] {
            let error = init(&log(target, "info")).expect_err(target);
            assert!(error.to_string().contains(target), "{error}");
        }
        assert!(init(&log("none", "info")).is_ok());
    }
}
