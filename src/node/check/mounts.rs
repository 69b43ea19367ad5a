//! Whether programs may run below a folder.

use std::path::Path;

use super::{Finding, Group, Verdict};

const ID: &str = "noexec";

/// Judges by `mountinfo`, the text of /proc/self/mountinfo.
#[must_use]
pub fn noexec(mountinfo: &str, folder: &str) -> Finding {
    let Some((point, options)) = mount_of(mountinfo, folder) else {
        return Finding::unchecked(ID, Group::Opennebula, "/proc/self/mountinfo tells no mount", "");
    };
    if !options.split(',').any(|option| option == "noexec") {
        return Finding::ok(
            ID,
            Group::Opennebula,
            format!("{folder} lies on {point}, which lets programs run"),
        );
    }
    let evidence = format!("{folder} lies on {point}, which is mounted noexec");
    let mend = format!(
        "mount -o remount,exec {} and take noexec out of its line in /etc/fstab; or SCRIPTS_REMOTE_DIR in oned.conf to a \
         folder elsewhere",
        shell_words::quote(&point)
    );
    Finding::bad(ID, Group::Opennebula, Verdict::Failure, evidence, mend)
}

/// Mount point and options of the last mount that holds `folder`. A line is `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS ...`.
fn mount_of(mountinfo: &str, folder: &str) -> Option<(String, String)> {
    let mut best: Option<(String, String)> = None;
    for line in mountinfo.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (Some(point), Some(options)) = (words.get(4), words.get(5)) else { continue };
        let point = unescaped(point);
        let longer = best.as_ref().is_none_or(|(other, _)| point.len() >= other.len());
        if Path::new(folder).starts_with(&point) && longer {
            best = Some((point, (*options).to_owned()));
        }
    }
    best
}

/// The kernel writes blanks, tabs, newlines and backslashes as `\ooo`.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "20 1 0:1 / / rw,relatime - ext4 /dev/a rw\n21 20 0:2 / /var rw,nosuid - ext4 /dev/b rw\n\
                         22 21 0:3 / /var/tmp rw,nosuid,noexec - tmpfs t rw\n23 20 0:4 / /with\\040blank rw,noexec - tmpfs t rw\n";

    #[test]
    fn the_mount_that_holds_the_folder_counts() {
        let found = noexec(TABLE, "/var/tmp/one");
        assert_eq!(found.verdict, Verdict::Failure);
        assert!(
            found.evidence.contains("/var/tmp, which is mounted noexec")
                && found.mend.contains("SCRIPTS_REMOTE_DIR")
        );
        assert_eq!(noexec(TABLE, "/var/tmpfiles/one").verdict, Verdict::Ok);
        assert_eq!(noexec(TABLE, "/var/lib/one/remotes").verdict, Verdict::Ok);
        assert_eq!(noexec(TABLE, "/with blank/one").verdict, Verdict::Failure);
        let over = format!("{TABLE}24 22 0:5 / /var/tmp rw - tmpfs t rw\n");
        assert_eq!(noexec(&over, "/var/tmp/one").verdict, Verdict::Ok, "the last mount over a point counts");
        assert_eq!(noexec("", "/var/tmp/one").verdict, Verdict::CouldNotCheck);
    }
}
