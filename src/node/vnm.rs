//! `kvmad-node vnm`: the settings of the network drivers, for the scripts of the `bridge` driver.
//!
//! They stand in `etc/vnm/OpenNebulaNetwork.conf`, YAML whose keys begin with a colon. A network may override
//! plain values by its attribute CONF (`keep_empty_bridge=true, other=value`).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde::Deserialize;

/// Settings of the network drivers.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the value of a setting, `yes` or `no` for truth values; an empty line when it is not set
    Setting {
        /// OpenNebulaNetwork.conf
        #[arg(long)]
        file: PathBuf,
        /// The network's CONF
        #[arg(long, default_value = "")]
        over: String,
        /// Name of the setting; one that is a list or a table prints `list` unless it is empty
        name: String,
    },
    /// Print the options of a new bridge as words for `ip link add`, each ended by NUL
    BridgeOptions {
        /// OpenNebulaNetwork.conf
        #[arg(long)]
        file: PathBuf,
    },
}

/// A value of the file, as far as the scripts need it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Value {
    Truth(bool),
    Number(i64),
    Text(String),
    Table(BTreeMap<String, Value>),
    List(Vec<Value>),
    Nothing(Option<()>),
}

/// Answers `command`. A file that is not there or can't be read has no settings, which is said on stderr.
#[must_use]
pub fn main(command: Command) -> ExitCode {
    let out = match command {
        Command::Setting { file, over, name } => {
            format!("{}\n", setting(&load(&file), &over, &name)).into_bytes()
        }
        Command::BridgeOptions { file } => bridge_options(&load(&file))
            .into_iter()
            .flat_map(|word| [word.into_bytes(), vec![0]].concat())
            .collect(),
    };
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(&out).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}

type Settings = BTreeMap<String, Value>;

fn load(file: &Path) -> Settings {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => return complain(file, &error.to_string()),
    };
    match parse(&text) {
        Ok(settings) => settings,
        Err(reason) => complain(file, &reason),
    }
}

fn complain(file: &Path, reason: &str) -> Settings {
    // Nobody is left to tell when stderr is gone.
    let _ =
        writeln!(std::io::stderr(), "ERROR: vnm: {}: {reason}; built-in settings are used", file.display());
    Settings::new()
}

/// Settings of a text, keys without the colon in front.
fn parse(text: &str) -> Result<Settings, String> {
    let read: Option<Settings> =
        serde_saphyr::from_str(text).map_err(|error| error.to_string().replace('\n', "; "))?;
    Ok(plain(read.unwrap_or_default()))
}

fn plain(table: Settings) -> Settings {
    table
        .into_iter()
        .map(|(key, value)| {
            let value = if let Value::Table(inner) = value { Value::Table(plain(inner)) } else { value };
            (key.strip_prefix(':').unwrap_or(&key).to_owned(), value)
        })
        .collect()
}

/// What `name` is set to: by `over`, else by the file.
fn setting(settings: &Settings, over: &str, name: &str) -> String {
    let own = over.split(',').filter_map(|part| part.split_once('=')).rfind(|(key, _)| key.trim() == name);
    if let Some((_, value)) = own {
        let value = value.trim();
        return match value.to_ascii_lowercase().as_str() {
            "true" | "yes" => "yes".to_owned(),
            "false" | "no" => "no".to_owned(),
            _ => value.to_owned(),
        };
    }
    match settings.get(name) {
        Some(Value::Truth(truth)) => if *truth { "yes" } else { "no" }.to_owned(),
        Some(Value::List(list)) if !list.is_empty() => "list".to_owned(),
        Some(Value::Table(table)) if !table.is_empty() => "list".to_owned(),
        Some(value) => word(value).unwrap_or_default(),
        None => String::new(),
    }
}

/// The old names of bridge options (those of brctl) and what `ip` calls them.
const OLD_NAMES: [(&str, &str); 6] = [
    ("setageing", "ageing_time"),
    ("sethello", "hello_time"),
    ("setmaxage", "max_age"),
    ("stp", "stp_state"),
    ("setbridgeprio", "priority"),
    ("setfd", "forward_delay"),
];

/// `bridge_conf` with its names translated, `ip_bridge_conf` over it. `on`, `yes`, `true` are 1.
fn bridge_options(settings: &Settings) -> Vec<String> {
    let mut options: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &Value| {
        let Some(value) = word(value) else { return };
        match options.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => options.push((name.to_owned(), value)),
        }
    };
    if let Some(Value::Table(old)) = settings.get("bridge_conf") {
        for (key, value) in old {
            if let Some((_, name)) = OLD_NAMES.iter().find(|(known, _)| known == key) {
                set(name, value);
            }
        }
    }
    if let Some(Value::Table(new)) = settings.get("ip_bridge_conf") {
        for (key, value) in new {
            set(key, value);
        }
    }
    options.into_iter().flat_map(|(name, value)| [name, value]).collect()
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::Truth(truth) => Some(if *truth { "1" } else { "0" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Text(text) => match text.to_ascii_lowercase().as_str() {
            "on" | "yes" => Some("1".to_owned()),
            "off" | "no" => Some("0".to_owned()),
            _ => Some(text.clone()),
        },
        Value::Table(_) | Value::List(_) | Value::Nothing(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Settings {
        parse(text).expect("settings")
    }

    #[test]
    fn the_stock_form_is_read() {
        let settings = read(
            "# comment\n:keep_empty_bridge: false\n:vlan_mtu: 1500\n:vxlan_mc: 239.0.0.0\n:tproxy:\n- :service_port: 1\n",
        );
        assert_eq!(setting(&settings, "", "keep_empty_bridge"), "no");
        assert_eq!(setting(&settings, "", "vlan_mtu"), "1500");
        assert_eq!(setting(&settings, "", "vxlan_mc"), "239.0.0.0");
        assert_eq!(setting(&settings, "", "tproxy"), "list");
        assert_eq!(setting(&settings, "", "not_there"), "");
    }

    #[test]
    fn an_empty_file_has_no_settings() {
        assert!(read("").is_empty());
        assert!(read("# all is commented out\n").is_empty());
        assert!(parse(":a: [").is_err());
    }

    #[test]
    fn a_network_overrides_plain_values() {
        let settings = read(":keep_empty_bridge: false\n");
        for (over, expected) in [
            ("keep_empty_bridge=true", "yes"),
            (" keep_empty_bridge = YES , x=1", "yes"),
            ("keep_empty_bridge=true,keep_empty_bridge=No", "no"),
            ("keep_empty_bridges=true", "no"),
            ("keep_empty_bridge", "no"),
            ("keep_empty_bridge=a=b", "a=b"),
        ] {
            assert_eq!(setting(&settings, over, "keep_empty_bridge"), expected, "{over}");
        }
    }

    #[test]
    fn old_bridge_options_are_translated_and_new_ones_stand_over_them() {
        let settings = read(
            ":bridge_conf:\n  :sethello: 6\n  :stp: off\n  :unknown: 1\n:ip_bridge_conf:\n  :stp_state: on\n",
        );
        assert_eq!(bridge_options(&settings), ["hello_time", "6", "stp_state", "1"]);
        assert!(bridge_options(&read(":bridge_conf:\n:ip_bridge_conf:\n")).is_empty());
    }

    #[test]
    fn values_stay_single_words() {
        let settings = read(":ip_bridge_conf:\n  :ageing_time: '30 ; reboot'\n");
        assert_eq!(bridge_options(&settings), ["ageing_time", "30 ; reboot"]);
    }
}
