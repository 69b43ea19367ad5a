//! Guest agents: the commands that an admin wants to be asked (`guestagent.conf`), system and addresses of the
//! guest, NVIDIA cards inside it. Each VM has its own deadline; one dead agent holds up nobody else.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::virsh::Virsh;

/// guestagent.conf.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct GuestConfig {
    /// Whether agents are asked at all; off by default.
    #[serde(rename = ":enabled")]
    pub enabled: bool,
    /// Name of the attribute and its command.
    #[serde(rename = ":commands")]
    pub commands: BTreeMap<String, Command>,
}

/// A command: the words behind `virsh qemu-agent-command`, and for which guests it is meant.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Command {
    /// For all.
    Plain(String),
    /// For those that pass all filters.
    Filtered(Box<Filtered>),
}

/// A command with filters; an empty one lets all through.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Filtered {
    /// The words; `$vm_id` stands for the domain.
    #[serde(rename = ":command")]
    command: String,
    #[serde(rename = ":os_ids")]
    ids: Vec<String>,
    #[serde(rename = ":os_types")]
    types: Vec<String>,
    #[serde(rename = ":os_versions")]
    versions: Vec<String>,
    #[serde(rename = ":os_machines")]
    machines: Vec<String>,
}

/// What `guest-get-osinfo` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    id: String,
    kind: &'static str,
    version: String,
    machine: String,
}

impl GuestConfig {
    /// Reads guestagent.conf; an empty text is "off".
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| format!("guestagent.conf can't be read: {error}"))
    }

    /// What is told of each VM while agents are not asked.
    #[must_use]
    pub fn disabled(&self) -> Vec<(String, String)> {
        let text = "guest agent monitoring is disabled";
        self.commands.keys().map(|key| (attribute(key), text.to_owned())).collect()
    }
}

impl Command {
    fn words(&self, system: Option<&System>) -> Option<&str> {
        let filtered = match self {
            Self::Plain(words) => return Some(words),
            Self::Filtered(filtered) => filtered,
        };
        let passes = |wanted: &[String], own: Option<&str>| {
            wanted.is_empty() || own.is_some_and(|own| wanted.iter().any(|w| w == own))
        };
        let fits = passes(&filtered.ids, system.map(|s| s.id.as_str()))
            && passes(&filtered.types, system.map(|s| s.kind))
            && passes(&filtered.versions, system.map(|s| s.version.as_str()))
            && passes(&filtered.machines, system.map(|s| s.machine.as_str()));
        fits.then_some(filtered.command.as_str())
    }
}

/// Name of an attribute: upper case, letters, digits and `_`.
fn attribute(key: &str) -> String {
    let key = key.trim_start_matches(':').to_ascii_uppercase();
    key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Asks the agent of one VM everything that is wanted. `system` is what it said earlier; it is asked once.
pub async fn ask(
    virsh: &Virsh,
    config: &GuestConfig,
    uuid: &str,
    system: &mut Option<System>,
    limit: Duration,
) -> Vec<(String, String)> {
    let mut told = Vec::new();
    if system.is_none() {
        *system = json(virsh, uuid, "guest-get-osinfo", limit).await.ok().map(|value| System::of(&value));
    }
    if let Some(system) = system {
        told.extend([
            ("OS_ID".to_owned(), system.id.clone()),
            ("OS_TYPE".to_owned(), system.kind.to_owned()),
            ("OS_VERSION".to_owned(), system.version.clone()),
            ("OS_MACHINE".to_owned(), system.machine.clone()),
        ]);
        if let Ok(value) = json(virsh, uuid, "guest-network-get-interfaces", limit).await {
            told.push(("GUEST_IP_ADDRESSES".to_owned(), addresses(&value).join(",")));
        }
    }
    for (key, command) in &config.commands {
        let Some(words) = command.words(system.as_ref()) else { continue };
        told.push((attribute(key), command_value(virsh, words, uuid, limit).await));
    }
    told
}

async fn json(virsh: &Virsh, uuid: &str, command: &str, limit: Duration) -> Result<Value, String> {
    let text = virsh.guest(uuid, &format!("{{\"execute\":\"{command}\"}}"), limit).await?;
    let value: Value = serde_json::from_str(text.trim()).map_err(|error| error.to_string())?;
    Ok(value.get("return").cloned().unwrap_or(Value::Null))
}

/// Runs an admin's command and writes its answer down: `return` of its JSON, or the error.
async fn command_value(virsh: &Virsh, words: &str, uuid: &str, limit: Duration) -> String {
    let words = match shell_words::split(words) {
        Ok(words) => words,
        Err(error) => return format!("guestagent.conf: {error}"),
    };
    let mut args = vec!["qemu-agent-command".to_owned()];
    args.extend(words.into_iter().map(|word| word.replace("$vm_id", uuid)));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match virsh.run(&args, bytes::Bytes::new(), limit + Duration::from_secs(2)).await {
        Ok(text) => serde_json::from_str::<Value>(text.trim()).map_or_else(
            |_| text.trim().to_owned(),
            |value| written(value.get("return").unwrap_or(&Value::Null)),
        ),
        Err(reason) => reason,
    }
}

fn written(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(written).collect::<Vec<_>>().join(", "),
        Value::Object(_) => {
            let text = value.to_string();
            let escape = |c: char| if "\"[]".contains(c) { format!("\\{c}") } else { c.to_string() };
            text.chars().map(escape).collect()
        }
        other => other.to_string(),
    }
}

