//! Defaults that differ between a device that is attached and the same one at deployment.

use super::finding::{Checked, line_of_kvmrc};
use super::shell::Variable;
use crate::conf::kvmrc::{at_deployment, find};
use crate::template::Template;
use crate::template::text::Gravity;

/// Compares the `DEFAULT_ATTACH_*` of a kvmrc with the defaults file, if that is known.
pub fn check(checked: &mut Checked, variables: &[Variable], defaults: Option<&Template>) {
    // One that nobody reads has no effect; it is found as unknown.
    let read = |variable: &&Variable| !variable.value.is_empty() && find(&variable.name).is_some();
    for variable in variables.iter().filter(read) {
        let Some((vector, member)) = at_deployment(&variable.name) else { continue };
        let place = line_of_kvmrc(variable.line);
        let key = variable.name.clone();
        let Some(defaults) = defaults else {
            let why = format!(
                "a device that is attached gets this instead of {vector}/{member} of vmm_exec_kvm.conf (give both files \
                 to have them compared)"
            );
            let mend = "unset it: then the same default counts for both";
            checked.find("attach-overrides", Gravity::Note, key, place.as_ref(), why, mend);
            continue;
        };
        let builtin = if (vector, member) == ("DISK", "CACHE") { "default" } else { "" };
        let deployed = defaults.vector(vector).and_then(|found| found.filled(member)).unwrap_or(builtin);
        if deployed == variable.value {
            continue;
        }
        let deployed = if deployed.is_empty() { "none".to_owned() } else { format!("{deployed:?}") };
        let why = format!(
            "a device that is attached gets {:?}, one that is there at deployment {deployed} ({vector}/{member} of \
             vmm_exec_kvm.conf)",
            variable.value
        );
        let mend = format!("unset {}: then {vector}/{member} counts for both", variable.name);
        checked.find("attach-differs", Gravity::Warning, key, place.as_ref(), why, mend);
    }
}
