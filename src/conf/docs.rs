//! `docs/conf.md`, made from the tables.

use std::fmt::Write as _;

use super::findings::FINDINGS;
use super::key::{Key, Shipped};
use super::{kvmrc, vmm};

const HEAD: &str = "\
<!-- Made from src/conf by a test; change it there: KVMAD_WRITE_DOCS=1 cargo nextest run conf::docs -->
# vmm_exec_kvm.conf and kvmrc

Two files decide what a KVM guest gets that its template does not say.

* `vmm_exec_kvm.conf` on the front-end (`/etc/one/vmm_exec/`): defaults for whole domains. `oned` reads it when it starts.
* `kvmrc` on the hosts (`/var/tmp/one/etc/vmm/kvm/`, from `/var/lib/one/remotes/etc/vmm/kvm/` on the front-end):
  how the action scripts work. bash reads it before each action, so it may hold anything that bash understands.

`kvmad check-conf FILE...` finds mistakes in both. `kvmad explain VM --defaults FILE` shows what each value of a domain
comes from, `--diff OTHER` what a change would do to a VM.

## How vmm_exec_kvm.conf is read

* `NAME = \"value\"`, or `NAME = [ MEMBER = \"value\", ... ]`. Names in any case. Between attributes stands nothing, between
  members a comma, behind the last member none. `[` stands in the line of its `=`.
* The only escape in quotes is `\\\"`. A value in quotes may go over lines. A value without quotes ends at a blank,
  `=`, `#`, a comma, a bracket or the line end. Single quotes do not quote.
* When text follows a closing quote directly, the quotes become part of the value (`\"abc\";`, and `\"abc\"` in a file with
  CR LF line ends).
* `#` begins a comment, but not directly behind `=`, and not in a last line without line end.
* `]]>` may stand in a value only if the value goes on over its line.
* A name that stands twice: the last one counts, nothing is merged. A member that stands twice: the first one counts.
* Behind a syntax error everything is lost, what stands before it counts; `oned` only logs it.
* The attributes of the `VM_MAD` entry in `oned.conf` lie over this file: an `EMULATOR` there wins.

## Who comes first

Each key is looked up by itself: first in the levels that the table names, in that order, then in this file. An empty text counts
as said: `OS = [ KERNEL = \"\" ]` of a VM hides the KERNEL of this file. An empty yes/no or number hides nothing.
DISK and NIC are different: there an empty member of the VM's disk or interface falls back.
";

const TAIL: &str = "
`kvmad check-conf` also checks kvmad.conf, by what the drivers themselves read it with: `syntax`, `bad-value` and
`unknown-key` of the table come there, too ([settings.md](settings.md) has its keys).

Exit status: 0 nothing found, 1 an error or a warning (with `--strict` also a note), 2 a file can't be read or is no text, 3 nothing found,
but something could not be checked (markup without `virt-xml-validate`). kvmrc is evaluated by bash in an empty environment,
so what stands in it is run.
";

/// The page.
#[must_use]
pub fn markdown() -> String {
    let mut out = HEAD.to_owned();
    out.push_str("\n## Keys of vmm_exec_kvm.conf\n\n| key | takes | before it | shipped | what it does |\n");
    out.push_str("|---|---|---|---|---|\n");
    for key in vmm::KEYS {
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            key.path(),
            key.takes.words(),
            key.levels,
            shipped(key),
            key.text
        );
    }
    out.push_str(
        "\n## Variables of kvmrc\n\n| variable | takes | shipped | what it does |\n|---|---|---|---|\n",
    );
    for key in kvmrc::VARIABLES {
        let _ = writeln!(out, "| {} | {} | {} | {} |", key.name, key.takes.words(), shipped(key), key.text);
    }
    out.push_str("\n## What check-conf finds\n\n| id | what it means |\n|---|---|\n");
    for (id, text) in FINDINGS {
        let _ = writeln!(out, "| {id} | {text} |");
    }
    out.push_str(TAIL);
    out
}