/// Addresses of the guest, without those of the loopback.
fn addresses(value: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for interface in value.as_array().into_iter().flatten() {
        if interface.get("name").and_then(Value::as_str) == Some("lo") {
            continue;
        }
        let list = interface.get("ip-addresses").and_then(Value::as_array).into_iter().flatten();
        let texts = list.filter_map(|address| address.get("ip-address")?.as_str());
        all.extend(texts.filter(|ip| *ip != "127.0.0.1" && *ip != "::1").map(str::to_owned));
    }
    all
}

impl System {
    fn of(value: &Value) -> Self {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let id = text("id");
        let kind = if id == "mswindows" { "mswindows" } else { "posix" };
        Self { id, kind, version: text("version-id"), machine: text("machine") }
    }
}

/// The command that reads NVIDIA cards inside a guest.
const NVIDIA: &str = "nvidia-smi --query-gpu=gpu_uuid,utilization.gpu,utilization.memory,power.draw,memory.free --format=csv,noheader,nounits";

/// Whether the metadata of a domain names a PCI device of vendor 10de.
#[must_use]
pub fn has_nvidia(xml: &str) -> bool {
    let Ok(document) = crate::template::xml::Document::parse(xml) else { return false };
    let Some(metadata) = document.root().child("metadata") else { return false };
    let devices =
        metadata.elements().flat_map(|vm| vm.elements()).flat_map(|e| std::iter::once(e).chain(e.elements()));
    let mut lists = devices.filter(|element| element.name().rsplit(':').next() == Some("pci_devices"));
    lists.any(|element| element.text().split(',').any(|device| device.trim().starts_with("10de:")))
}

/// GPU_* of a guest with NVIDIA cards; nothing when it does not answer within 2 s after the command was started.
pub async fn gpus(virsh: &Virsh, uuid: &str, limit: Duration) -> Vec<(String, String)> {
    for _ in 0..2 {
        if let Some(output) = guest_output(virsh, uuid, NVIDIA, limit).await {
            return gpu_figures(&output);
        }
    }
    Vec::new()
}

