//! What libvirt tells of a running or finished migration (`virsh domjobinfo --rawstats`).

use std::time::Duration;

/// One look at the job of a domain. Bytes and milliseconds, as libvirt gives them; 0 where it gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Job {
    /// libvirt's number of the kind: 0 none, 1 bounded, 2 unbounded, 3 completed, 4 failed, 5 cancelled.
    pub kind: u64,
    /// libvirt's number of what is done: 5 is a migration to another host.
    pub operation: u64,
    /// Milliseconds since it began.
    pub elapsed: u64,
    /// Milliseconds for which the guest will stand still (while it runs) or stood still (at the end).
    pub downtime: u64,
    /// Memory of the guest.
    pub memory_total: u64,
    /// Memory that was sent, pages that were sent again counted again.
    pub memory_processed: u64,
    /// Memory that is still to be sent.
    pub memory_remaining: u64,
    /// Bytes a second.
    pub memory_rate: u64,
    /// Bytes of memory a second that the guest changes.
    pub dirty_rate: u64,
    /// Pass over the memory; 0 before the first.
    pub iteration: u64,
    /// Percent by which QEMU slows the guest.
    pub throttle: u64,
    /// Size of the disks that are copied.
    pub disk_total: u64,
    /// What was copied of them.
    pub disk_processed: u64,
    /// What is still to be copied.
    pub disk_remaining: u64,
}

impl Job {
    /// Reads what `domjobinfo --rawstats` prints; names that are not known are left out. `None` when it holds no job.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut job = Self::default();
        let (mut dirty_pages, mut page) = (0, 4096);
        let mut found = false;
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let Ok(value) = value.trim().parse::<u64>() else { continue };
            match name.trim() {
                "Job type" => (job.kind, found) = (value, true),
                "operation" => job.operation = value,
                "time_elapsed" => job.elapsed = value,
                "downtime" => job.downtime = value,
                "memory_total" => job.memory_total = value,
                "memory_processed" => job.memory_processed = value,
                "memory_remaining" => job.memory_remaining = value,
                "memory_bps" => job.memory_rate = value,
                "memory_dirty_rate" => dirty_pages = value,
                "memory_page_size" => page = value,
                "memory_iteration" => job.iteration = value,
                "auto_converge_throttle" => job.throttle = value,
                "disk_total" => job.disk_total = value,
                "disk_processed" => job.disk_processed = value,
                "disk_remaining" => job.disk_remaining = value,
                _ => {}
            }
        }
        job.dirty_rate = dirty_pages.saturating_mul(page);
        (found && job.kind != 0).then_some(job)
    }

    /// Whether it still runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        matches!(self.kind, 1 | 2)
    }

    /// Whether a migration to another host is under way.
    #[must_use]
    pub fn is_migration(&self) -> bool {
        self.runs() && self.operation == 5
    }

    /// Bytes that went over the network so far.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.memory_processed.saturating_add(self.disk_processed)
    }

    /// For the log, while it runs.
    #[must_use]
    pub fn progress(&self) -> String {
        let mut parts = Vec::new();
        if self.disk_total > 0 && self.disk_remaining > 0 {
            parts.push(format!(
                "{} % of the disks copied, {} remain",
                percent(self.disk_total, self.disk_remaining),
                bytes(self.disk_remaining)
            ));
        }
        if self.iteration > 0 || self.memory_processed > 0 {
            parts.push(format!(
                "{} % of the memory sent, {} remain, {}/s",
                percent(self.memory_total, self.memory_remaining),
                bytes(self.memory_remaining),
                bytes(self.memory_rate)
            ));
            parts.push(format!(
                "the guest changes {}/s, pass {}",
                bytes(self.dirty_rate),
                self.iteration.max(1)
            ));
        }
        if self.throttle > 0 {
            parts.push(format!("the guest is slowed by {} %", self.throttle));
        }
        if parts.is_empty() {
            return "it is being prepared".to_owned();
        }
        parts.push(self.expected());
        parts.join(", ")
    }

    fn expected(&self) -> String {
        if self.disk_remaining > 0 {
            let rate = self.disk_processed.saturating_mul(1000) / self.elapsed.max(1);
            return match self.disk_remaining.checked_div(rate) {
                Some(seconds) => format!("the disks need some {} more", time(Duration::from_secs(seconds))),
                None => "its end can't be told yet".to_owned(),
            };
        }
        match self.memory_rate.checked_sub(self.dirty_rate).filter(|gain| *gain > 0) {
            Some(gain) => {
                format!("end expected in {}", time(Duration::from_secs(self.memory_remaining / gain)))
            }
            None if self.memory_rate == 0 => "its end can't be told yet".to_owned(),
            None => "no end in sight: the guest changes its memory faster than it can be sent".to_owned(),
        }
    }

    /// For the log, at the end of a migration that lasted `all`.
    #[must_use]
    pub fn summary(&self, all: Duration) -> String {
        let disks = match self.disk_processed {
            0 => String::new(),
            count => format!(" and {} of disks", bytes(count)),
        };
        format!(
            "took {}, the guest stood still for {} ms, {} of memory{disks} were sent in {} passes",
            time(all),
            self.downtime,
            bytes(self.memory_processed),
            self.iteration.max(1)
        )
    }
}

