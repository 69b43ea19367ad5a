//! The VM document: what `oned` says about a VM, bare (`<VM>`) or inside an action (`<VMM_DRIVER_ACTION_DATA>`).

use std::sync::Arc;

use super::text::Places;
use super::value::{Attribute, Level, Member, Origin, Template, Value};
use super::xml::{Document, Element, Node};

/// What the generator of domains needs of a VM document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmDocument {
    /// `ID`.
    pub id: i64,
    /// `NAME`.
    pub name: String,
    /// `UID`.
    pub uid: i64,
    /// `GID`.
    pub gid: i64,
    /// `UNAME`.
    pub uname: String,
    /// `GNAME`.
    pub gname: String,
    /// `STIME`, seconds since 1970.
    pub stime: i64,
    /// `DS_ID` of the last `HISTORY_RECORDS/HISTORY`: the system datastore.
    pub ds_id: Option<i64>,
    /// `HID` of the same record.
    pub hid: Option<i64>,
    /// `CID` of the same record.
    pub cid: Option<i64>,
    /// `TEMPLATE`. `USER_TEMPLATE` has no say in a domain.
    pub template: Template,
    /// The system datastore, when the document is an action that carries it.
    pub datastore: Option<DatastoreDocument>,
}

/// What the generator needs of the system datastore.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatastoreDocument {
    /// `BASE_PATH`, `/var/lib/one//datastores/100`.
    pub base_path: String,
    /// `TEMPLATE`.
    pub template: Template,
}

/// Why a document is no VM document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAVm {
    /// the document is a `<{0}>`; a `<VM>` or a `<VMM_DRIVER_ACTION_DATA>` with a `<VM>` inside is needed
    #[error("the document is a <{0}>; a <VM> or a <VMM_DRIVER_ACTION_DATA> with a <VM> inside is needed")]
    Other(String),
    /// line {line}: {path} is {text:?}, which is no whole number
    #[error("line {line}: {path} is {text:?}, which is no whole number")]
    Number {
        /// Line of the element.
        line: usize,
        /// Its path.
        path: String,
        /// What it holds.
        text: String,
    },
    /// the document has no {0}
    #[error("the document has no {0}")]
    Missing(&'static str),
}

impl VmDocument {
    /// Reads a bare VM document or an action document; `file` is what origins call it.
    ///
    /// # Errors
    /// [`NotAVm`] when the outermost element is another, or a number isn't one.
    pub fn read(document: &Document, file: Option<&str>) -> Result<Self, NotAVm> {
        let root = document.root();
        let vm = match root.name() {
            "VM" => root,
            "VMM_DRIVER_ACTION_DATA" => root.child("VM").ok_or(NotAVm::Missing("VM"))?,
            other => return Err(NotAVm::Other(other.to_owned())),
        };
        let file: Option<Arc<str>> = file.map(Arc::from);
        let number = |path: &'static str| number(document, vm, path);
        let history = vm.child("HISTORY_RECORDS").and_then(|records| records.children("HISTORY").last());
        let placed = |name: &'static str| match history {
            Some(record) => self::number(document, record, name),
            None => Ok(None),
        };
        let datastore = root.child("DATASTORE").map(|datastore| DatastoreDocument {
            base_path: datastore.text_at("BASE_PATH").unwrap_or_default(),
            template: datastore
                .child("TEMPLATE")
                .map(|element| template(document, element, Level::Datastore, file.as_ref()))
                .unwrap_or_default(),
        });
        Ok(Self {
            id: number("ID")?.ok_or(NotAVm::Missing("VM/ID"))?,
            name: vm.text_at("NAME").unwrap_or_default(),
            uid: number("UID")?.unwrap_or(0),
            gid: number("GID")?.unwrap_or(0),
            uname: vm.text_at("UNAME").unwrap_or_default(),
            gname: vm.text_at("GNAME").unwrap_or_default(),
            stime: number("STIME")?.unwrap_or(0),
            ds_id: placed("DS_ID")?,
            hid: placed("HID")?,
            cid: placed("CID")?,
            template: vm
                .child("TEMPLATE")
                .map(|element| template(document, element, Level::Vm, file.as_ref()))
                .unwrap_or_default(),
            datastore,
        })
    }
}

fn number(document: &Document, within: &Element, path: &'static str) -> Result<Option<i64>, NotAVm> {
    let Some(element) = within.child(path) else { return Ok(None) };
    let text = element.text();
    if text.trim().is_empty() {
        return Ok(None);
    }
    let bad = || NotAVm::Number {
        line: document.position_of(element).0,
        path: format!("{}/{path}", within.name()),
        text: text.chars().take(64).collect(),
    };
    text.trim().parse().map(Some).map_err(|_| bad())
}

/// Reads a `TEMPLATE` element the way OpenNebula does.
///
/// * One child node, text or CDATA: a single attribute, also when the CDATA is empty.
/// * At least one child element: a vector; a child whose first node is text or CDATA gives a member, the last
///   one of a name counts; names of members stay as they are.
/// * Anything else (`<A/>`, `<A></A>`, text with a comment beside it): no attribute at all.
#[must_use]
pub fn template(document: &Document, element: &Element, level: Level, file: Option<&Arc<str>>) -> Template {
    let mut places = Places::new(document.source());
    let mut origin = |at: usize| {
        let (line, column) = places.of(at);
        let (line, column) = (small(line), small(column));
        Origin { level, file: file.cloned(), line, column }
    };
    let mut attributes = Vec::new();
    for child in element.elements() {
        let here = origin(child.range().start);
        let value = match child.nodes() {
            [Node::Text(text) | Node::CData(text)] => Some(Value::Single(text.clone())),
            nodes if nodes.iter().any(|node| matches!(node, Node::Element(_))) => {
                Some(Value::Vector(members(child, &mut origin)))
            }
            _ => None,
        };
        if let Some(value) = value {
            attributes.push(Attribute { name: top_name(child.name()), value, origin: here });
        }
    }
    attributes.into_iter().collect()
}

