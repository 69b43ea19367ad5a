//! `kvmad monitor`: one look at hosts and their VMs, or one again and again.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use crate::host::job::{HostName, Job, Outcome, Place, Program, Runner, Watch};
use crate::host::{Pool, PoolOptions};
use crate::node::monitor::journal::VmFigures;
use crate::node::monitor::look::Look;
use crate::script::failure;
use crate::settings::{Paths, Settings};

/// Arguments of `kvmad monitor`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The hosts
    #[arg(required = true, value_parser = host)]
    hosts: Vec<HostName>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Look again every so many seconds, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5")]
    watch: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people
    Table,
    /// One JSON object a host and line
    Json,
}

fn host(text: &str) -> Result<HostName, String> {
    HostName::new(text).map_err(|error| error.to_string())
}

/// Time limit of one look.
const LIMIT: Duration = Duration::from_secs(90);

/// Looks at the hosts. Exit status: fine, a finding when libvirt or a check of a host is not well, unchecked when a host
/// could not be looked at.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Err(error) = Settings::load(&Paths::from_environment()) {
        // Nobody is left to tell when stderr is gone.
        let _ = writeln!(err, "{error}");
        return super::USAGE;
    }
    match looked(arguments, out, err) {
        Ok(status) => status,
        Err(reason) => {
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(err, "{reason}");
            super::UNCHECKED
        }
    }
}

fn looked(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, String> {
    let paths = Paths::from_environment();
    let (settings, _) = Settings::load(&paths).map_err(|error| error.to_string())?;
    let (core, _) = paths.core_config();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let options = PoolOptions::new(&settings, &paths, core.scripts_remote_dir());
        let pool = Arc::new(Pool::new(options).map_err(|error| error.to_string())?);
        let status = loop {
            let round = round(&pool, arguments, out, err).await?;
            let Some(seconds) = arguments.watch.filter(|_| !round.last) else { break round.status };
            tokio::time::sleep(Duration::from_secs(seconds.max(1))).await;
        };
        pool.close().await;
        Ok(status)
    })
}

/// What a look at all hosts came to.
struct Round {
    /// The exit status.
    status: u8,
    /// Whether nobody reads on.
    last: bool,
}

async fn round(
    pool: &Arc<Pool>,
    arguments: &Arguments,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Round, String> {
    let mut running = Vec::new();
    for host in &arguments.hosts {
        let (pool, host) = (Arc::clone(pool), host.clone());
        running.push(tokio::spawn(async move { (host.clone(), look_at(&*pool, host).await) }));
    }
    let mut status = super::FINE;
    for one in running {
        let (host, look) = one.await.map_err(|error| error.to_string())?;
        match look {
            Ok((look, json)) => {
                if look.trouble.is_some() {
                    status = status.max(super::FINDING);
                }
                let text = match arguments.format {
                    Format::Json => format!("{json}\n"),
                    Format::Table => table(&host, &look),
                };
                if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                    let status = status.max(super::unwritten(&error, err));
                    return Ok(Round { status, last: true });
                }
            }
            Err(reason) => {
                status = super::UNCHECKED;
                let _ = writeln!(err, "{reason}");
            }
        }
    }
    Ok(Round { status, last: false })
}

/// One look, with the JSON that the host printed.
async fn look_at(runner: &dyn Runner, host: HostName) -> Result<(Look, String), String> {
    let place = Place::Host { name: host.clone(), agent: false };
    let job = Job { limit: Some(LIMIT), ..Job::new(Program::Script("im/look".to_owned())) };
    let outcome: Outcome = runner.run(&place, job, Watch::nothing()).await;
    if !outcome.succeeded() {
        return Err(host.tells(&failure(&outcome, "im/look", &place)));
    }
    let text = String::from_utf8_lossy(&outcome.stdout).trim().to_owned();
    let look =
        serde_json::from_str(&text).map_err(|error| format!("{host}: im/look printed no look: {error}"))?;
    Ok((look, text))
}

fn table(host: &HostName, look: &Look) -> String {
    let figure = |name: &str| look.figures.get(name).copied().unwrap_or(0.0);
    let mut text = format!(
        "{host}: {:.2} of {:.0} CPUs, {} of {} memory in use\n",
        figure("USEDCPU") / 100.0,
        figure("TOTALCPU") / 100.0,
        size(figure("USEDMEMORY") * 1024.0),
        size(figure("TOTALMEMORY") * 1024.0),
    );
    if let Some(trouble) = &look.trouble {
        text.push_str(&format!("  libvirt: {}\n", plain(trouble)));
    }
    for finding in &look.findings {
        text.push_str(&format!("  {}\n", plain(finding)));
    }
    if !look.vms.is_empty() {
        text.push_str(&vms(&look.vms));
        text.push('\n');
    }
    text
}

fn vms(all: &[VmFigures]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "VM",
        "domain",
        "state",
        "CPU %",
        "memory",
        "net in",
        "net out",
        "disk read",
        "disk written",
    ]);
    for vm in all {
        let number = |key: &str| vm.numbers.get(key).copied();
        let bytes = |key: &str| number(key).map_or("-".to_owned(), size);
        let id = if vm.id < 0 { "-".to_owned() } else { vm.id.to_string() };
        table.add_row([
            id,
            plain(&vm.name),
            vm.state.clone(),
            number("CPU").map_or("-".to_owned(), |cpu| format!("{cpu:.1}")),
            number("MEMORY").map_or("-".to_owned(), |kib| size(kib * 1024.0)),
            bytes("NETRX"),
            bytes("NETTX"),
            bytes("DISKRDBYTES"),
            bytes("DISKWRBYTES"),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Names come from the host: nothing in them may move the cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn size(bytes: f64) -> String {
    let mut left = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if left < 1024.0 {
            return if unit == "B" { format!("{left:.0} B") } else { format!("{left:.1} {unit}") };
        }
        left /= 1024.0;
    }
    format!("{left:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_becomes_a_line_and_a_table() {
        let json = r#"{"at":1,"host":"n","figures":{"USEDCPU":150,"TOTALCPU":800,"USEDMEMORY":1048576,"TOTALMEMORY":2097152},"vms":[{"id":7,"name":"one-7\u001b","state":"RUNNING","numbers":{"CPU":12.5,"MEMORY":1024,"NETRX":2048}},{"id":-1,"name":"wild","state":"UNKNOWN","numbers":{}}],"trouble":null,"findings":["dev-kvm: /dev/kvm is not there"]}"#;
        let look: Look = serde_json::from_str(json).expect("a look");
        let text = table(&HostName::new("node1").expect("a name"), &look);
        assert!(
            text.starts_with(
                "node1: 1.50 of 8 CPUs, 1.0 GiB of 2.0 GiB memory in use\n  dev-kvm: /dev/kvm is not there\n"
            ),
            "{text}"
        );
        let row = text.lines().find(|line| line.contains("one-7")).expect("a row");
        let cells: Vec<&str> = row.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["7", "one-7?", "RUNNING", "12.5", "1.0 MiB", "2.0 KiB", "-", "-", "-"], "{text}");
    }
}
