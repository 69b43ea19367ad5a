//! The one table of all settings: it yields the types, the reader, `docs/settings.md` and `etc/kvmad.conf`.

use std::path::PathBuf;
use std::time::Duration;

use super::value::{Folder, Percent, Size, Value};

/// One setting, as the documentation and the reader see it.
pub struct Setting {
    /// Its section in `kvmad.conf`.
    pub section: &'static str,
    /// Its key there.
    pub key: &'static str,
    /// How its value is written.
    pub form: &'static str,
    /// The default, as it would be written.
    pub default: &'static str,
    /// What it does, for people; lines as in the source.
    pub doc: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
}

impl Setting {
    /// Name of the environment variable that beats the file: `KVMAD_SECTION_KEY`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("KVMAD_{}_{}", self.section, self.key).to_ascii_uppercase()
    }
}

macro_rules! settings {
    ($(
        $(#[doc = $about:literal])+
        $section:ident: $Section:ident {
            $( $(#[doc = $doc:literal])+ $key:ident: $kind:ty = $default:literal; )+
        }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $Section { $( $(#[doc = $doc])+ pub $key: $kind, )+ }
        )+

        /// All settings of `kvmad.conf`, one field a section. `Default` gives the documented defaults.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings { $( $(#[doc = $about])+ pub $section: $Section, )+ }

        impl Default for Settings {
            fn default() -> Self {
                Self { $( $section: $Section { $(
                    $key: <$kind as Value>::read($default).expect("a test reads every default"),
                )+ }, )+ }
            }
        }

        $( impl Default for $Section {
            fn default() -> Self { Settings::default().$section }
        } )+

        /// Every setting, in the order of the documentation.
        pub const TABLE: &[Setting] = &[ $( $( Setting {
            section: stringify!($section),
            key: stringify!($key),
            form: <$kind as Value>::FORM,
            default: $default,
            doc: concat!($($doc, "\n"),+),
            set: |settings, text| {
                settings.$section.$key = <$kind as Value>::read(text)?;
                Ok(())
            },
        }, )+ )+ ];

        /// Every section and what it is about, in the order of the documentation.
        pub const SECTIONS: &[(&str, &str)] = &[ $( (stringify!($section), concat!($($about, "\n"),+)), )+ ];
    };
}

settings! {
    /// The conversation with oned, for both drivers.
    mad: Mad {
        /// While oned does not read, LOG lines are kept up to this size; what comes beyond it is dropped and
        /// counted, and a line says so later. Replies are never dropped.
        log_buffer: Size = "8 MiB";
        /// Longest info of a reply. OpenNebula stores the text of a failure in the VM, so it is kept short.
        info_limit: Size = "4 KiB";
        /// Longest text of one LOG line.
        log_line_limit: Size = "16 KiB";
        /// Longest request line. A longer one is refused with a FAILURE.
        request_limit: Size = "256 MiB";
        /// How long CANCEL or CLEANUP of a VM waits for the end of the action that it ends.
        overtake_wait: Duration = "15s";
        /// Slots beyond `-t` that are kept for CANCEL and CLEANUP.
        overtake_slots: usize = "2";
        /// With `-p`: the share of the slots that one host may hold while actions for other hosts wait.
        host_share: Percent = "25";
        /// How long the driver may take to end when oned closed the pipe. oned kills it after about a second.
        exit_wait: Duration = "800ms";
    }
    /// Connections to the hosts, and commands run over them.
    host: Host {
        /// How long a connection to a host may take.
        connect_timeout: Duration = "10s";
        /// An idle connection is closed after this time.
        idle: Duration = "60s";
        /// Most connections that are open at once; the longest idle one is closed for a new one.
        connections: usize = "128";
        /// How long the master of a connection stays when its driver was killed (ControlPersist of ssh).
        control_persist: Duration = "5s";
        /// Folder of the control sockets. Nothing: /run/one/kvmad, or a private folder under the run-time directory.
        control_dir: Option<PathBuf> = "";
        /// Use the helper on hosts that have it. No: a channel for each command.
        helper: bool = "yes";
        /// How long the helper of a host may take to say its first line.
        hello_wait: Duration = "5s";
        /// How much other output (MOTD, .bashrc) is skipped before the first line of the helper.
        hello_noise: Size = "64 KiB";
        /// How often both ends of a connection ask whether the other is there.
        ping: Duration = "15s";
        /// A connection without any sign of life for this time is lost.
        ping_timeout: Duration = "45s";
        /// How much of the stdout and of the stderr of one command is kept; the rest is read and thrown away.
        output_limit: Size = "8 MiB";
        /// How long one push of the remotes to a host may take.
        push_timeout: Duration = "120s";
    }
    /// The actions of the VMM driver.
    action: Action {
        /// Time limit of a script when the driver was started without `-w`.
        timeout: Option<Duration> = "none";
        /// From TERM to KILL for a command that is ended.
        grace: Duration = "30s";
        /// How long rolling an action back may take.
        rollback_timeout: Duration = "60s";
        /// How often a connection is tried for rolling back.
        rollback_tries: usize = "3";
        /// When a migration's script was lost both hosts are asked where the VM is: for so long again while one gives no
        /// answer.
        settle_timeout: Duration = "40s";
        /// And for so long while the migration goes on without its script.
        settle_migration_timeout: Duration = "15m";
    }
    /// Starting, stopping and pulling the monitoring of hosts (IM driver).
    im: Im {
        /// The most time that one START_MONITOR, STOP_MONITOR or MONITOR may take with all its tries.
        /// onemonitord sends a second START after 300 s, whether the first still runs or not.
        total_timeout: Duration = "280s";
        /// Time limit of one try when the driver was started without `-w`.
        timeout: Duration = "90s";
        /// Pause before a further try (`-r`).
        retry_wait: Duration = "1s";
        /// What the text of a MONITOR reply looks like: `auto`, `3.8` (plain, one line), `4.0` (base64).
        /// Auto: base64; OpenNebula 3.8 can't be told from 4.0 by its requests.
        pull_format: String = "auto";
    }
    /// The monitoring agent. It runs on the hosts and reads `etc/kvmad.conf` of the remotes there, so put these into
    /// `/var/lib/one/remotes/etc/kvmad.conf`.
    agent: Agent {
        /// How long virsh may take for states and statistics. A libvirt daemon that takes longer counts as hung.
        libvirt_timeout: Duration = "10s";
        /// How long virsh may take for what a host can do (capabilities, CPU models), which starts QEMU.
        capabilities_timeout: Duration = "60s";
        /// After this time without an answer from libvirt the host is reported as failed.
        trouble_after: Duration = "30s";
        /// How long a pause by a user must last until the VM is reported SUSPENDED.
        pause_wait: Duration = "2s";
        /// A change of state is reported a second time after this: oned ignores reports within 30 s of a change of
        /// its own.
        repeat: Duration = "35s";
        /// Looks (one each STATE_VM period) that a VM may be missing without a word before it counts as off.
        misses: usize = "5";
        /// How long a VM that was saved or migrated away by hand is remembered.
        obsolete: Duration = "12h";
        /// How long a file system of a datastore may take to tell its space.
        datastore_timeout: Duration = "5s";
        /// Time limit of one command to a guest agent.
        guest_timeout: Duration = "5s";
        /// Guest agents that are asked at the same time.
        guest_workers: usize = "4";
        /// Time limit of one executable in a probe folder; its process group is ended then.
        probe_timeout: Duration = "60s";
        /// Most output of one executable in a probe folder; one that prints more is dropped.
        probe_output: Size = "1 MiB";
        /// Probes of OpenNebula (file names, separated by commas) that are run although the agent knows what they
        /// tell: for those that were edited.
        run_probes: String = "";
        /// Longest datagram; what is larger goes by TCP. IPv4 carries 65507 bytes.
        datagram_limit: Size = "60000";
        /// How long sending by TCP may take.
        send_timeout: Duration = "5s";
        /// Longest pause before a state that could not be sent is sent again.
        resend: Duration = "10s";
        /// Write Prometheus figures to this file each minute (the textfile folder of the node exporter).
        metrics_file: Option<PathBuf> = "";
        /// Serve Prometheus figures on this port of the loopback address; 0: not at all.
        metrics_port: usize = "0";
        /// OpenNebula's version for the old pull probes: `auto` (the file VERSION of the remotes, else 4.2), or
        /// a version such as `3.8`.
        pull_version: String = "auto";
    }
    /// VMs from cloud images. `kvmad vm` reads these on the front-end; an option of it beats them. For VMs of OpenNebula
    /// with CLOUD_IMAGE the hosts read `etc/kvmad.conf` of the remotes, so put these into
    /// `/var/lib/one/remotes/etc/kvmad.conf` too.
    cloud: Cloud {
        /// Folder of the VMs on a host: one folder a VM, named after its domain, with its disk and seed.
        images: Folder = "/var/lib/libvirt/images/kvmad";
        /// Cache of images downloaded from URLs, each named as the last part of its URL. Nothing: `base` in `images`.
        base: Option<Folder> = "";
        /// Library of images: the name `ubuntu-24.04` finds `ubuntu-24.04.qcow2` there. Nothing: `cloud-images` in `images`.
        library: Option<Folder> = "";
        /// DNS servers that a guest is told when its VM is on a bridge or has a static address. The gateway is never
        /// added.
        resolvers: String = "1.1.1.1, 1.0.0.1";
        /// What VMs of OpenNebula may download: beginnings of URLs, separated by commas (`https://cloud.debian.org/images/`).
        /// Nothing: they get images of the library only.
        sources: String = "";
        /// Certificates (PEM) on the host that servers are checked against. Nothing: those that the host trusts.
        ca_file: Option<PathBuf> = "";
        /// A download that brings nothing for this time is cut and gone on with.
        download_stall: Duration = "60s";
        /// How often a download that was cut is gone on with.
        download_tries: usize = "5";
        /// The largest image that is downloaded.
        image_limit: Size = "64 GiB";
    }
    /// The driver's own log. It never goes to oned: use it to look into a driver.
    log: Log {
        /// Where it goes: `stderr` (which oned closes: seen only with ONE_MAD_DEBUG), `journald`, `none`, or the
        /// absolute path of a file that is appended to.
        target: String = "stderr";
        /// What is logged: error, warn, info, debug, trace, or a filter such as `info,kvmad::host=debug`.
        level: String = "info";
    }
}
