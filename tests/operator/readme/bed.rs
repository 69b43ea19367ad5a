//! The commands that need hosts, on those of the test bed.

use std::path::Path;
use std::process::Command;

use super::How::Bed;
use super::TABLE;
use super::scene::bare;
use crate::harness::bed;
use crate::harness::front_end::FrontEnd;
use crate::harness::vm::Vm;

#[test]
#[ignore = "needs the test bed: make test"]
fn the_commands_for_hosts_do_what_the_page_says() {
    let _bed = bed::shared();
    let front = FrontEnd::staged();
    // Its domain goes away with it.
    let vm = Vm::new(&front, 8200, "node1").without_guest();
    front.put("042_DEPLOY.xml", 0o644, &vm.deploy().xml());
    for (command, how) in TABLE {
        let Bed(expected) = how else { continue };
        let words =
            bare(command).replacen("kvmad", &front.folder().join("bin/kvmad").display().to_string(), 1);
        let mut run = bed::as_oneadmin(bed::FRONT_END);
        run.arg("env").args(front.environment());
        run.args(["bash", "-c", &format!("cd {} && {words}", front.folder().display())]);
        let output = bed::run(run);
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(*expected), "{command}: {said}");
        assert!(said.contains("node1"), "{command}: {said}");
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn the_demo_runs() {
    let _bed = bed::shared();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/demo");
    let output = bed::run(Command::new(demo));
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("DEPLOY SUCCESS"), "{said}");
}
