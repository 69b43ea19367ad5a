//! Reading what the commands are given: VMs as documents or templates, defaults, templates of hosts and clusters.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::conf::shipped;
use crate::settings::Paths;
use crate::template::document::{self, VmDocument};
use crate::template::normalise::{Normalised, Surroundings, normalise};
use crate::template::text::{Gravity, Notice, Parsed, Rules, parse_bytes};
use crate::template::xml::Document;
use crate::template::{Level, Template};

/// Most bytes of a VM document.
const DOCUMENT_LIMIT: u64 = 128 << 20;
/// Most bytes of a template in text form.
const TEXT_LIMIT: u64 = 16 << 20;

/// Why a file could not be read. The text is complete: it names the file, may hold a picture of the place.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// Why a file gave no VM.
#[derive(Debug, thiserror::Error)]
pub enum NoVm {
    /// {0}
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// OpenNebula would refuse it; the text is complete.
    #[error("{0}")]
    Refused(String),
}

/// A VM and how it came to be.
#[derive(Debug)]
pub struct Vm {
    /// The VM.
    pub document: VmDocument,
    /// What was assumed when it was made from a template; for people.
    pub notes: Vec<String>,
    /// What it was made from, when that was a template in text form.
    pub source: Option<Source>,
}

/// What a VM is made from.
#[derive(Debug)]
pub struct Source {
    template: Template,
    /// For UUID and MAC addresses, so that the same VM has the same ones.
    random: [u8; 16],
}

impl Source {
    /// The VM that `oned` would make of it; `machine` is what the defaults give as OS/MACHINE.
    ///
    /// # Errors
    /// Why it would refuse it.
    pub fn document(&self, machine: Option<&str>) -> Result<VmDocument, String> {
        self.normalised(machine).map(|made| made.vm)
    }

    fn normalised(&self, machine: Option<&str>) -> Result<Normalised, String> {
        let machine = machine.map(str::to_owned);
        let around = Surroundings { machine, random: self.random, ..Surroundings::default() };
        normalise(&self.template, &around)
            .map_err(|refused| format!("OpenNebula would refuse this VM: {refused}"))
    }
}

/// A text and what it says.
#[derive(Debug)]
pub struct Text {
    /// Its name for people.
    pub file: String,
    /// The text, broken bytes replaced.
    pub text: String,
    /// What it says.
    pub parsed: Parsed,
}

/// The bytes of `path`, `-` for stdin.
///
/// # Errors
/// When it can't be read, or is longer than `limit`.
pub fn bytes(path: &Path, limit: u64) -> Result<Vec<u8>, Unreadable> {
    let name = path.display();
    let fail = |error: io::Error| Unreadable(format!("{name} can't be read: {error}"));
    let mut bytes = Vec::new();
    let mut take = |reader: &mut dyn Read| reader.take(limit + 1).read_to_end(&mut bytes);
    if path == Path::new("-") {
        take(&mut io::stdin().lock()).map_err(fail)?;
    } else {
        take(&mut File::open(path).map_err(fail)?).map_err(fail)?;
    }
    if bytes.len() as u64 > limit {
        return Err(Unreadable(format!("{name} is longer than {} MiB", limit >> 20)));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(Unreadable(format!("{name} is encoded in UTF-16; save it as UTF-8")));
    }
    Ok(bytes)
}

/// Reads a template in text form.
///
/// # Errors
/// When the file can't be read. What is wrong in the text stands in [`Text::parsed`].
pub fn text(path: &Path, level: Level, rules: Rules) -> Result<Text, Unreadable> {
    let file = path.display().to_string();
    let bytes = bytes(path, TEXT_LIMIT)?;
    if is_binary(&bytes) {
        return Err(Unreadable(format!("{file} is no text but binary data")));
    }
    Ok(parsed(&bytes, file, level, rules))
}

/// Whether this can't be meant as text: of its beginning more than a tenth are control characters or no UTF-8. A few of
/// them in a text are told where they stand.
fn is_binary(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(8192)]);
    let odd = |c: char| c == '\u{fffd}' || c.is_control() && !c.is_ascii_whitespace();
    text.chars().filter(|c| odd(*c)).count() * 10 > text.chars().count()
}

fn parsed(bytes: &[u8], file: String, level: Level, rules: Rules) -> Text {
    let (text, parsed) = parse_bytes(bytes, level, &file, rules);
    Text { text: text.into_owned(), parsed, file }
}

/// The defaults file: the one that is named, else the front-end's, else the one that is shipped. A syntax
/// error in it is told on `err` and not fatal, as in `oned`.
///
/// # Errors
/// When it can't be read.
pub fn defaults(path: Option<&Path>, err: &mut dyn Write) -> Result<Text, Unreadable> {
    let text = match path {
        Some(path) => text(path, Level::Defaults, Rules::DEFAULTS)?,
        None => match front_end_defaults() {
            Some(path) => text(&path, Level::Defaults, Rules::DEFAULTS)?,
            None => {
                let shipped = shipped::vmm_exec_kvm_conf();
                let file = "vmm_exec_kvm.conf of kvmad".to_owned();
                parsed(shipped.as_bytes(), file, Level::Defaults, Rules::DEFAULTS)
            }
        },
    };
    if let Some(error) = &text.parsed.error {
        // Nobody is left to tell when stderr is gone.
        let _ = writeln!(
            err,
            "{}\nnote: as oned does, what stands before it counts, the rest is left out",
            error.picture(&text.file, &text.text, false)
        );
    }
    Ok(text)
}

