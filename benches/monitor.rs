//! What monitoring costs and how fast it is: a parse of statistics; on the test bed (node2) the time from libvirt's
//! event to the message at the receiver, and processor time, processes and memory with 50 paused guests.
#![allow(clippy::disallowed_methods, clippy::print_stdout)] // a bench starts programs and prints

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kvmad::node::monitor::domstats;
use kvmad::node::monitor::message::{Kind, Message};

/// The host of the test bed.
const HOST: &str = "node2";
/// Ids of the guests.
const FIRST: u32 = 5400;
const HOST_ID: &str = "5400";
const GUESTS: u32 = 50;
const KILLS: u32 = 20;
const MEASURED: Duration = Duration::from_secs(180);

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == "--inside") {
        inside(Path::new(&words[at + 1]));
        return;
    }
    parse();
    let stage = std::env::var("KVMAD_STAGE").unwrap_or_else(|_| "target/stage".to_owned());
    let remotes = Path::new(&stage).join("var/remotes");
    let on = bed("TB", "/srv/kvmad-testbed").join("on");
    if !on.exists() || !remotes.is_dir() {
        println!("the test bed or the stage is not there: make stage, tests/testbed/up");
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let folder = bed("SHARED", "/srv/shared").join(format!("kvmad-bench-monitor-{}", std::process::id()));
    let (inside, one) = (folder.join("bench"), folder.join("one"));
    fs::create_dir_all(&folder).expect("a shared folder");
    run(Command::new("cp").arg("-a").arg(&remotes).arg(&one));
    fs::copy(program, &inside).expect("copied");
    run(Command::new("chmod").args(["-R", "a+rX"]).arg(&folder));
    let done = Command::new(&on).arg(HOST).arg(&inside).arg("--inside").arg(&one).status();
    let _ = fs::remove_dir_all(&folder);
    assert!(done.is_ok_and(|status| status.success()), "the part on {HOST} failed");
}

/// A folder of the test bed, as tests/testbed/lib.sh names it; of several the first.
fn bed(name: &str, standard: &str) -> PathBuf {
    let told = std::env::var(name).unwrap_or_default();
    PathBuf::from(told.split_whitespace().next().unwrap_or(standard))
}

fn run(command: &mut Command) {
    let status = command.status().expect("started");
    assert!(status.success(), "{command:?}");
}

/// Statistics of 1,000 domains, as virsh prints them.
fn parse() {
    let mut text = String::new();
    for vm in 0..1000 {
        text.push_str(&format!("Domain: 'one-{vm}'\n  state.state=1\n  state.reason=1\n  net.count=2\n"));
        for nic in 0..2 {
            for key in
                ["rx.bytes", "rx.pkts", "rx.errs", "rx.drop", "tx.bytes", "tx.pkts", "tx.errs", "tx.drop"]
            {
                text.push_str(&format!("  net.{nic}.{key}=123456789\n"));
            }
        }
        text.push_str("  block.count=3\n");
        for disk in 0..3 {
            for key in [
                "rd.reqs",
                "rd.bytes",
                "rd.times",
                "wr.reqs",
                "wr.bytes",
                "wr.times",
                "fl.reqs",
                "allocation",
                "capacity",
            ] {
                text.push_str(&format!("  block.{disk}.{key}=123456789\n"));
            }
        }
        text.push('\n');
    }
    let best = (0..20)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(domstats::parse(&text).len(), 1000);
            began.elapsed()
        })
        .min();
    println!(
        "domstats of 1,000 domains ({} KiB) parsed in {best:.1?} (goal 20 ms)",
        text.len() / 1024,
        best = best.unwrap_or_default()
    );
}

fn as_oneadmin(words: &[&str]) -> Command {
    let mut command = Command::new("sudo");
    command.args(["-u", "oneadmin"]).args(words).env("LC_ALL", "C");
    command
}

