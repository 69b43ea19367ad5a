//! Plans of recorded documents, carried out by a fake.

use std::path::Path;
use std::sync::Arc;

use kvmad::host::job::Job;
use kvmad::mad::actions::Answer;
use kvmad::vmm::execute::{Executor, Limits};
use kvmad::vmm::payload::Action;
use kvmad::vmm::plan::{self, Plan};
use kvmad::vmm::setup::Setup;
use kvmad::vmm::verb::Verb;

use super::corpus;
use super::recorder::{Canned, Fake, Logged};

/// A front-end with drivers `dummy` whose scripts exist, and the deployment file of the first document.
pub fn front_end() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("folder");
    let tm = dir.path().join("tm/dummy");
    let ds = dir.path().join("datastore/dummy");
    std::fs::create_dir_all(&tm).expect("tm");
    std::fs::create_dir_all(&ds).expect("datastore");
    for name in "context clone delete.dummy delete mkimage premigrate failmigrate postmigrate resize ln \
                 snap_create_live prebackup postbackup prebackup_live postbackup_live"
        .split_whitespace()
    {
        std::fs::write(tm.join(name), "").expect(name);
    }
    for name in ["backup", "backup_cancel"] {
        std::fs::write(ds.join(name), "").expect(name);
    }
    std::fs::write(dir.path().join("deployment"), "<domain/>").expect("deployment");
    dir
}

pub fn planned(number: usize, change: impl Fn(String) -> String) -> Plan {
    let recorded = corpus::document("vmm-7.4", number);
    let action = Action::from_xml(change(recorded.text)).expect(&recorded.name);
    let verb = Verb::from_wire(&recorded.verb).expect("verb");
    let mut setup = Setup::new("kvm");
    setup.live_snapshots.insert("dummy-dummy".to_owned());
    plan::plan(verb, &action, &setup).expect(&recorded.name)
}

pub fn deploy(dir: &Path) -> Plan {
    let file = dir.join("deployment").display().to_string();
    planned(1, |text| text.replace("/var/lib/one/vms/0/deployment.0", &file))
}

pub struct Ran {
    pub answer: Answer,
    pub lines: Vec<String>,
    pub log: Logged,
    pub fake: Arc<Fake>,
}

pub async fn run_in(dir: &Path, plan: &Plan, fake: Arc<Fake>, limits: Limits) -> Ran {
    let log = Logged::default();
    let executor = Executor::new(fake.clone(), dir.to_owned(), limits);
    let answer = executor.run(plan, &log.context()).await;
    Ran { answer, lines: fake.lines(), log, fake }
}

pub async fn run(number: usize, decide: impl Fn(&str, &Job) -> Canned + Send + Sync + 'static) -> Ran {
    let dir = front_end();
    run_in(dir.path(), &planned(number, |text| text), Fake::new(decide), Limits::default()).await
}

pub async fn run_deploy(decide: impl Fn(&str, &Job) -> Canned + Send + Sync + 'static) -> Ran {
    let dir = front_end();
    run_in(dir.path(), &deploy(dir.path()), Fake::new(decide), Limits::default()).await
}

pub fn failure(ran: &Ran) -> &str {
    match &ran.answer {
        Answer::Failure(text) => text,
        Answer::Success(info) => panic!("SUCCESS {info}"),
    }
}

pub fn success(ran: &Ran) -> &str {
    match &ran.answer {
        Answer::Success(info) => info,
        Answer::Failure(text) => panic!("FAILURE {text}"),
    }
}

/// The scripts that ran, without their arguments.
pub fn scripts(ran: &Ran) -> Vec<String> {
    let short = |line: &String| {
        let words = if line.starts_with("~ ") { 3 } else { 2 };
        line.split(' ').take(words).collect::<Vec<_>>().join(" ")
    };
    ran.lines.iter().map(short).collect()
}
