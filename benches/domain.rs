//! Domains a second of processor time on one core, from the text of the action document to the text of the domain.
//!
//! The documents are those of the corpus that a running oned wrote (48 templates, two defaults files). The
//! defaults file is read once, as a driver does; `with the defaults file` reads it for each domain too.
#![allow(missing_docs, clippy::print_stdout)]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use kvmad::domain::{Inputs, Options, generate};
use kvmad::template::document::VmDocument;
use kvmad::template::text::{self, Rules};
use kvmad::template::xml::Document;
use kvmad::template::{Level, Template};

/// What the project set itself.
const GOAL: f64 = 5000.0;
/// How long each line is measured.
const TIME: Duration = Duration::from_secs(3);

struct Case {
    action: String,
    conf: String,
    defaults: Template,
}

fn defaults(conf: &str) -> Template {
    text::parse(conf, Level::Defaults, "vmm_exec_kvm.conf", Rules::DEFAULTS).template
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/domain/oned-7.4");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the corpus of the repository") {
        let path = entry.expect("a readable folder").path();
        let read = |name: &str| std::fs::read_to_string(path.join(name)).expect("a case of the corpus");
        let (action, conf) = (read("action.xml"), read("defaults.conf"));
        cases.push(Case { action, defaults: defaults(&conf), conf });
    }
    cases
}

fn domain(case: &Case, defaults: &Template, nothing: &Template, options: &Options) -> usize {
    let document = Document::parse(case.action.as_str()).expect("a document");
    let vm = VmDocument::read(&document, Some("action.xml")).expect("a VM");
    let inputs = Inputs { vm: &vm, defaults, host: nothing, cluster: nothing, options };
    generate(&inputs).map_or(0, |domain| domain.to_xml().len())
}

/// Processor time of this program, so that a busy machine does not count.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

fn measure(name: &str, cases: &[Case], mut one: impl FnMut(&Case)) {
    cases.iter().for_each(&mut one);
    let (start, used, mut count) = (Instant::now(), processor_time(), 0_u32);
    while start.elapsed() < TIME {
        cases.iter().for_each(&mut one);
        count += u32::try_from(cases.len()).unwrap_or(0);
    }
    let rate = f64::from(count) / (processor_time() - used).as_secs_f64();
    println!("{name:<28} {rate:>9.0} domains/s  (goal {GOAL:.0}, ×{:.1})", rate / GOAL);
}

fn main() {
    // `cargo bench` hands over --bench; `cargo test --benches` runs us without it: nothing to do then.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let (cases, nothing) = (cases(), Template::new());
    let options = Options { check_firmware: false, ..Options::default() };
    measure("document to domain", &cases, |case| {
        black_box(domain(case, &case.defaults, &nothing, &options));
    });
    measure("with the defaults file", &cases, |case| {
        black_box(domain(case, &defaults(&case.conf), &nothing, &options));
    });
}
