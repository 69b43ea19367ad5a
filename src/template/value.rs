//! What a template holds: attributes with one value, attributes with members, and where each came from.
//!
//! The same model serves the text form (`vmm_exec_kvm.conf`, host and cluster templates) and the XML form (the
//! `TEMPLATE` of a VM). Names of attributes are upper case once they are here; values are never changed.

use std::fmt;
use std::sync::Arc;

/// The level of a template, in the words of those who configure it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The VM itself: `TEMPLATE` of its document.
    Vm,
    /// The template of the host that it runs on, values of the monitoring probes included.
    Host,
    /// The template of the host's cluster.
    Cluster,
    /// The defaults file, `vmm_exec_kvm.conf`.
    Defaults,
    /// The `VM_MAD` entry of `oned.conf`, which lies over the defaults file.
    DriverEntry,
    /// `kvmrc` on the host (`DEFAULT_ATTACH_*`), for devices that are attached.
    Kvmrc,
    /// The system datastore's document in an action.
    Datastore,
    /// The running domain, for devices that are attached.
    Domain,
    /// An option of the command or of the driver.
    Option,
    /// Nobody wrote it: it was put in where a template in text form was made a VM, as `oned` would have.
    Made,
}

impl Level {
    /// The word for it in tables and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Vm => "VM",
            Self::Host => "host",
            Self::Cluster => "cluster",
            Self::Defaults => "defaults file",
            Self::DriverEntry => "VM_MAD",
            Self::Kvmrc => "kvmrc",
            Self::Datastore => "datastore",
            Self::Domain => "running domain",
            Self::Option => "option",
            Self::Made => "made up here",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Where an attribute or a member stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Which level.
    pub level: Level,
    /// The file, as the reader was told to call it.
    pub file: Option<Arc<str>>,
    /// Line from 1; 0 when there is none (an option, a value made by a caller).
    pub line: u32,
    /// Column in characters from 1; 0 when there is none.
    pub column: u32,
}

impl Origin {
    /// An origin without a place in a file.
    #[must_use]
    pub fn of(level: Level) -> Self {
        Self { level, file: None, line: 0, column: 0 }
    }
}

impl fmt::Display for Origin {
    /// `defaults file vmm_exec_kvm.conf:12`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.level.word())?;
        match (&self.file, self.line) {
            (Some(file), 0) => write!(f, " {file}"),
            (Some(file), line) => write!(f, " {file}:{line}"),
            (None, 0) => Ok(()),
            (None, line) => write!(f, " line {line}"),
        }
    }
}

/// One attribute of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Its name, upper case.
    pub name: String,
    /// What it holds.
    pub value: Value,
    /// Where it stands.
    pub origin: Origin,
}

/// What an attribute holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `NAME = value`; may be empty, which is not the same as absent.
    Single(String),
    /// `NAME = [ MEMBER = value, ... ]`, each member name once.
    Vector(Vec<Member>),
}

/// One member of a vector attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name: upper case in the text form, as written in the XML form.
    pub name: String,
    /// Its value; may be empty, which is not the same as absent.
    pub value: String,
    /// Where it stands.
    pub origin: Origin,
}

/// The attributes of one level, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    attributes: Vec<Attribute>,
}

/// A single attribute as a lookup found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Single<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value, may be empty.
    pub value: &'a str,
    /// Where it stands.
    pub origin: &'a Origin,
}

/// A vector attribute as a lookup found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vector<'a> {
    /// Its name.
    pub name: &'a str,
    /// Which of the vectors of this name, from 0.
    pub index: usize,
    /// Its members.
    pub members: &'a [Member],
    /// Where it stands.
    pub origin: &'a Origin,
}

impl Template {
    /// A template without attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an attribute behind the others; equal names stay beside each other's, in order.
    pub fn push(&mut self, attribute: Attribute) {
        self.attributes.push(attribute);
    }

    /// Adds an attribute and drops all earlier ones of its name, whatever they held: how a defaults file reads
    /// a repeated name, and how the `VM_MAD` entry lies over it.
    pub fn replace(&mut self, attribute: Attribute) {
        self.attributes.retain(|old| old.name != attribute.name);
        self.attributes.push(attribute);
    }

    /// All attributes in order.
    #[must_use]
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// All attributes, to be changed in place (a normaliser's tool).
    pub fn attributes_mut(&mut self) -> &mut Vec<Attribute> {
        &mut self.attributes
    }

