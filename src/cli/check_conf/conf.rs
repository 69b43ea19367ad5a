//! Checking vmm_exec_kvm.conf: syntax, keys, values, what they do together, markup.

use super::finding::{Checked, Kind};
use super::{effect, markup};
use crate::cli::input::Text;
use crate::conf::nearest::nearest;
use crate::conf::{Key, vmm, why_unread};
use crate::template::text::Gravity;
use crate::template::{Attribute, Member, Origin, Value};

/// Checks the file.
pub fn check(text: &Text) -> Checked {
    let mut checked = Checked::new(&text.file, Kind::Conf, &text.text);
    checked.add_text(text.parsed.error.as_ref(), &text.parsed.notices);
    for attribute in text.parsed.template.attributes() {
        check_attribute(&mut checked, attribute);
    }
    effect::check(&mut checked, &text.parsed.template);
    for key in vmm::KEYS {
        markup::check(&mut checked, key, &text.parsed.template);
    }
    checked.sorted()
}

fn check_attribute(checked: &mut Checked, attribute: &Attribute) {
    let (name, at) = (attribute.name.as_str(), Some(&attribute.origin));
    let is_vector = vmm::vectors().contains(&name);
    let single = vmm::find("", name);
    match (&attribute.value, single) {
        (Value::Single(value), Some(key)) => check_value(checked, key, value, &attribute.origin),
        (Value::Vector(members), _) if is_vector => {
            for member in members {
                check_member(checked, name, member);
            }
        }
        (Value::Single(_), None) if is_vector => {
            let why = format!("{name} is read as a vector; as a single value nobody sees it");
            checked.find(
                "wrong-kind",
                Gravity::Error,
                name.to_owned(),
                at,
                why,
                format!("write {name} = [ ... ]"),
            );
        }
        (Value::Vector(_), Some(_)) => {
            let why = format!("{name} is read as a single value; as a vector nobody sees it");
            checked.find(
                "wrong-kind",
                Gravity::Error,
                name.to_owned(),
                at,
                why,
                format!("write {name} = \"...\""),
            );
        }
        _ => unknown(checked, name, "", &attribute.origin),
    }
}

fn check_member(checked: &mut Checked, vector: &str, member: &Member) {
    match vmm::find(vector, &member.name) {
        Some(key) => check_value(checked, key, &member.value, &member.origin),
        None => unknown(checked, vector, &member.name, &member.origin),
    }
}

fn check_value(checked: &mut Checked, key: &Key, value: &str, at: &Origin) {
    if let Some(doubt) = key.doubt(value) {
        let (id, gravity) =
            if doubt.certain { ("bad-value", Gravity::Error) } else { ("odd-value", Gravity::Warning) };
        checked.find(id, gravity, key.path(), Some(at), doubt.why, doubt.mend);
    }
}

/// A key that nobody reads: known elsewhere, misspelt, in the wrong vector, or a stranger. `member` is empty
/// for a single attribute or a whole vector.
fn unknown(checked: &mut Checked, name: &str, member: &str, at: &Origin) {
    let key = if member.is_empty() { name.to_owned() } else { format!("{name}/{member}") };
    if let Some(why) = why_unread(name, member) {
        let why = format!("nobody reads {key} from this file: {why}");
        checked.find("unread-key", Gravity::Warning, key, Some(at), why, "remove it");
        return;
    }
    let word = if member.is_empty() { name } else { member };
    let misplaced = vmm::KEYS.iter().find(|key| key.name == word);
    let siblings: Vec<&str> = if member.is_empty() {
        let singles = vmm::KEYS.iter().filter(|key| key.vector.is_empty()).map(|key| key.name);
        vmm::vectors().into_iter().chain(singles).collect()
    } else {
        vmm::KEYS.iter().filter(|key| key.vector == name).map(|key| key.name).collect()
    };
    let mend = match (misplaced, nearest(word, siblings)) {
        (Some(right), _) if right.vector.is_empty() => format!("{word} stands by itself, outside of {name}"),
        (Some(right), _) => format!("{word} belongs into {}", right.vector),
        (None, Some(right)) => format!("did you mean {right}?"),
        (None, None) => "remove it, or see docs/conf.md for the keys that there are".to_owned(),
    };
    let why = format!("there is no key {key}, so nobody reads it");
    checked.find("unknown-key", Gravity::Warning, key, Some(at), why, mend);
}
