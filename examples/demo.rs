//! `make demo`: a VM's life through the VMM driver, on a real host of the test bed, with every line of the conversation.
//!
//! The driver is started as oned starts it; the guest really boots (its console says so), is saved, restored, rebooted
//! and shut down by ACPI. Needs root and a test bed that is up; `tests/demo` sees to both.
#![allow(clippy::disallowed_methods)] // the harness starts programs itself

#[path = "../tests/bed/harness/mod.rs"]
mod harness;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use harness::conversation::Conversation;
use harness::document::Document;
use harness::driver::Driver;
use harness::front_end::FrontEnd;
use harness::vm::Vm;
use harness::{bed, wait_for};

const HOST: &str = "node1";
const VM: u32 = 2090;
/// Deadline of everything here.
const LIMIT: Duration = Duration::from_secs(120);

/// Writes lines with the time since the start. Clones write to the same place.
#[derive(Clone)]
struct Show {
    start: Instant,
    out: Arc<Mutex<std::io::Stdout>>,
}

impl Show {
    fn line(&self, at: Instant, mark: &str, text: &str) {
        let since = at.saturating_duration_since(self.start).as_secs_f64();
        let shown: String = text.chars().take(150).collect();
        let more = if text.chars().count() > 150 { "..." } else { "" };
        if let Ok(mut out) = self.out.lock() {
            // a closed terminal is no reason to leave a VM behind
            let _ = writeln!(out, "{since:8.3} s  {mark} {shown}{more}");
        }
    }

    fn say(&self, text: &str) {
        self.line(Instant::now(), "#", text);
    }

    /// Shows the driver's lines as they come, until told to stop.
    fn follow(&self, conversation: Conversation, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
        let show = self.clone();
        std::thread::spawn(move || {
            let mut seen = 0;
            loop {
                let last = stop.load(Ordering::Relaxed);
                let new = conversation.wait(Duration::from_millis(100), |lines| {
                    (lines.len() > seen).then(|| lines[seen..].to_vec())
                });
                let new = new.unwrap_or_default();
                seen += new.len();
                new.iter().for_each(|line| show.line(line.at, "<", &line.raw));
                if last && new.is_empty() {
                    return;
                }
            }
        })
    }
}

/// One row of the table at the end.
struct Row {
    action: &'static str,
    took: Duration,
    reply: String,
    seen: String,
}

/// The demo while it runs.
struct Demo {
    show: Show,
    driver: Driver,
    vm: Vm,
    rows: Vec<Row>,
}

impl Demo {
    fn act(&mut self, action: &'static str, document: &Document, seen: impl FnOnce(&Vm) -> String) -> bool {
        let payload = document.payload();
        let blanks = format!("{action}  {VM}");
        self.show.line(
            Instant::now(),
            ">",
            &format!("{blanks} <{} bytes of base64: the action document>", payload.len()),
        );
        let start = Instant::now();
        let reply = self.driver.ask(action, VM, &payload, LIMIT);
        let took = reply.at - start;
        let succeeded = reply.succeeded();
        if succeeded && action == "DEPLOY" {
            self.vm.deploy_id = reply.info.trim().to_owned();
        }
        let seen = if succeeded { seen(&self.vm) } else { "-".to_owned() };
        self.show.say(&seen);
        self.rows.push(Row { action, took, reply: format!("{} {}", reply.status, reply.info), seen });
        succeeded
    }

    fn life(&mut self) -> bool {
        let (deploy, saved) = (self.vm.deploy(), |vm: &Vm| vm.with_checkpoint());
        self.act("DEPLOY", &deploy, |vm| booted(vm, 1))
            && self.act("SAVE", &saved(&self.vm), |vm| {
                let size = std::fs::metadata(vm.checkpoint()).map_or(0, |file| file.len() >> 20);
                format!(
                    "the domain is {}, the checkpoint has {size} MiB",
                    vm.state().unwrap_or("gone".into())
                )
            })
            && self.act("RESTORE", &saved(&self.vm), |vm| {
                let goes_on = vm.ticks(LIMIT) && vm.said("READY at") == 1;
                let file = if vm.checkpoint().exists() { "still there" } else { "gone" };
                format!(
                    "the guest {}, the checkpoint is {file}",
                    if goes_on { "goes on where it was" } else { "does NOT go on" }
                )
            })
            && self.act("REBOOT", &self.vm.document(), |vm| booted(vm, 2))
            && self.act("SHUTDOWN", &self.vm.document(), |vm| {
                let asked = vm.said("ACPI power button") > 0;
                let domain = vm.state().unwrap_or("gone".into());
                format!(
                    "the guest {} the power button, the domain is {domain}",
                    if asked { "heard" } else { "did NOT hear" }
                )
            })
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header([
            "action",
            "reply after",
            "reply",
            "what the host says",
        ]);
        for row in &self.rows {
            table.add_row([row.action, &format!("{:.3} s", row.took.as_secs_f64()), &row.reply, &row.seen]);
        }
        table
    }
}

/// Waits for the guest's own READY, the `n`th, and gives the guest's words.
fn booted(vm: &Vm, n: usize) -> String {
    match wait_for(LIMIT, || (vm.said("READY at") >= n).then(|| vm.console())) {
        Some(console) => {
            let line = console.lines().rev().find(|line| line.contains("READY at")).unwrap_or_default();
            format!("the guest's console: {}", line.trim())
        }
        None => "the guest does NOT say READY".to_owned(),
    }
}

fn main() -> std::process::ExitCode {
    let show = Show { start: Instant::now(), out: Arc::new(Mutex::new(std::io::stdout())) };
    let _use = bed::shared();
    let front = FrontEnd::staged();
    show.say(&format!(
        "a front-end in {} (ONE_LOCATION), a VM with one disk for {HOST}",
        front.folder().display()
    ));
    let vm = Vm::with_network(&front, VM, HOST, "demobr0", "bridge");
    show.say("starting lib/mads/one_vmm_exec as oned does: one argument, descriptor 2 closed, all signals blocked, as oneadmin");
    let mut driver = Driver::start(&front, "one_vmm_exec", "-t 15 -r 0 kvm -p");
    let stop = Arc::new(AtomicBool::new(false));
    let follower = show.follow(driver.conversation.clone(), stop.clone());
    show.line(Instant::now(), ">", "INIT");
    driver.init();
    let mut demo = Demo { show: show.clone(), driver, vm, rows: Vec::new() };
    let lived = demo.life();
    show.line(Instant::now(), ">", "FINALIZE");
    let ended = demo.driver.finalize(LIMIT);
    stop.store(true, Ordering::Relaxed);
    let _ = follower.join();
    show.say(&format!("the driver has ended: {ended}"));
    let good = lived && demo.rows.iter().all(|row| !row.seen.contains("NOT")) && ended.success();
    if let Ok(mut out) = show.out.lock() {
        let _ = writeln!(out, "{}", demo.table());
        let _ = writeln!(
            out,
            "{}",
            if good { "the demo went as it should" } else { "the demo did NOT go as it should" }
        );
    }
    if good { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
