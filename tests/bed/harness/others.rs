//! Stand-ins for the drivers beside ours that stay OpenNebula's own: transfer manager, datastore, network. They keep what
//! they are called with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::bed;
use super::front_end::FrontEnd;

const SCRIPT: &str = include_str!("../scripts/other-driver");

/// One call of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `DRIVER-ACTION`.
    pub name: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// What it read.
    pub stdin: String,
}

/// The stand-ins on one machine. What they keep goes away with it.
#[derive(Debug)]
pub struct Others(PathBuf);

impl Others {
    /// Puts `scripts` (`tm/DRIVER/ACTION`, `vnm/DRIVER/ACTION`) into the remotes of `front`.
    pub fn put(front: &FrontEnd, scripts: &[&str]) {
        for script in scripts {
            front.put(&format!("var/remotes/{script}"), 0o755, SCRIPT);
        }
    }

    /// Those that run on the front-end.
    pub fn on_front_end(front: &FrontEnd) -> Self {
        Self(front.folder().join("var/remotes.others"))
    }

    /// Those that run on `host`.
    pub fn on(front: &FrontEnd, host: &str) -> Self {
        Self(bed::host_path(host, format!("{}.others", front.remotes())))
    }

    /// What `DRIVER-ACTION` does from now on, as lines of bash.
    pub fn acts(&self, name: &str, lines: &str) {
        let file = self.0.join("acts").join(name);
        fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
        // anybody may write calls there
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o777)).expect("its mode");
        fs::write(&file, format!("#!/bin/bash\nset -euo pipefail\n{lines}\n")).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    /// The calls so far, which are forgotten.
    pub fn calls(&self) -> Vec<Call> {
        let folder = self.0.join("calls");
        let found: Vec<Call> = (1..)
            .map(|n| folder.join(n.to_string()))
            .take_while(|call| call.exists())
            .map(|call| {
                let read = |file| fs::read(call.join(file)).map(|b| String::from_utf8_lossy(&b).into_owned());
                let words = read("words").unwrap_or_default();
                let mut words = words.split_terminator('\0').map(str::to_owned);
                let name = words.next().unwrap_or_default();
                Call { name, args: words.collect(), stdin: read("stdin").unwrap_or_default() }
            })
            .collect();
        let _ = fs::remove_dir_all(folder);
        found
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