fn shipped(key: &Key) -> String {
    match key.shipped {
        Shipped::Set(value) if value.contains('\n') => "set, see the file".to_owned(),
        Shipped::Set(value) => format!("`{value}`"),
        Shipped::Example(_) => "unset".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::shipped;
    use crate::conf::{kvmrc, vmm};
    use crate::template::Level;
    use crate::template::text::{Rules, parse};

    /// Compares a file of the repository with what the tables give; writes it when asked to.
    fn fresh(path: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if std::env::var_os("KVMAD_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
            std::fs::write(&path, text).expect("written");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "{} is not what src/conf gives; run KVMAD_WRITE_DOCS=1 cargo nextest run conf::docs",
            path.display()
        );
    }

    #[test]
    fn the_files_in_the_repository_are_those_of_the_tables() {
        fresh("docs/conf.md", &super::markdown());
        fresh("etc/vmm_exec/vmm_exec_kvm.conf", &shipped::vmm_exec_kvm_conf());
        fresh("remotes/etc/vmm/kvm/kvmrc", &shipped::kvmrc());
    }

    #[test]
    fn every_key_stands_once_and_its_shipped_value_is_one_that_it_takes() {
        for table in [vmm::KEYS, kvmrc::VARIABLES] {
            let mut seen = std::collections::HashSet::new();
            for key in table {
                assert!(seen.insert(key.path()), "{}", key.path());
                let (super::Shipped::Set(value) | super::Shipped::Example(value)) = key.shipped;
                assert_eq!(key.doubt(value), None, "{}", key.path());
                assert!(!key.text.contains('|'), "{}", key.path());
                assert!(super::super::why_unread(key.vector, key.name).is_none(), "{}", key.path());
            }
        }
    }

    /// Takes the comment mark from every line that holds a setting: `#` not followed by exactly one blank.
    fn switched_on(text: &str) -> String {
        let setting = |line: &str| {
            line.strip_prefix('#')
                .filter(|rest| !rest.starts_with(' ') || rest.starts_with("   "))
                .map(str::to_owned)
        };
        let head = text.find("\n\n").map_or(0, |end| end);
        let lines: Vec<_> =
            text[head..].lines().map(|line| setting(line).unwrap_or(line.to_owned())).collect();
        lines.join("\n") + "\n"
    }

    #[test]
    fn the_shipped_defaults_parse_as_they_are_and_with_every_example_switched_on() {
        let text = shipped::vmm_exec_kvm_conf();
        let as_it_is = parse(&text, Level::Defaults, "f", Rules::DEFAULTS);
        assert_eq!((as_it_is.error, as_it_is.notices), (None, vec![]));
        let os = as_it_is.template.vector("OS").expect("OS");
        assert_eq!(
            (os.get("ARCH"), os.get("MACHINE"), os.get("KERNEL")),
            (Some("x86_64"), Some("q35"), None)
        );
        let on = switched_on(&text);
        let all = parse(&on, Level::Defaults, "f", Rules::DEFAULTS);
        assert_eq!((all.error, all.notices), (None, vec![]), "{on}");
        for key in vmm::KEYS {
            let found = match key.vector {
                "" => all.template.single(key.name).is_some(),
                vector => all.template.vector(vector).and_then(|v| v.get(key.name)).is_some(),
            };
            assert!(found, "{}", key.path());
        }
    }

    #[test]
    fn the_shipped_defaults_mean_what_those_of_opennebula_mean() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/domain/oned-7.4/01_minimal.stock");
        let stock = std::fs::read_to_string(folder.join("defaults.conf")).expect("the stock file");
        let stock = parse(&stock, Level::Defaults, "stock", Rules::DEFAULTS).template;
        let ours = parse(&shipped::vmm_exec_kvm_conf(), Level::Defaults, "ours", Rules::DEFAULTS).template;
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" />", "/>");
        let flat = |template: &crate::template::Template| {
            let mut all = Vec::new();
            for attribute in template.attributes() {
                match &attribute.value {
                    crate::template::Value::Single(value) => {
                        all.push((attribute.name.clone(), squeeze(value)))
                    }
                    crate::template::Value::Vector(members) => {
                        all.extend(
                            members
                                .iter()
                                .map(|m| (format!("{}/{}", attribute.name, m.name), m.value.clone())),
                        );
                    }
                }
            }
            all.sort();
            all
        };
        assert_eq!(flat(&ours), flat(&stock));
    }
}
