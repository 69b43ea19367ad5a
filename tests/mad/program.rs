//! The driver as a program, started as oned starts it: one argument, all signals blocked, stderr closed.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(argument: &str) -> Self {
        let tests = std::env::current_exe().expect("this test");
        let program = tests.ancestors().nth(2).expect("target/debug").join("examples/canned_driver");
        assert!(program.exists(), "{}: cargo build --example canned_driver", program.display());
        // A thread of its own blocks all signals, as oned does; the child inherits that.
        let argument = argument.to_owned();
        let mut child = std::thread::spawn(move || {
            SigSet::all().thread_set_mask().expect("blocked");
            Command::new("bash")
                .args(["-c", "exec \"$0\" \"$1\" 2>&-"])
                .arg(program)
                .arg(argument)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("bash")
        })
        .join()
        .expect("started");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut program = Self { child, stdin, stdout };
        program.send("INIT");
        let mut first = [0; 31];
        let count = program.stdout.get_mut().read(&mut first).expect("readable");
        if !argument_is_faulty(&program) {
            assert_eq!(&first[..count], b"INIT SUCCESS - -\n");
        }
        program
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("open"), "{line}").expect("the driver reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("readable");
        line.trim_end_matches('\n').to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")), signal).expect("sent");
    }

    fn exit(&mut self, within: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("waited") {
                return status;
            }
            assert!(start.elapsed() < within, "it has not ended within {within:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Resident memory in KiB, open files, threads.
    fn size(&self) -> (usize, usize, usize) {
        let folder = format!("/proc/{}", self.child.id());
        let status = std::fs::read_to_string(format!("{folder}/status")).expect("alive");
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect("there");
            line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
        };
        let files = std::fs::read_dir(format!("{folder}/fd")).expect("alive").count();
        (number("VmRSS:"), files, number("Threads:"))
    }
}

fn argument_is_faulty(program: &Program) -> bool {
    let line = std::fs::read(format!("/proc/{}/cmdline", program.child.id())).unwrap_or_default();
    line.windows(7).any(|part| part == b"--fault")
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn stdin_closed_means_status_255_within_a_second_whatever_runs() {
    let mut program = Program::start("15 -p");
    program.send("SAVE  1 h hang 60000");
    program.send("POLL  2 h echo");
    assert_eq!(program.line(), "POLL SUCCESS 2 ");
    program.stdin.take();
    assert_eq!(program.exit(Duration::from_secs(1)).code(), Some(255));
}

#[test]
fn both_pipes_closed_at_once_means_the_same() {
    let mut program = Program::start("15 -p");
    program.send("SAVE  1 h hang 60000");
    program.send("FINALIZE");
    program.stdin.take();
    let null = Command::new("true").stdout(Stdio::piped()).spawn().map(|mut child| {
        let _ = child.wait();
        child.stdout.take().expect("piped")
    });
    program.stdout = BufReader::new(null.expect("true"));
    assert_eq!(program.exit(Duration::from_secs(1)).code(), Some(255));
}

#[test]
fn finalize_means_status_0_after_what_runs() {
    let mut program = Program::start("15 -p");
    program.send("SAVE  1 h sleep 200");
    program.send("FINALIZE");
    assert_eq!(program.line(), "SAVE SUCCESS 1 slept");
    assert_eq!(program.exit(Duration::from_secs(1)).code(), Some(0));
    let mut idle = Program::start("15 -p");
    idle.send("FINALIZE");
    idle.stdin.take();
    assert_eq!(idle.exit(Duration::from_secs(1)).code(), Some(0));
}

#[test]
fn a_lost_stdout_ends_the_driver() {
    let mut program = Program::start("15 -p");
    let null = Command::new("true").stdout(Stdio::piped()).spawn().map(|mut child| {
        let _ = child.wait();
        child.stdout.take().expect("piped")
    });
    program.stdout = BufReader::new(null.expect("true"));
    program.send("SAVE  1 h echo");
    assert_eq!(program.exit(Duration::from_secs(2)).code(), Some(255));
}

#[test]
fn signals_that_oned_had_blocked_finish_what_runs() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let mut program = Program::start("15 -p");
        program.send("SAVE  1 h sleep 300");
        program.send("POLL  2 h echo");
        assert_eq!(program.line(), "POLL SUCCESS 2 ");
        program.signal(signal);
        std::thread::sleep(Duration::from_millis(50));
        program.send("SAVE  3 h echo");
        assert_eq!(program.line(), format!("SAVE FAILURE 3 the driver is ending ({signal})"));
        assert_eq!(program.line(), "SAVE SUCCESS 1 slept");
        assert_eq!(program.exit(Duration::from_secs(1)).code(), Some(0));
    }
}

#[test]
fn a_faulty_driver_stays_and_refuses_until_it_is_closed() {
    let mut program = Program::start("15 --fault");
    program.send("DEPLOY  1 h echo");
    assert_eq!(program.line(), "DEPLOY FAILURE 1 this driver can not serve");
    program.stdin.take();
    assert_eq!(program.exit(Duration::from_secs(1)).code(), Some(255));
}

#[test]
fn ten_thousand_requests_leave_memory_files_and_threads_flat() {
    let mut program = Program::start("15 -p");
    let round = |program: &mut Program, from: usize, to: usize| {
        for vm in from..to {
            program.send(&format!("SAVE  {vm} h{} echo {}", vm % 5, "x".repeat(2000)));
            assert!(program.line().starts_with("SAVE SUCCESS "));
        }
    };
    round(&mut program, 0, 1000);
    let (memory, files, threads) = program.size();
    round(&mut program, 1000, 11_000);
    let after = program.size();
    assert_eq!((after.1, after.2), (files, threads));
    assert!(after.0 < memory + 2048, "{memory} KiB before, {} KiB after", after.0);
}
