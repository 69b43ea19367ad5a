//! What both drivers do at their start, before they speak: signals, rc files, niceness, folder, log, settings.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::host::{capture, process};
use crate::settings::{CoreConfig, Notice, Paths, Settings, rc};

/// Niceness of the drivers when `defaultrc` does not set PRIORITY, as OpenNebula's wrappers have it.
const PRIORITY: i32 = 19;

/// What a driver knows after its start.
#[derive(Debug)]
pub struct Started {
    /// Where things are.
    pub paths: Paths,
    /// The settings; the defaults when they can't be read.
    pub settings: Settings,
    /// What `oned` wrote about its configuration.
    pub core: CoreConfig,
    /// Variables of the rc files and `http_proxy`: for every program that is started, and for the driver itself
    /// (see [`Started::variable`]).
    pub environment: Vec<(String, String)>,
    /// Why the driver can't serve.
    pub fault: Option<String>,
}

impl Started {
    /// A variable of the rc files, else of the environment of the process.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<String> {
        let own = self.environment.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        own.or_else(|| std::env::var(name).ok())
    }
}

/// Prepares a driver whose log file is called `log_name` (used with ONE_MAD_DEBUG only), whose variables stand in
/// `defaultrc` and `own_rc`, and which was given `proxy`. Everything that goes wrong is told in the log and does
/// not keep the driver from starting, but unreadable settings: these are its `fault`.
#[must_use]
pub fn driver(paths: Paths, own_rc: &Path, log_name: &str, proxy: Option<&str>) -> Started {
    let mut notices = Vec::new();
    let mut environment = Vec::new();
    for file in [&paths.defaultrc(), own_rc] {
        load_rc(file, &mut environment, &mut notices);
    }
    environment.extend(proxy.map(|url| ("http_proxy".to_owned(), url.to_owned())));
    let (core, notice) = paths.core_config();
    notices.extend(notice);
    let (settings, fault) = match Settings::load(&paths) {
        Ok((settings, more)) => {
            notices.extend(more);
            (settings, None)
        }
        Err(error) => (Settings::default(), Some(error.key_first())),
    };
    let mut started = Started { paths, settings, core, environment, fault };
    started.be_nice(&mut notices);
    started.open_log(log_name, &mut notices);
    if let Err(error) = std::env::set_current_dir(&started.paths.var) {
        notices.push(Notice(format!("{}: can't be entered: {error}", started.paths.var.display())));
    }
    for notice in notices {
        tracing::warn!("{}", notice.0);
    }
    if let Some(fault) = &started.fault {
        tracing::error!("{fault}");
    }
    started
}

/// The variables of rc files, without any change of this process. What can't be read is left out.
#[must_use]
pub fn environment(files: &[&Path]) -> Vec<(String, String)> {
    let mut environment = Vec::new();
    for file in files {
        load_rc(file, &mut environment, &mut Vec::new());
    }
    environment
}

fn load_rc(file: &Path, environment: &mut Vec<(String, String)>, notices: &mut Vec<Notice>) {
    match rc::read(file) {
        Ok((rc::Rc::Variables(variables), _)) => environment.extend(variables),
        Ok((rc::Rc::NeedsShell, text)) => match evaluate(file) {
            Ok(output) => environment.extend(rc::from_shell(&output, &text)),
            Err(error) => {
                notices.push(Notice(format!("{}: bash can't load it: {error}", file.display())));
            }
        },
        Err(notice) => notices.push(notice),
    }
}

fn evaluate(file: &Path) -> Result<Vec<u8>, String> {
    let mut words = rc::shell_command(file).into_iter();
    let start = process::Start::new(words.next().unwrap_or_default()).args(words);
    let limit = Some(std::time::Duration::from_secs(5));
    let limits = capture::Limits { limit, cap: 1 << 20, ..capture::Limits::default() };
    let finished = capture::run_blocking(&start, Bytes::new(), &limits).map_err(|error| error.to_string())?;
    if finished.stdout.is_empty() {
        return Err(String::from_utf8_lossy(&finished.stderr).trim().to_owned());
    }
    Ok(finished.stdout)
}

impl Started {
    fn be_nice(&self, notices: &mut Vec<Notice>) {
        let text = self.variable("PRIORITY").filter(|text| !text.is_empty());
        let priority = match text.as_deref().map(|text| (text, text.trim().parse::<i32>())) {
            None => PRIORITY,
            Some((_, Ok(priority))) => priority,
            Some((text, Err(_))) => {
                notices.push(Notice(format!("PRIORITY={text:?} is no number; {PRIORITY} is used")));
                PRIORITY
            }
        };
        if let Err(error) = rustix::process::nice(priority) {
            notices.push(Notice(format!("the niceness can't be raised by {priority}: {error}")));
        }
    }

    /// With ONE_MAD_DEBUG stderr becomes the driver's log file. Then the log is set up as the settings say.
    fn open_log(&mut self, name: &str, notices: &mut Vec<Notice>) {
        if self.variable("ONE_MAD_DEBUG").is_some_and(|value| !value.is_empty()) {
            let file: PathBuf = self.paths.log.join(format!("{name}.log"));
            if let Err(error) = crate::settings::log::stderr_to(&file) {
                notices.push(Notice(format!("{}: can't be opened: {error}", file.display())));
            }
        }
        if let Err(error) = crate::settings::log::init(&self.settings.log) {
            notices.push(Notice(error.to_string()));
            self.fault.get_or_insert(error.to_string());
        }
    }
}
