//! Making domains from short texts.

use std::path::{Path, PathBuf};

use kvmad::domain::{Domain, Inputs, Options, Refusal, Style, generate};
use kvmad::template::document::VmDocument;
use kvmad::template::text::{self, Rules};
use kvmad::template::xml::Document;
use kvmad::template::{Level, Template};

/// The folder with the cases.
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/domain")
}

/// Every case folder, in order.
pub fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = ["oned-7.4", "generated"]
        .iter()
        .flat_map(|part| std::fs::read_dir(corpus().join(part)).expect("the corpus"))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    cases.sort();
    cases
}

/// What a domain is made from, owned.
#[derive(Clone)]
pub struct Case {
    pub vm: VmDocument,
    pub defaults: Template,
    pub host: Template,
    pub cluster: Template,
    pub options: Options,
}

impl Case {
    /// The case in `folder`.
    pub fn read(folder: &Path) -> Self {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        Self::of(&text("action.xml"), &text("defaults.conf"), &text("host.tmpl"), &text("cluster.tmpl"))
    }

    /// A case from its texts.
    pub fn of(action: &str, defaults: &str, host: &str, cluster: &str) -> Self {
        let document = Document::parse(action).expect("a document");
        let parse = |text: &str, level, file, rules| text::parse(text, level, file, rules).template;
        // Values of the corpus are those that oned has stored: nothing is trimmed any more.
        let stored = Rules { last_replaces: false, trims: false };
        Self {
            vm: VmDocument::read(&document, Some("action.xml")).expect("a VM"),
            defaults: parse(defaults, Level::Defaults, "defaults.conf", Rules::DEFAULTS),
            host: parse(host, Level::Host, "host.tmpl", stored),
            cluster: parse(cluster, Level::Cluster, "cluster.tmpl", stored),
            options: Options { style: Style::AsOpenNebula, ..Options::default() },
        }
    }

    pub fn with(mut self, style: Style) -> Self {
        self.options.style = style;
        self
    }

    pub fn generate(&self) -> Result<Domain, Refusal> {
        generate(&Inputs {
            vm: &self.vm,
            defaults: &self.defaults,
            host: &self.host,
            cluster: &self.cluster,
            options: &self.options,
        })
    }
}
