//! What an agent has done: for `kvmad-node status` and the Prometheus figures.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::message::Message;

/// Errors that are kept.
const ERRORS: usize = 50;

/// What became of the messages of one kind.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Sent {
    /// Messages that were sent.
    pub count: u64,
    /// Messages that could not be sent.
    pub lost: u64,
    /// Bytes of the last one.
    pub bytes: usize,
    /// When the last one was sent, in seconds since 1970.
    pub at: u64,
    /// Whether the last one told of success.
    pub success: bool,
}

/// An error, and how often it came in a row.
#[derive(Debug, Clone, Serialize)]
pub struct Fault {
    /// When it came last, in seconds since 1970.
    pub at: u64,
    /// How often.
    pub times: u64,
    /// What it was.
    pub what: String,
}

/// A VM's figures: numbers by key.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct VmFigures {
    /// Number of the VM; -1 for a domain that is not OpenNebula's.
    pub id: i64,
    /// Name of its domain.
    pub name: String,
    /// State as it is told.
    pub state: String,
    /// CPU, MEMORY, NETRX and so on.
    pub numbers: BTreeMap<String, f64>,
}

/// Everything that is recorded.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Record {
    /// By message type.
    pub messages: BTreeMap<&'static str, Sent>,
    /// The last errors, oldest first.
    pub errors: VecDeque<Fault>,
    /// Why the host is reported as failed, while it is.
    pub trouble: Option<String>,
    /// Whether libvirt's events are followed.
    pub events: bool,
    /// Lifecycle events seen.
    pub events_seen: u64,
    /// States that wait to be sent.
    pub queue: usize,
    /// Numbers of the host, by attribute.
    pub host: BTreeMap<String, f64>,
    /// Figures of the VMs.
    pub vms: Vec<VmFigures>,
}

/// The record behind a lock.
#[derive(Debug, Default)]
pub struct Journal {
    record: Mutex<Record>,
}

impl Journal {
    /// The record; hold it briefly.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message was sent, or not.
    pub fn sent(&self, message: &Message, now: u64, bytes: Result<usize, &str>) {
        {
            let mut record = self.record();
            let sent = record.messages.entry(message.kind.name()).or_default();
            match bytes {
                Ok(bytes) => {
                    sent.count += 1;
                    (sent.bytes, sent.at, sent.success) = (bytes, now, message.success);
                }
                Err(_) => sent.lost += 1,
            }
        }
        if let Err(reason) = bytes {
            self.fault(now, format!("{} was not sent: {reason}", message.kind.name()));
        }
    }

    /// Something went wrong that does not end the agent.
    pub fn fault(&self, now: u64, what: String) {
        let mut record = self.record();
        if let Some(last) = record.errors.iter_mut().find(|fault| fault.what == what) {
            (last.at, last.times) = (now, last.times + 1);
            return;
        }
        tracing::warn!("{what}");
        if record.errors.len() >= ERRORS {
            record.errors.pop_front();
        }
        record.errors.push_back(Fault { at: now, times: 1, what });
    }

    /// Takes the plain numbers of a text (`NAME=number` lines) as figures of the host.
    pub fn host_numbers(&self, text: &str) {
        let mut record = self.record();
        for line in text.lines() {
            let Some((name, value)) = line.split_once('=') else { continue };
            if let Ok(number) = value.trim().parse::<f64>() {
                record.host.insert(name.trim().to_owned(), number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_fault_is_counted_and_the_oldest_forgotten() {
        let journal = Journal::default();
        for n in 0..100 {
            journal.fault(n, format!("fault {}", n % 60));
        }
        let record = journal.record();
        assert_eq!(record.errors.len(), ERRORS);
        assert_eq!(record.errors.back().map(|f| f.what.as_str()), Some("fault 39"));
    }

    #[test]
    fn numbers_of_a_text_become_figures() {
        let journal = Journal::default();
        journal.host_numbers("ARCH=x86_64\nTOTALCPU=800\nDS = [ ID = \"1\" ]\nFREECPU=780.8\n");
        let record = journal.record();
        let host: Vec<_> = record.host.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(host, [("FREECPU", 780.8), ("TOTALCPU", 800.0)]);
    }
}