fn virsh(words: &[&str]) -> bool {
    let mut all = vec!["virsh", "-q", "-c", "qemu:///system"];
    all.extend(words);
    as_oneadmin(&all)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn create(vm: u32) {
    let xml = format!(
        "<domain type='qemu'><name>one-{vm}</name><memory unit='KiB'>32768</memory><vcpu>1</vcpu><os><type arch='x86_64'>hvm</type></os><devices><emulator>/usr/bin/qemu-system-x86_64</emulator><serial type='pty'/></devices></domain>"
    );
    let path = format!("/tmp/kvmad-bench-{vm}.xml");
    fs::write(&path, xml).expect("written");
    assert!(virsh(&["create", "--paused", &path]), "one-{vm} can't be created");
    let _ = fs::remove_file(path);
}

/// Inside the host; `one` are the remotes. Guests and agent end with this, also by a failure.
fn inside(one: &Path) {
    let (port, messages) = receiver();
    // Without PROBES_PERIOD: the default periods.
    let config = format!(
        "<MONITOR_CONFIGURATION><NETWORK><MONITOR_ADDRESS>127.0.0.1</MONITOR_ADDRESS><PORT>{port}</PORT></NETWORK><HOST_ID>{HOST_ID}</HOST_ID></MONITOR_CONFIGURATION>"
    );
    let monitored = Monitored { one, config };
    (0..GUESTS).for_each(|n| create(FIRST + n));
    let began = Instant::now();
    client(one, "run_monitord_client", &monitored.config);
    println!("START with {GUESTS} guests: {:.1} s", began.elapsed().as_secs_f64());
    cost();
    latency(&messages);
}

/// A host that is monitored while this lives.
struct Monitored<'a> {
    one: &'a Path,
    config: String,
}

impl Drop for Monitored<'_> {
    fn drop(&mut self) {
        client(self.one, "stop_monitord_client", &self.config);
        for n in 0..GUESTS {
            virsh(&["destroy", &format!("one-{}", FIRST + n)]);
        }
        for kind in ["lock", "state", "config", "socket"] {
            let _ = fs::remove_file(format!("/var/tmp/one_db/kvmad/host-{HOST_ID}.{kind}"));
        }
    }
}

fn client(one: &Path, script: &str, config: &str) {
    let path = one.join("im").join(script).display().to_string();
    let mut child = as_oneadmin(&[&path, "kvm", HOST_ID, HOST])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    child.stdin.take().expect("a pipe").write_all(config.as_bytes()).expect("written");
    assert!(child.wait().expect("ended").success(), "{script}");
}

/// Messages with the time of their arrival in seconds.
fn receiver() -> (u16, Receiver<(f64, Message)>) {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("bound").port();
    let udp = UdpSocket::bind(("127.0.0.1", port)).expect("the same port");
    let (tell, told) = channel();
    std::thread::spawn(move || while udp.recv(&mut [0; 65536]).is_ok() {});
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            let mut all = Vec::new();
            let read = stream.read_to_end(&mut all).is_ok();
            if let (true, Ok(message)) = (read, Message::decode(&all)) {
                let _ = tell.send((seconds(), message));
            }
        }
    });
    (port, told)
}

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |passed| passed.as_secs_f64())
}

/// The process whose words are wanted.
fn find(wanted: &dyn Fn(&str) -> bool) -> Option<u32> {
    let all = fs::read_dir("/proc").expect("listed").flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        wanted(&String::from_utf8_lossy(&words).replace('\0', " "))
    })
}

/// The agent and its child, by their words.
fn processes() -> (u32, u32) {
    let agent =
        find(&|words| words.contains("monitor agent") && words.contains(&format!("--host-id {HOST_ID} ")));
    let agent = agent.expect("the agent");
    let parent = |pid: &u32| stat(*pid).get(1).and_then(|word| word.parse().ok()) == Some(agent);
    let all = fs::read_dir("/proc").expect("listed").flatten();
    let child = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(parent);
    (agent, child.expect("virsh event"))
}

/// Columns of /proc/PID/stat from the state on.
fn stat(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').map(str::to_owned).collect()
}

/// Own time and that of children that have ended, in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    stat(pid).iter().skip(11).take(4).flat_map(|word| word.parse::<u64>()).sum()
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Children of all its threads.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    texts.flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>()).collect()
}

