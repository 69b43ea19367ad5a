//! The small path language of `kvmad-node xml`: names separated by `/`, relative to the outermost element.
//!
//! `NAME[PATH=VALUE]` takes only elements where PATH below them has the value VALUE (`DISK[ATTACH=YES]`,
//! `interface[mac/@address=02:00:00:00:00:01]`); a last step `@ATTRIBUTE` is the value of an attribute. Names match with or without
//! their namespace prefix: `metadata/vm/system_datastore` finds `one:vm` too.

use std::str::FromStr;

use crate::template::xml::Element;

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    steps: Vec<Step>,
    attribute: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    name: String,
    only: Vec<(Path, String)>,
}

/// A text that is no [`Path`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path: {1}")]
pub struct NotAPath(String, &'static str);

impl FromStr for Path {
    type Err = NotAPath;

    fn from_str(text: &str) -> Result<Self, NotAPath> {
        let fault = |reason| NotAPath(text.to_owned(), reason);
        let mut path = Self { steps: Vec::new(), attribute: None };
        let mut rest = text;
        loop {
            if path.attribute.is_some() {
                return Err(fault("an attribute ends a path"));
            }
            let end = rest.find(['/', '[']).unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            let mut only = Vec::new();
            rest = behind;
            while let Some(inside) = rest.strip_prefix('[') {
                let (condition, behind) = inside.split_once(']').ok_or_else(|| fault("a [ without its ]"))?;
                let (left, right) = condition.split_once('=').ok_or_else(|| fault("a [ ] without ="))?;
                only.push((left.parse()?, right.to_owned()));
                rest = behind;
            }
            match name.strip_prefix('@') {
                Some("") => return Err(fault("an attribute without a name")),
                Some(attribute) if only.is_empty() => path.attribute = Some(attribute.to_owned()),
                Some(_) => return Err(fault("an attribute takes no condition")),
                None if name.is_empty() => return Err(fault("a step without a name")),
                None => path.steps.push(Step { name: name.to_owned(), only }),
            }
            if rest.is_empty() {
                return Ok(path);
            }
            rest = rest.strip_prefix('/').ok_or_else(|| fault("something stands behind a ]"))?;
        }
    }
}

impl Path {
    /// Every value at the path below `root`, in document order.
    #[must_use]
    pub fn all(&self, root: &Element) -> Vec<String> {
        let found = self.elements(root);
        match &self.attribute {
            None => found.into_iter().map(Element::text).collect(),
            Some(name) => found.into_iter().filter_map(|e| e.attribute(name)).map(str::to_owned).collect(),
        }
    }

    /// Every element at the path below `root`, in document order; of a path that ends in an attribute, those that
    /// have it.
    #[must_use]
    pub fn elements<'a>(&self, root: &'a Element) -> Vec<&'a Element> {
        let mut found = vec![root];
        for step in &self.steps {
            found = found.into_iter().flat_map(Element::elements).filter(|e| step.takes(e)).collect();
        }
        if let Some(name) = &self.attribute {
            found.retain(|element| element.attribute(name).is_some());
        }
        found
    }

    /// The first value at the path below `root`.
    #[must_use]
    pub fn first(&self, root: &Element) -> Option<String> {
        self.all(root).into_iter().next()
    }
}

impl Step {
    fn takes(&self, element: &Element) -> bool {
        if !is_called(element, &self.name) {
            return false;
        }
        self.only.iter().all(|(path, value)| path.all(element).iter().any(|found| found == value))
    }
}

/// Whether `element` is called `name`, its namespace prefix left aside unless `name` has one.
#[must_use]
pub fn is_called(element: &Element, name: &str) -> bool {
    let own = element.name();
    own == name || own.rsplit_once(':').is_some_and(|(_, local)| local == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::xml::Document;

    const DOMAIN: &str = "<domain><metadata><one:vm xmlns:one='u'><one:system_datastore>/d</one:system_datastore>\
        </one:vm></metadata><devices><disk device='disk'><target dev='sda'/></disk></devices>\
        <devices><disk device='cdrom'><target dev='sdb'/></disk></devices></domain>";

    fn all(path: &str, document: &str) -> Vec<String> {
        let document = Document::parse(document).expect("a document");
        path.parse::<Path>().expect("a path").all(document.root())
    }

    #[test]
    fn repeated_parents_are_all_searched() {
        assert_eq!(all("devices/disk/target/@dev", DOMAIN), ["sda", "sdb"]);
        assert_eq!(all("devices/disk[@device=cdrom]/target/@dev", DOMAIN), ["sdb"]);
    }

    #[test]
    fn prefixes_may_be_left_out() {
        assert_eq!(all("metadata/vm/system_datastore", DOMAIN), ["/d"]);
        assert_eq!(all("metadata/one:vm/one:system_datastore", DOMAIN), ["/d"]);
        assert!(all("metadata/two:vm", DOMAIN).is_empty());
    }

    #[test]
    fn conditions_compare_whole_values() {
        let document =
            "<V><DISK><TARGET>sdaa</TARGET><ID>1</ID></DISK><DISK><TARGET>sda</TARGET><ID>2</ID></DISK></V>";
        assert_eq!(all("DISK[TARGET=sda]/ID", document), ["2"]);
        assert_eq!(all("DISK[TARGET=sda][ID=1]/ID", document), [""; 0]);
        assert_eq!(all("DISK[TARGET=sdaa][ID=1]/ID", document), ["1"]);
        assert_eq!(all("devices/disk[target/@dev=sdb]/@device", DOMAIN), ["cdrom"]);
        assert_eq!(all("DISK[ID=a/b=c]/ID", "<V><DISK><ID>a/b=c</ID></DISK></V>"), ["a/b=c"]);
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in
            ["", "/", "a/", "/a", "a//b", "@", "a[b", "a[b]", "a[b=c]d", "@a/b", "@a[b=c]", "a[=b]", "a[@=b]"]
        {
            assert!(text.parse::<Path>().is_err(), "{text}");
        }
    }
}
