//! `docs/doctor.md`: an introduction by hand, and the table of all checks.

use super::explain::all;
use crate::node::check::Group;

const BEGIN: &str = "<!-- checks: made from the tables in src/node/check and src/cli/doctor -->\n";
const END: &str = "<!-- end of checks -->\n";

const GROUPS: [(Group, &str); 4] = [
    (
        Group::Kvm,
        "What VMs of OpenNebula need. A failure here makes the host say `KVMAD_READY=NO` in its monitoring.",
    ),
    (Group::Opennebula, "What OpenNebula and its drivers need: users, permissions, ssh, the remotes."),
    (Group::Cloud, "What VMs from cloud images (`kvmad vm`) need on top."),
    (
        Group::Migration,
        "What migration needs. `pair-…` are made between every two hosts that are named; `vm-…` are those of `kvmad migrate-check`.",
    ),
];

fn tables() -> String {
    let mut text = String::new();
    let cell = |text: &str| text.replace('|', "\\|");
    for (group, about) in GROUPS {
        text.push_str(&format!(
            "\n### {}\n\n{about}\n\n| id | what | why | mend |\n|---|---|---|---|\n",
            group.word()
        ));
        for check in all().filter(|check| check.group == group) {
            text.push_str(&format!(
                "| `{}` | {} | {} | {} |\n",
                check.id,
                cell(check.what),
                cell(check.why),
                cell(check.mend)
            ));
        }
    }
    text.push('\n');
    text
}

#[test]
fn the_page_in_the_repository_is_fresh() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/doctor.md");
    let page = std::fs::read_to_string(&path).expect("docs/doctor.md");
    let (head, rest) = page.split_once(BEGIN).expect("the mark before the tables");
    let (_, tail) = rest.split_once(END).expect("the mark behind the tables");
    let fresh = format!("{head}{BEGIN}{}{END}{tail}", tables());
    if std::env::var_os("KVMAD_WRITE_DOCS").is_some() {
        std::fs::write(&path, &fresh).expect("written");
        return;
    }
    assert!(page == fresh, "docs/doctor.md is not fresh: KVMAD_WRITE_DOCS=1 cargo nextest run doctor::docs");
}