fn cost() {
    std::thread::sleep(Duration::from_secs(5));
    let (agent, child) = processes();
    let calls = |pid: u32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let before = ticks(agent) + ticks(child);
    let began = Instant::now();
    let mut started = std::collections::BTreeSet::new();
    while began.elapsed() < MEASURED {
        // Children live for tens of milliseconds; each is seen by looking more often than that.
        started.extend(children(agent).into_iter().filter(|pid| *pid != child));
        std::thread::sleep(Duration::from_millis(5));
    }
    let used = ticks(agent) + ticks(child) - before;
    let minutes = MEASURED.as_secs_f64() / 60.0;
    println!("{GUESTS} paused guests, default periods, {} s:", MEASURED.as_secs());
    println!(
        "  processor time of the agent and its children: {:.2} % of a core (goal 1)",
        used as f64 / MEASURED.as_secs_f64()
    );
    println!("  processes started: {:.1} a minute (goal 10)", started.len() as f64 / minutes);
    let rss = field(&format!("/proc/{agent}/status"), "VmRSS:");
    let pss = |pid: u32| field(&format!("/proc/{pid}/smaps_rollup"), "Pss:");
    println!(
        "  memory: agent {:.1} MB resident (goal 12), with its child {:.1} MB PSS (goal 20); {} thread",
        rss as f64 / 1024.0,
        (pss(agent) + pss(child)) as f64 / 1024.0,
        calls(agent)
    );
}

/// Kills one QEMU after another; the event's time is told by a `virsh event` of our own.
fn latency(messages: &Receiver<(f64, Message)>) {
    let (mut watcher, events) = independent_events();
    std::thread::sleep(Duration::from_secs(2));
    let mut times = Vec::new();
    for vm in FIRST..FIRST + KILLS {
        let emulator = find(&|words| words.contains(&format!("guest=one-{vm},"))).expect("its emulator");
        run(Command::new("kill").args(["-9", &emulator.to_string()]));
        let mine = format!("ID=\"{vm}\"");
        let arrival = loop {
            let Ok((at, message)) = messages.recv_timeout(Duration::from_secs(60)) else { break None };
            if message.kind == Kind::State
                && message.text.contains(&mine)
                && message.text.contains("POWEROFF")
            {
                break Some(at);
            }
        };
        let happened = loop {
            // Others on the host may have events too.
            match events.recv_timeout(Duration::from_secs(10)) {
                Ok((its, at)) if its == vm => break Some(at),
                Ok(_) => {}
                Err(_) => break None,
            }
        };
        match (arrival, happened) {
            (Some(arrival), Some(happened)) => times.push(((arrival - happened) * 1000.0).max(0.0)),
            other => println!("  one-{vm}: {other:?}"),
        }
    }
    let _ = watcher.kill();
    let _ = watcher.wait();
    times.sort_by(f64::total_cmp);
    if let Some(median) = times.get(times.len() / 2) {
        println!(
            "event to message, {} kills: median {median:.0} ms (goal 300), longest {:.0} ms",
            times.len(),
            times[times.len() - 1]
        );
    }
}

/// Times of `Stopped Failed` by VM, as libvirt's own client stamps them.
fn independent_events() -> (Child, Receiver<(u32, f64)>) {
    let mut child = as_oneadmin(&[
        "virsh",
        "-q",
        "-c",
        "qemu:///system",
        "event",
        "--event",
        "lifecycle",
        "--loop",
        "--timestamp",
    ])
    .env("TZ", "UTC")
    .stdout(Stdio::piped())
    .spawn()
    .expect("started");
    let (tell, told) = channel();
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok).filter(|line| line.contains("Stopped Failed")) {
            // 2026-11-30 14:27:50.166+0000: event 'lifecycle' for domain 'one-5001': Stopped Failed
            let vm = line
                .split("'one-")
                .nth(1)
                .and_then(|rest| rest.split('\'').next())
                .and_then(|n| n.parse().ok());
            let clock = line
                .get(11..23)
                .map(|clock| clock.split(':').flat_map(str::parse::<f64>).collect::<Vec<f64>>());
            if let (Some(vm), Some([hours, minutes, rest])) = (vm, clock.as_deref()) {
                let day = (seconds() / 86_400.0).floor() * 86_400.0;
                let _ = tell.send((vm, day + hours * 3600.0 + minutes * 60.0 + rest));
            }
        }
    });
    (child, told)
}