fn front_end_defaults() -> Option<PathBuf> {
    let path = Paths::from_environment().etc.join("vmm_exec/vmm_exec_kvm.conf");
    path.exists().then_some(path)
}

/// The template of a host or a cluster: text, or the XML of `onehost show -x` and the like.
///
/// # Errors
/// When it can't be read or holds an error.
pub fn template(path: &Path, level: Level) -> Result<Template, Unreadable> {
    let file = path.display().to_string();
    let bytes = bytes(path, TEXT_LIMIT)?;
    if !is_xml(&bytes) {
        let text = parsed(&bytes, file, level, Rules::TEMPLATE);
        return whole(text);
    }
    let document = xml(bytes, &file)?;
    let root = document.root();
    let element = match root.name() {
        "TEMPLATE" => root,
        _ => root.child("TEMPLATE").ok_or_else(|| {
            Unreadable(format!("{file}: the document is a <{}> without a <TEMPLATE>", root.name()))
        })?,
    };
    Ok(document::template(&document, element, level, Some(&file.as_str().into())))
}

/// A text that must not hold an error.
fn whole(text: Text) -> Result<Template, Unreadable> {
    match &text.parsed.error {
        Some(error) => Err(Unreadable(error.picture(&text.file, &text.text, false))),
        None => Ok(text.parsed.template),
    }
}

/// Whether this is XML: its first byte that is not white space is `<`.
pub fn is_xml(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<')
}

fn xml(bytes: Vec<u8>, file: &str) -> Result<Document, Unreadable> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Unreadable(format!("{file}, line {line}: byte {at} is not UTF-8, the encoding of these documents"))
    })?;
    Document::parse(text).map_err(|error| Unreadable(format!("{file}, {error}")))
}

/// Reads a VM: a `<VM>`, an action document, or a template in text form, which is made a document as `oned`
/// would; `machine` is what the defaults give as OS/MACHINE then.
///
/// # Errors
/// When it can't be read, is no VM, or `oned` would refuse the template.
pub fn vm(path: &Path, machine: Option<&str>) -> Result<Vm, NoVm> {
    let file = path.display().to_string();
    let bytes = bytes(path, DOCUMENT_LIMIT)?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Unreadable(format!("{file} is empty: there is no VM in it")).into());
    }
    if is_xml(&bytes) {
        return Ok(vm_document(bytes, &file)?);
    }
    let text = vm_text(&bytes, &file)?;
    let doubts = doubts(&text);
    let template = whole(text)?;
    let mut vm = made(&template, machine).map_err(|why| NoVm::Refused(format!("{file}: {why}")))?;
    vm.notes.splice(0..0, doubts);
    Ok(vm)
}

/// What a text says otherwise than it was probably meant, for people.
fn doubts(text: &Text) -> Vec<String> {
    let doubtful = text.parsed.notices.iter().filter(|notice| notice.kind.gravity() != Gravity::Note);
    let tell = |notice: &Notice| {
        let (line, key) = (notice.line, &notice.key);
        format!("{}:{line}: {key}: {}; {}", text.file, notice.kind.message(), notice.kind.help())
    };
    doubtful.map(tell).collect()
}

/// The bytes of a VM, as document or as template.
///
/// # Errors
/// When it can't be read.
pub fn vm_bytes(path: &Path) -> Result<Vec<u8>, Unreadable> {
    bytes(path, DOCUMENT_LIMIT)
}

/// Reads a VM document that was called `file`.
///
/// # Errors
/// When it is no VM document.
pub fn vm_document(bytes: Vec<u8>, file: &str) -> Result<Vm, Unreadable> {
    let document = xml(bytes, file)?;
    let vm =
        VmDocument::read(&document, Some(file)).map_err(|error| Unreadable(format!("{file}: {error}")))?;
    Ok(Vm { document: vm, notes: Vec::new(), source: None })
}

/// Reads the text of a VM's template.
///
/// # Errors
/// When it is too long.
pub fn vm_text(bytes: &[u8], file: &str) -> Result<Text, Unreadable> {
    if is_binary(bytes) {
        return Err(Unreadable(format!("{file} is no text but binary data")));
    }
    if bytes.len() as u64 > TEXT_LIMIT {
        return Err(Unreadable(format!("{file} is a template longer than {} MiB", TEXT_LIMIT >> 20)));
    }
    Ok(parsed(bytes, file.to_owned(), Level::Vm, Rules::TEMPLATE))
}

/// The VM that `oned` would make of a template.
///
/// # Errors
/// Why it would refuse it.
pub fn made(template: &Template, machine: Option<&str>) -> Result<Vm, String> {
    let source = Source { template: template.clone(), random: rand::random() };
    let made = source.normalised(machine)?;
    Ok(Vm { document: made.vm, notes: made.notes, source: Some(source) })
}
