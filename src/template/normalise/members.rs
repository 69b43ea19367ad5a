//! Reading and changing the members of a vector.

use crate::template::value::{Level, Member, Origin};

/// Value of the member `name` when it is there and not empty.
pub(super) fn filled<'a>(members: &'a [Member], name: &str) -> Option<&'a str> {
    members.iter().find(|m| m.name == name).map(|m| m.value.as_str()).filter(|value| !value.is_empty())
}

/// Whether the member `name` says yes.
pub(super) fn yes(members: &[Member], name: &str) -> bool {
    filled(members, name).is_some_and(|value| value.eq_ignore_ascii_case("yes"))
}

/// Sets a member to a value of `oned`'s own.
pub(super) fn set(members: &mut Vec<Member>, name: &str, value: impl Into<String>) {
    let value = value.into();
    let origin = Origin::of(Level::Made);
    match members.iter_mut().find(|member| member.name == name) {
        Some(member) => *member = Member { name: name.to_owned(), value, origin },
        None => members.push(Member { name: name.to_owned(), value, origin }),
    }
}

/// Sets a member unless it is there and not empty.
pub(super) fn fill(members: &mut Vec<Member>, name: &str, value: impl Into<String>) {
    if filled(members, name).is_none() {
        set(members, name, value);
    }
}

/// Changes the spelling of a member, its place stays.
pub(super) fn respell(members: &mut [Member], name: &str, change: impl Fn(&str) -> String) {
    if let Some(member) = members.iter_mut().find(|member| member.name == name) {
        member.value = change(&member.value);
    }
}

/// Takes members away.
pub(super) fn remove(members: &mut Vec<Member>, names: &[&str]) {
    members.retain(|member| !names.contains(&member.name.as_str()));
}

/// The place of the member `name`, else that of its vector.
pub(super) fn place(members: &[Member], name: &str, vector: &Origin) -> Origin {
    members.iter().find(|member| member.name == name).map_or_else(|| vector.clone(), |m| m.origin.clone())
}
