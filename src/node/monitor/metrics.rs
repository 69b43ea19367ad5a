//! Prometheus text: figures of the host, its VMs, and the agent itself.

use std::collections::BTreeMap;

use super::agent::{Shared, clock};
use super::journal::{Record, VmFigures};

/// Attribute, name of the figure, its help, factor to the base unit.
const HOST: [(&str, &str, &str, f64); 11] = [
    ("TOTALCPU", "host_cpu_total", "CPUs of the host", 0.01),
    ("USEDCPU", "host_cpu_used", "CPUs in use", 0.01),
    ("FREECPU", "host_cpu_free", "CPUs that are idle", 0.01),
    ("TOTALMEMORY", "host_memory_total_bytes", "Memory of the host", 1024.0),
    ("USEDMEMORY", "host_memory_used_bytes", "Memory in use", 1024.0),
    ("FREEMEMORY", "host_memory_free_bytes", "Memory that is free", 1024.0),
    ("NETRX", "host_network_receive_bytes_total", "Bytes received by physical interfaces", 1.0),
    ("NETTX", "host_network_transmit_bytes_total", "Bytes sent by physical interfaces", 1.0),
    ("DS_LOCATION_TOTAL_MB", "host_datastores_total_bytes", "Space of the datastore location", 1_048_576.0),
    ("DS_LOCATION_USED_MB", "host_datastores_used_bytes", "Space in use there", 1_048_576.0),
    ("DS_LOCATION_FREE_MB", "host_datastores_free_bytes", "Space free there", 1_048_576.0),
];

const VM: [(&str, &str, &str, f64); 8] = [
    ("CPU", "vm_cpu_used", "CPUs that the VM uses", 0.01),
    ("MEMORY", "vm_memory_resident_bytes", "Resident memory and swap of its process", 1024.0),
    ("NETRX", "vm_network_receive_bytes_total", "Bytes received", 1.0),
    ("NETTX", "vm_network_transmit_bytes_total", "Bytes sent", 1.0),
    ("DISKRDBYTES", "vm_disk_read_bytes_total", "Bytes read from its disks", 1.0),
    ("DISKWRBYTES", "vm_disk_written_bytes_total", "Bytes written to its disks", 1.0),
    ("DISKRDIOPS", "vm_disk_reads_total", "Read requests", 1.0),
    ("DISKWRIOPS", "vm_disk_writes_total", "Write requests", 1.0),
];

/// All figures of an agent.
#[must_use]
pub fn text(agent: &Shared) -> String {
    let record = agent.journal.record().clone();
    let mut text = Text::default();
    let host = [("host", agent.about.name.clone())];
    text.figure("agent_start_time_seconds", "gauge", "When the agent started", &host, agent.since as f64);
    write(&mut text, &record, &host, clock());
    text.done()
}

fn write(text: &mut Text, record: &Record, host: &[(&'static str, String)], now: u64) {
    let trouble = f64::from(u8::from(record.trouble.is_some()));
    text.figure("libvirt_up", "gauge", "Whether libvirt answers", host, 1.0 - trouble);
    text.figure("libvirt_events", "counter", "Lifecycle events seen", host, record.events_seen as f64);
    for (kind, sent) in &record.messages {
        let labels = [host, &[("type", (*kind).to_owned())]].concat();
        text.figure("messages_total", "counter", "Messages sent", &labels, sent.count as f64);
        text.figure(
            "messages_lost_total",
            "counter",
            "Messages that could not be sent",
            &labels,
            sent.lost as f64,
        );
        let age = now.saturating_sub(sent.at) as f64;
        text.figure("message_age_seconds", "gauge", "Time since the last message", &labels, age);
    }
    for (attribute, name, help, factor) in HOST {
        if let Some(value) = record.host.get(attribute) {
            text.figure(name, kind_of(name), help, host, value * factor);
        }
    }
    for vm in &record.vms {
        vm_figures(text, vm, host);
    }
}

fn vm_figures(text: &mut Text, vm: &VmFigures, host: &[(&'static str, String)]) {
    let labels = [host, &[("vm", vm.id.to_string()), ("domain", vm.name.clone())]].concat();
    let state = [labels.as_slice(), &[("state", vm.state.clone())]].concat();
    text.figure("vm_state", "gauge", "1 for the state that the VM is in", &state, 1.0);
    for (key, name, help, factor) in VM {
        if let Some(value) = vm.numbers.get(key) {
            text.figure(name, kind_of(name), help, &labels, value * factor);
        }
    }
}

fn kind_of(name: &str) -> &'static str {
    if name.ends_with("_total") && !name.ends_with("_cpu_total") { "counter" } else { "gauge" }
}

/// Figures by name: all samples of one name must stand together.
#[derive(Default)]
struct Text {
    figures: BTreeMap<String, (String, Vec<String>)>,
}

impl Text {
    fn figure(&mut self, name: &str, kind: &str, help: &str, labels: &[(&'static str, String)], value: f64) {
        let name = format!("kvmad_{name}");
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let sample = format!("{name}{{{}}} {value}\n", labels.join(","));
        let head = || (format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"), Vec::new());
        self.figures.entry(name.clone()).or_insert_with(head).1.push(sample);
    }

    fn done(self) -> String {
        self.figures.into_values().map(|(head, samples)| head + &samples.concat()).collect()
    }
}

/// A label's value: backslash, quote and newline are escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_name_stand_together_and_names_are_escaped() {
        let mut record = Record::default();
        record.host.insert("TOTALCPU".into(), 800.0);
        for (id, name) in [(7, "one-7"), (-1, "od\"d\\")] {
            let numbers = [("CPU".to_owned(), 150.0)].into_iter().collect();
            record.vms.push(VmFigures { id, name: name.into(), state: "RUNNING".into(), numbers });
        }
        let mut text = Text::default();
        write(&mut text, &record, &[("host", "node1".to_owned())], 0);
        let text = text.done();
        let expected = "# HELP kvmad_vm_cpu_used CPUs that the VM uses\n# TYPE kvmad_vm_cpu_used gauge\nkvmad_vm_cpu_used{host=\"node1\",vm=\"7\",domain=\"one-7\"} 1.5\nkvmad_vm_cpu_used{host=\"node1\",vm=\"-1\",domain=\"od\\\"d\\\\\"} 1.5\n";
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains("# TYPE kvmad_host_cpu_total gauge\nkvmad_host_cpu_total{host=\"node1\"} 8\n"),
            "{text}"
        );
    }
}