async fn guest_output(virsh: &Virsh, uuid: &str, script: &str, limit: Duration) -> Option<String> {
    use base64::Engine as _;
    let start = serde_json::json!({"execute": "guest-exec", "arguments":
        {"path": "/bin/sh", "arg": ["-c", script], "capture-output": true}});
    let text = virsh.guest(uuid, &start.to_string(), limit).await.ok()?;
    let pid = serde_json::from_str::<Value>(text.trim()).ok()?.pointer("/return/pid")?.as_i64()?;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let status = serde_json::json!({"execute": "guest-exec-status", "arguments": {"pid": pid}});
        let text = virsh.guest(uuid, &status.to_string(), limit).await.ok()?;
        let told: Value = serde_json::from_str(text.trim()).ok()?;
        if told.pointer("/return/exited").and_then(Value::as_bool) == Some(true) {
            let data = told.pointer("/return/out-data")?.as_str()?;
            let bytes = base64::engine::general_purpose::STANDARD.decode(data).ok()?;
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    None
}

/// Means of the loads, sums of memory and power, over all cards.
fn gpu_figures(csv: &str) -> Vec<(String, String)> {
    let rows: Vec<Vec<f64>> = csv
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.split(',').skip(1).map(|n| n.trim().parse().unwrap_or(0.0)).collect())
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let sum = |at: usize| rows.iter().filter_map(|row| row.get(at)).sum::<f64>();
    let two = |value: f64| format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned();
    let count = rows.len() as f64;
    vec![
        ("GPU_UTILIZATION".to_owned(), two(sum(0) / count)),
        ("GPU_MEMORY_UTILIZATION".to_owned(), two(sum(1) / count)),
        ("GPU_MEMORY_FREE".to_owned(), two(sum(3))),
        ("GPU_POWER_USAGE".to_owned(), two(sum(2))),
        ("GPU_COUNT".to_owned(), rows.len().to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::tools::{Ask, fake::Fake};

    const CONF: &str = ":enabled: true\n:commands:\n  :vm_qemu_ping: \"$vm_id '{\\\"execute\\\":\\\"guest-ping\\\"}' --timeout 5\"\n  :win_only:\n    :command: \"$vm_id x\"\n    :os_ids: [mswindows]\n";

    fn virsh(answer: impl Fn(&Ask) -> Result<String, (i32, String)> + Send + Sync + 'static) -> Virsh {
        Virsh::new(Arc::new(Fake(answer)), "u", Duration::from_secs(1))
    }

    #[tokio::test]
    async fn an_agent_is_asked_what_is_wanted() {
        let config = GuestConfig::read(CONF).expect("good");
        let virsh = virsh(|ask| {
            let all = ask.args.join(" ");
            Ok(if all.contains("osinfo") {
                r#"{"return":{"id":"debian","version-id":"12","machine":"x86_64"}}"#
            } else if all.contains("interfaces") {
                r#"{"return":[{"name":"lo","ip-addresses":[{"ip-address":"127.0.0.1"}]},{"name":"eth0","ip-addresses":[{"ip-address":"10.0.0.2"},{"ip-address":"fe80::1"}]},{"name":"x"}]}"#
            } else {
                assert_eq!(ask.args[3..], ["qemu-agent-command", "U", r#"{"execute":"guest-ping"}"#, "--timeout", "5"]);
                r#"{"return":{}}"#
            }
            .to_owned())
        });
        let mut system = None;
        let told = ask(&virsh, &config, "U", &mut system, Duration::from_secs(5)).await;
        let told: Vec<String> = told.into_iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            told,
            [
                "OS_ID=debian",
                "OS_TYPE=posix",
                "OS_VERSION=12",
                "OS_MACHINE=x86_64",
                "GUEST_IP_ADDRESSES=10.0.0.2,fe80::1",
                "VM_QEMU_PING={}"
            ]
        );
    }

    #[tokio::test]
    async fn a_dead_agent_gives_its_error() {
        let config = GuestConfig::read(CONF).expect("good");
        let virsh = virsh(|_| Err((1, "error: Guest agent is not responding".into())));
        let told = ask(&virsh, &config, "U", &mut None, Duration::from_secs(5)).await;
        assert_eq!(told.len(), 1);
        assert!(told[0].1.contains("not responding"));
    }

    #[test]
    fn the_default_is_off_and_says_so() {
        let config = GuestConfig::read(":enabled: false\n:commands:\n  :vm_qemu_ping: x\n").expect("good");
        assert!(!config.enabled);
        assert_eq!(config.disabled()[0].0, "VM_QEMU_PING");
        assert!(GuestConfig::read("").expect("empty").commands.is_empty());
        assert!(GuestConfig::read(":enabled: [").is_err());
    }

    #[test]
    fn answers_are_written_as_text() {
        let value: Value = serde_json::from_str(r#"{"a":["b"]}"#).expect("json");
        assert_eq!(written(&value), r#"{\"a\":\[\"b\"\]}"#);
        assert_eq!(written(&serde_json::json!(["a", 1, true])), "a, 1, true");
    }

    #[test]
    fn cards_are_summed_up() {
        let told = gpu_figures("GPU-1, 10, 20, 30.5, 1000\nGPU-2, 20, 40, 9.5, 500\n");
        let told: Vec<String> = told.into_iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            told,
            [
                "GPU_UTILIZATION=15",
                "GPU_MEMORY_UTILIZATION=30",
                "GPU_MEMORY_FREE=1500",
                "GPU_POWER_USAGE=40",
                "GPU_COUNT=2"
            ]
        );
        assert!(gpu_figures("").is_empty());
    }

    #[test]
    fn a_card_is_known_by_the_metadata() {
        let xml = |devices: &str| {
            format!(
                "<domain><metadata><one:vm xmlns:one='http://opennebula.org/xmlns/libvirt/1.0'><one:pci_devices>{devices}</one:pci_devices></one:vm></metadata></domain>"
            )
        };
        assert!(has_nvidia(&xml("8086:1572:0200,10de:1eb8:0302")));
        assert!(!has_nvidia(&xml("8086:1572:0200")) && !has_nvidia("<domain/>") && !has_nvidia("x"));
    }
}