    /// Whether there is no attribute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// The first single attribute called `name`. Vectors of that name are not seen.
    #[must_use]
    pub fn single(&self, name: &str) -> Option<Single<'_>> {
        self.attributes.iter().find_map(|attribute| match &attribute.value {
            Value::Single(value) if attribute.name == name => {
                Some(Single { name: &attribute.name, value, origin: &attribute.origin })
            }
            _ => None,
        })
    }

    /// The first vector attribute called `name`. Single attributes of that name are not seen.
    #[must_use]
    pub fn vector<'a>(&'a self, name: &'a str) -> Option<Vector<'a>> {
        self.vectors(name).next()
    }

    /// All vector attributes called `name`, in order.
    pub fn vectors<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Vector<'a>> {
        self.attributes
            .iter()
            .filter_map(move |attribute| match &attribute.value {
                Value::Vector(members) if attribute.name == name => Some((attribute, members)),
                _ => None,
            })
            .enumerate()
            .map(|(index, (attribute, members))| Vector {
                name: &attribute.name,
                index,
                members,
                origin: &attribute.origin,
            })
    }
}

impl<'a> Vector<'a> {
    /// The member called `name`, exactly.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&'a Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Value of the member `name`; may be empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.member(name).map(|member| member.value.as_str())
    }

    /// Value of the member `name` when it is there and not empty.
    #[must_use]
    pub fn filled(&self, name: &str) -> Option<&'a str> {
        self.get(name).filter(|value| !value.is_empty())
    }
}

impl FromIterator<Attribute> for Template {
    fn from_iter<T: IntoIterator<Item = Attribute>>(attributes: T) -> Self {
        Self { attributes: attributes.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(name: &str, value: &str) -> Attribute {
        Attribute {
            name: name.to_owned(),
            value: Value::Single(value.to_owned()),
            origin: Origin::of(Level::Defaults),
        }
    }

    fn vector(name: &str, members: &[(&str, &str)]) -> Attribute {
        let members = members
            .iter()
            .map(|(name, value)| Member {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
                origin: Origin::of(Level::Defaults),
            })
            .collect();
        Attribute {
            name: name.to_owned(),
            value: Value::Vector(members),
            origin: Origin::of(Level::Defaults),
        }
    }

    #[test]
    fn an_attribute_of_the_other_kind_is_invisible() {
        let template: Template =
            [vector("RAW", &[("TYPE", "kvm")]), single("RAW", "<a/>"), single("RAW", "<b/>")]
                .into_iter()
                .collect();
        assert_eq!(template.single("RAW").map(|s| s.value), Some("<a/>"));
        assert_eq!(template.vector("RAW").and_then(|v| v.get("TYPE")), Some("kvm"));
        assert_eq!(template.single("raw"), None);
    }

    #[test]
    fn vectors_come_in_order_and_know_their_number() {
        let template: Template =
            [vector("DISK", &[("ID", "0")]), single("CPU", "1"), vector("DISK", &[("ID", "1")])]
                .into_iter()
                .collect();
        let ids: Vec<_> = template.vectors("DISK").map(|v| (v.index, v.get("ID"))).collect();
        assert_eq!(ids, [(0, Some("0")), (1, Some("1"))]);
    }

    #[test]
    fn replacing_drops_every_earlier_one_of_the_name() {
        let mut template: Template =
            [single("OS", "x"), vector("OS", &[("ARCH", "i686")])].into_iter().collect();
        template.replace(vector("OS", &[("MACHINE", "pc")]));
        assert_eq!(template.attributes().len(), 1);
        assert_eq!(template.vector("OS").and_then(|v| v.get("ARCH")), None);
    }

    #[test]
    fn an_empty_member_is_there_but_not_filled() {
        let template: Template = [vector("OS", &[("KERNEL", "")])].into_iter().collect();
        let os = template.vector("OS").expect("there");
        assert_eq!((os.get("KERNEL"), os.filled("KERNEL"), os.get("ROOT")), (Some(""), None, None));
    }

    #[test]
    fn an_origin_reads_as_a_place() {
        let mut origin = Origin::of(Level::Defaults);
        assert_eq!(origin.to_string(), "defaults file");
        origin.file = Some("vmm_exec_kvm.conf".into());
        origin.line = 12;
        assert_eq!(origin.to_string(), "defaults file vmm_exec_kvm.conf:12");
    }
}
