//! Whether a domain can go back to a snapshot without meeting other data than those of its time.

use std::collections::BTreeMap;

use super::Failure;
use super::device::source;
use crate::template::xml::Element;

/// Compares `snapshot`, as `virsh snapshot-dumpxml` prints it, with the `running` domain. Gives notes on what a
/// revert changes besides: devices that came or went since.
///
/// # Errors
/// [`Failure::Finding`] when a disk of that time is not there any more, or its data are kept in another file now
/// (a disk snapshot was made since): the guest would write where the core does not look for its data, or into
/// what belongs to another VM now.
pub fn fits(snapshot: &Element, running: &Element) -> Result<Vec<String>, Failure> {
    let Some(then) = snapshot.child("domain") else {
        return Err(Failure::Input("the snapshot holds no domain".to_owned()));
    };
    let (then_disks, now_disks) = (disks(then), disks(running));
    let mut reasons = Vec::new();
    for (target, place) in &then_disks {
        match now_disks.get(target) {
            None => reasons.push(format!("disk {target} of that time, {place}, is not attached any more")),
            Some(now) if now != place => {
                reasons.push(format!("disk {target} was kept in {place} then and is in {now} now"));
            }
            Some(_) => {}
        }
    }
    if !reasons.is_empty() {
        return Err(Failure::Finding(reasons.join("; ")));
    }
    let mut notes = Vec::new();
    let mut differ = |kind: &str, then: Vec<&String>, now: Vec<&String>| {
        notes.extend(
            now.iter()
                .filter(|name| !then.contains(name))
                .map(|name| format!("{kind} {name} was attached since and goes")),
        );
        notes.extend(
            then.iter()
                .filter(|name| !now.contains(name))
                .map(|name| format!("{kind} {name} was detached since and comes back")),
        );
    };
    differ("disk", then_disks.keys().collect(), now_disks.keys().collect());
    let (then, now) = (macs(then), macs(running));
    differ("interface", then.iter().collect(), now.iter().collect());
    Ok(notes)
}

/// Target and place of the data of each disk, media left out.
fn disks(domain: &Element) -> BTreeMap<String, String> {
    let all = domain.children("devices").flat_map(|devices| devices.children("disk"));
    all.filter(|disk| disk.attribute("device").unwrap_or("disk") == "disk")
        .filter_map(|disk| {
            let target = disk.child("target")?.attribute("dev")?.to_owned();
            Some((target, source(disk).unwrap_or_default()))
        })
        .collect()
}

fn macs(domain: &Element) -> Vec<String> {
    let all = domain.children("devices").flat_map(|devices| devices.children("interface"));
    all.filter_map(|nic| nic.child("mac")?.attribute("address").map(str::to_ascii_lowercase)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::xml::Document;

    fn domain(devices: &str) -> String {
        format!("<domain><devices>{devices}</devices></domain>")
    }

    fn disk(target: &str, file: &str) -> String {
        format!("<disk type='file' device='disk'><source file='{file}'/><target dev='{target}'/></disk>")
    }

    fn check(then: &str, now: &str) -> Result<Vec<String>, Failure> {
        let then = format!("<domainsnapshot>{}</domainsnapshot>", domain(then));
        let (then, now) = (Document::parse(then).expect("XML"), Document::parse(domain(now)).expect("XML"));
        fits(then.root(), now.root())
    }

    #[test]
    fn the_same_disks_fit_whatever_is_in_the_drive() {
        let drive = |file: &str| {
            format!("<disk type='file' device='cdrom'><source file='{file}'/><target dev='hda'/></disk>")
        };
        let then = [disk("vda", "/d//0"), drive("/a")].concat();
        assert!(check(&then, &[disk("vda", "/d/0"), drive("/b")].concat()).expect("it fits").is_empty());
    }

    #[test]
    fn another_layer_of_a_disk_does_not_fit() {
        let reason =
            check(&disk("vda", "/d/disk.0.snap/0"), &disk("vda", "/d/disk.0.snap/1")).expect_err("refused");
        assert!(reason.to_string().contains("/d/disk.0.snap/0"), "{reason}");
    }

    #[test]
    fn a_disk_that_went_does_not_fit() {
        let then = [disk("vda", "/d/0"), disk("vdb", "/d/1")].concat();
        let reason = check(&then, &disk("vda", "/d/0")).expect_err("refused");
        assert!(reason.to_string().contains("vdb"), "{reason}");
    }

    #[test]
    fn what_came_is_noted() {
        let nic = "<interface><mac address='02:00:00:00:00:01'/></interface>";
        let now = [disk("vda", "/d/0"), disk("vdb", "/d/1"), nic.to_owned()].concat();
        assert_eq!(check(&disk("vda", "/d/0"), &now).expect("it fits").len(), 2);
        assert_eq!(
            check(&[disk("vda", "/d/0"), nic.to_owned()].concat(), &disk("vda", "/d/0"))
                .expect("it fits")
                .len(),
            1
        );
    }

    #[test]
    fn a_snapshot_without_its_domain_is_none() {
        let (then, now) =
            (Document::parse("<domainsnapshot/>").expect("XML"), Document::parse("<domain/>").expect("XML"));
        assert!(matches!(fits(then.root(), now.root()), Err(Failure::Input(_))));
    }
}