fn members(vector: &Element, origin: &mut impl FnMut(usize) -> Origin) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::with_capacity(vector.nodes().len());
    for child in vector.elements() {
        let Some(Node::Text(text) | Node::CData(text)) = child.nodes().first() else { continue };
        let member = Member {
            name: child.name().to_owned(),
            value: text.clone(),
            origin: origin(child.range().start),
        };
        match members.iter_mut().find(|old| old.name == member.name) {
            Some(old) => *old = member,
            None => members.push(member),
        }
    }
    members
}

/// The name under which OpenNebula keeps a top-level attribute: upper case, with `ONE_` in front when the name
/// as written does not begin with a letter or `_`, or is longer than two characters and begins with `XML`.
#[must_use]
pub fn top_name(written: &str) -> String {
    let first = written.chars().next().unwrap_or('_');
    let odd = !(first.is_ascii_alphabetic() || first == '_') || written.starts_with("XML");
    let mut name = String::with_capacity(written.len() + 4);
    if odd {
        name.push_str("ONE_");
    }
    name.push_str(written);
    name.make_ascii_uppercase();
    name
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(inner: &str) -> Template {
        let document = Document::parse(format!("<TEMPLATE>{inner}</TEMPLATE>")).expect("well-formed");
        template(&document, document.root(), Level::Vm, None)
    }

    #[test]
    fn one_text_or_cdata_is_a_single_attribute_also_an_empty_cdata() {
        for (inner, expected) in [
            ("<A>x</A>", Some("x")),
            ("<a>x</a>", Some("x")),
            ("<A> x\n</A>", Some(" x\n")),
            ("<A><![CDATA[<b>]]></A>", Some("<b>")),
            ("<A>a&lt;b</A>", Some("a<b")),
            ("<A><![CDATA[]]></A>", Some("")),
            ("<A><![CDATA[a]]><![CDATA[b]]></A>", Some("ab")),
            ("<A/>", None),
            ("<A></A>", None),
            ("<A>x<!-- c --></A>", None),
            ("<A><![CDATA[x]]>y</A>", None),
        ] {
            assert_eq!(read(inner).single("A").map(|s| s.value), expected, "{inner}");
        }
    }

    #[test]
    fn a_child_element_makes_a_vector_and_stray_text_is_ignored() {
        let os = read("<OS>stray<ARCH>x</ARCH><arch>y</arch><B/><C></C><D><![CDATA[]]></D><E><F/></E></OS>");
        let os = os.vector("OS").expect("a vector");
        assert_eq!((os.get("ARCH"), os.get("arch")), (Some("x"), Some("y")));
        assert_eq!((os.get("B"), os.get("C"), os.get("D"), os.get("E")), (None, None, Some(""), None));
        assert_eq!(read("<A><B/></A>").vector("A").map(|v| v.members.len()), Some(0));
    }

    #[test]
    fn a_repeated_member_counts_with_its_last_value() {
        assert_eq!(read("<V><K>1</K><K>2</K></V>").vector("V").and_then(|v| v.get("K")), Some("2"));
        assert_eq!(read("<V><K>1<!-- --> 2</K></V>").vector("V").and_then(|v| v.get("K")), Some("1"));
    }

    #[test]
    fn top_names_are_repaired() {
        for (written, name) in [
            ("os", "OS"),
            ("XMLx", "ONE_XMLX"),
            ("xmlx", "XMLX"),
            ("_a", "_A"),
            ("9A", "ONE_9A"),
            ("XM", "XM"),
        ] {
            assert_eq!(top_name(written), name);
        }
    }

    #[test]
    fn origins_name_line_and_column() {
        let template = read("\n <A>x</A>\n<V>\n  <K>1</K></V>");
        let a = template.single("A").expect("A").origin;
        assert_eq!((a.line, a.column), (2, 2));
        let k = &template.vector("V").expect("V").member("K").expect("K").origin;
        assert_eq!((k.line, k.column), (4, 3));
    }

    #[test]
    fn the_last_history_record_places_the_vm() {
        let text = "<VM><ID>7</ID><NAME>n</NAME><HISTORY_RECORDS><HISTORY><DS_ID>1</DS_ID></HISTORY>\
                    <HISTORY><HID>3</HID><DS_ID>100</DS_ID></HISTORY></HISTORY_RECORDS></VM>";
        let vm = VmDocument::read(&Document::parse(text).expect("xml"), None).expect("a VM");
        assert_eq!((vm.id, vm.ds_id, vm.hid, vm.cid), (7, Some(100), Some(3), None));
    }

    #[test]
    fn what_is_no_vm_document_says_so() {
        let read = |text: &str| {
            VmDocument::read(&Document::parse(text).expect("xml"), None).expect_err(text).to_string()
        };
        assert!(read("<HOST/>").contains("<HOST>"));
        assert!(read("<VMM_DRIVER_ACTION_DATA/>").contains("no VM"));
        assert!(read("<VM/>").contains("VM/ID"));
        assert_eq!(read("<VM>\n<ID>x</ID></VM>"), "line 2: VM/ID is \"x\", which is no whole number");
    }
}
