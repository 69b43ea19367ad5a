//! A front-end whose remotes are set up for migrations, and its driver.

use crate::harness::bed;
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;

/// Ours, with migrations over the agent, as OpenNebula ships VM_MAD.
pub const DRIVER: &str = "-t 15 -r 0 kvm -p";

/// In the place of OpenNebula's transfer manager on shared storage: nothing is to be done.
const KEPT: &str = "#!/bin/bash\ncat >/dev/null\n";
/// In the place of its `ssh` driver: before, the folder on the target is made anew; after, the source's is removed.
/// Arguments: SOURCE TARGET FOLDER VMID DATASTORE.
const PREMIGRATE: &str = "#!/bin/bash\nset -euo pipefail\ncat >/dev/null\nssh \"$2\" rm -rf -- \"$3\"\nssh \"$2\" mkdir -p -- \"$3\"\n";
const POSTMIGRATE: &str = "#!/bin/bash\nset -euo pipefail\ncat >/dev/null\nssh \"$1\" rm -rf -- \"$3\"\n";

/// A front-end with these variables at the end of kvmrc.
pub fn front(kvmrc: &[(&str, &str)]) -> FrontEnd {
    let front = FrontEnd::staged();
    let file = "var/remotes/etc/vmm/kvm/kvmrc";
    let mut text = std::fs::read_to_string(front.folder().join(file)).expect("the staged kvmrc");
    for (name, value) in kvmrc {
        text.push_str(&format!("export {name}='{value}'\n"));
    }
    front.put(file, 0o644, &text);
    for verb in ["premigrate", "postmigrate", "failmigrate"] {
        front.put(&format!("var/remotes/tm/kept/{verb}"), 0o755, KEPT);
    }
    front.put("var/remotes/tm/moved/premigrate", 0o755, PREMIGRATE);
    front.put("var/remotes/tm/moved/postmigrate", 0o755, POSTMIGRATE);
    front.put("var/remotes/tm/moved/failmigrate", 0o755, KEPT);
    front
}

/// A driver that is ready.
pub fn driver(front: &FrontEnd) -> Driver {
    Driver::ready(front, DRIVER)
}

/// Brings the front-end's remotes to both hosts, so that this takes no part in what follows.
pub fn synchronize(front: &FrontEnd) {
    let mut command = bed::as_oneadmin(bed::FRONT_END);
    command.arg("env").args(["--chdir=/", "-i"]).args(front.environment());
    command.arg(front.folder().join("bin/kvmad")).arg("sync").args(bed::NODES);
    let output = bed::run(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
