//! `docs/settings.md` and `etc/kvmad.conf`, made from the table of settings.

use super::table::{SECTIONS, Setting, TABLE};

const INTRODUCTION: &str = "\
# Settings

kvmad reads `/etc/one/kvmad.conf` (`$ONE_LOCATION/etc/kvmad.conf`), an ini file: sections, `key = value`, comments
after `#` or `;` at the start of a line. Quotes and backslashes have no special meaning. The file may be missing.

An environment variable `KVMAD_SECTION_KEY` (`KVMAD_HOST_IDLE=5m`) beats the file; an option of a program beats
both. A value that can't be read keeps a program from starting, with the file, line and key in the message; an
unknown key is told in the log and ignored.

Times are written `250ms`, `10s`, `5m`, `1h`, a bare number is seconds. Sizes are written `4 KiB`, `8 MiB`, a bare
number is bytes.

This page is made from the table in `src/settings/table.rs`.
";

/// The text of `docs/settings.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    for (section, about) in SECTIONS {
        text.push_str(&format!("\n## [{section}]\n\n{}\n\n", one_line(about)));
        text.push_str("| key | default | value | meaning |\n|---|---|---|---|\n");
        for setting in of(section) {
            let default = if setting.default.is_empty() {
                "nothing".to_owned()
            } else {
                format!("`{}`", setting.default)
            };
            let doc = one_line(setting.doc);
            text.push_str(&format!("| `{}` | {default} | {} | {doc} |\n", setting.key, setting.form));
        }
    }
    text
}

/// The text of `etc/kvmad.conf`: every setting with its default, commented out.
#[must_use]
pub fn config_file() -> String {
    let mut text = "\
# Settings of kvmad. Everything is optional: what stands here, commented out, is the default.
# An environment variable KVMAD_SECTION_KEY beats this file. See docs/settings.md.
"
    .to_owned();
    for (section, about) in SECTIONS {
        text.push_str(&format!("\n# {}\n[{section}]\n", one_line(about)));
        for setting in of(section) {
            text.push('\n');
            for line in setting.doc.lines() {
                text.push_str(&format!("# {}\n", line.trim()));
            }
            text.push_str(&format!("# Value: {}\n", setting.form));
            text.push_str(format!("#{} = {}", setting.key, setting.default).trim_end());
            text.push('\n');
        }
    }
    text
}

/// The manual page kvmad.conf(5), in roff.
#[must_use]
pub fn man_page() -> String {
    let introduction: Vec<&str> = INTRODUCTION.split("\n\n").skip(1).collect();
    let mut text = concat!(
        ".TH kvmad.conf 5 \"\" \"kvmad ",
        env!("CARGO_PKG_VERSION"),
        "\" \"KVM driver layer for OpenNebula\"\n.SH NAME\nkvmad.conf \\- settings of kvmad\n.SH DESCRIPTION\n"
    )
    .to_owned();
    // The last paragraph tells where the Markdown page comes from.
    for paragraph in &introduction[..introduction.len() - 1] {
        text.push_str(&format!(".PP\n{}\n", roff(paragraph)));
    }
    for (section, about) in SECTIONS {
        text.push_str(&format!(".SH [{section}]\n{}\n", roff(about)));
        for setting in of(section) {
            let (doc, form) = (roff(setting.doc), roff(setting.form));
            let default = if setting.default.is_empty() { "nothing" } else { setting.default };
            text.push_str(&format!(".TP\n\\fB{}\\fR (default: {})\n", roff(setting.key), roff(default)));
            text.push_str(&format!("{doc}\n.br\nValue: {form}\n"));
        }
    }
    text
}

/// One line for roff: nothing in it is taken for a request.
fn roff(text: &str) -> String {
    let line = one_line(&text.replace('`', "")).replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

fn of(section: &str) -> impl Iterator<Item = &'static Setting> {
    TABLE.iter().filter(move |setting| setting.section == section)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    /// Compares with the file in the repository; with `KVMAD_WRITE_DOCS=1` writes it instead.
    fn fresh(path: &str, text: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if std::env::var_os("KVMAD_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, text).expect("written");
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == text,
            "{} is not fresh: KVMAD_WRITE_DOCS=1 cargo nextest run settings::docs",
            path.display()
        );
    }

    #[test]
    fn the_page_in_the_repository_is_fresh() {
        fresh("docs/settings.md", &markdown());
    }

    #[test]
    fn the_file_in_the_repository_is_fresh() {
        fresh("etc/kvmad.conf", &config_file());
    }

    #[test]
    fn the_manual_page_has_every_setting_and_no_stray_request() {
        let page = man_page();
        for setting in TABLE {
            assert!(
                page.contains(&format!("\\fB{}\\fR", setting.key.replace('-', "\\-"))),
                "{}",
                setting.key
            );
        }
        let requests = [".TH ", ".SH ", ".PP", ".TP", ".br"];
        for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
            assert!(requests.iter().any(|request| line.starts_with(request)), "{line}");
        }
        assert_eq!(roff(".x a`b`\\-"), "\\&.x ab\\e\\-");
    }

    #[test]
    fn the_file_with_every_comment_removed_gives_the_defaults() {
        let keys: Vec<_> = TABLE.iter().map(|setting| setting.key).collect();
        let bare = |line: &str| keys.iter().any(|key| line.starts_with(&format!("#{key} =")));
        let text: String = config_file()
            .lines()
            .map(|line| format!("{}\n", if bare(line) { &line[1..] } else { line }))
            .collect();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("kvmad.conf");
        std::fs::write(&file, &text).expect("written");
        let (settings, notices) = Settings::read(&file, []).expect("good");
        assert_eq!(settings, Settings::default());
        assert!(notices.is_empty(), "{notices:?}");
        assert_eq!(
            text.lines().filter(|line| line.contains(" =") && !line.starts_with('#')).count(),
            TABLE.len()
        );
    }

    #[test]
    fn names_of_variables_are_unambiguous() {
        let mut names: Vec<_> = TABLE.iter().map(Setting::variable).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }
}