fn percent(total: u64, remaining: u64) -> u64 {
    let done = total.saturating_sub(remaining);
    done.saturating_mul(100).checked_div(total).unwrap_or(0)
}

/// `count` bytes for people.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut unit, mut tenths) = (0, u128::from(count) * 10);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    if unit == 0 || tenths >= 1000 {
        return format!("{} {}", tenths / 10, UNITS[unit]);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// A time for people.
#[must_use]
pub fn time(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f32()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As libvirt 9.0.0 printed it during a migration limited to 8 MiB/s.
    const RUNNING: &str = "Job type: 2\n\noperation: 5\ntime_elapsed: 5413\ndowntime: 300\nsetup_time: 1\ndata_total: 139010048\ndata_processed: 40381681\ndata_remaining: 97783808\nmemory_total: 139010048\nmemory_processed: 40381681\nmemory_remaining: 97783808\nmemory_bps: 8413380\nmemory_constant: 226\nmemory_normal: 9839\nmemory_normal_bytes: 40300544\nmemory_dirty_rate: 100\nmemory_iteration: 1\nmemory_postcopy_requests: 0\nmemory_page_size: 4096\ndisk_total: 0\ndisk_processed: 0\ndisk_remaining: 0\n";

    #[test]
    fn it_reads_what_libvirt_prints() {
        let job = Job::read(RUNNING).expect("a job");
        assert!(job.runs() && job.is_migration());
        let backup = Job::read(&RUNNING.replace("operation: 5", "operation: 9")).expect("a job");
        assert!(backup.runs() && !backup.is_migration());
        assert_eq!((job.elapsed, job.downtime, job.iteration), (5413, 300, 1));
        assert_eq!((job.memory_total, job.memory_remaining), (139_010_048, 97_783_808));
        assert_eq!(job.dirty_rate, 409_600);
        assert_eq!(job.moved(), 40_381_681);
    }

    #[test]
    fn what_is_no_job_is_none() {
        for text in ["", "Job type: 0\n\n", "error: x\n", "time_elapsed: 5\n"] {
            assert_eq!(Job::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn progress_says_what_remains_and_when_it_may_end() {
        let job = Job::read(RUNNING).expect("a job");
        assert_eq!(
            job.progress(),
            "29 % of the memory sent, 93.2 MiB remain, 8.0 MiB/s, the guest changes 400 KiB/s, pass 1, end expected in 12 s"
        );
        let busy = Job { dirty_rate: job.memory_rate, ..job };
        assert!(busy.progress().contains("no end in sight"), "{}", busy.progress());
        let early = Job { kind: 2, memory_total: 5, ..Job::default() };
        assert_eq!(early.progress(), "it is being prepared");
        let disks = Job {
            kind: 2,
            elapsed: 10_000,
            disk_total: 1 << 30,
            disk_processed: 256 << 20,
            disk_remaining: 768 << 20,
            ..Job::default()
        };
        assert_eq!(
            disks.progress(),
            "25 % of the disks copied, 768 MiB remain, the disks need some 30 s more"
        );
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(u64::MAX), "16777215 TiB");
        assert_eq!(time(Duration::from_millis(1234)), "1.2 s");
        assert_eq!(time(Duration::from_secs(61)), "61 s");
        assert_eq!(time(Duration::from_secs(7260)), "2 h 1 min");
    }
}
