//! Which letters the disks get.

use std::collections::HashSet;

use super::disks::{Form, form};
use super::members::{filled, place, set};
use super::{Refused, Work};
use crate::template::value::{Member, Value};

/// Most disks of the prefixes that have a limit: `hd` on machines with an IDE controller, and `sd`.
const HD_LIMIT: usize = 4;
const SD_LIMIT: usize = 256;

impl Work<'_> {
    /// Given targets are taken first; then, in this order, the first image, CDs, the context, all others get
    /// the first free letter of their prefix.
    pub(super) fn targets(&mut self) -> Result<(), Refused> {
        let modern = self.is_modern();
        let mut taken = HashSet::new();
        let attributes = self.t.attributes();
        let devices: Vec<(usize, usize)> = attributes
            .iter()
            .enumerate()
            .filter_map(|(index, attribute)| Some((index, rank(&attribute.name, &attribute.value)?)))
            .collect();
        for (index, _) in &devices {
            let Some(attribute) = attributes.get(*index) else { continue };
            let Value::Vector(members) = &attribute.value else { continue };
            let Some(target) = filled(members, "TARGET") else { continue };
            if !taken.insert(target.to_owned()) {
                let reason = format!("the TARGET {target:?} is given twice");
                return Err(Refused::Attribute { at: place(members, "TARGET", &attribute.origin), reason });
            }
        }
        let prefix = self.around.device_prefix.clone();
        let mut order = first_image_first(devices);
        order.sort_by_key(|(_, rank)| *rank);
        for (index, _) in order {
            let Some(attribute) = self.t.attributes_mut().get_mut(index) else { continue };
            let is_context = attribute.name == "CONTEXT";
            let Value::Vector(members) = &mut attribute.value else { continue };
            let own = own_prefix(members, is_context, modern, &prefix);
            if filled(members, "TARGET").is_some() {
                continue;
            }
            let Some(target) = free(&own, &taken, modern) else {
                let reason = format!("no target with the prefix {own} is left for this disk");
                return Err(Refused::Attribute { at: attribute.origin.clone(), reason });
            };
            taken.insert(target.clone());
            set(members, "TARGET", target);
        }
        Ok(())
    }
}

/// 1 for CDs, 2 for the context, 3 for all other disks with a target.
fn rank(name: &str, value: &Value) -> Option<usize> {
    let Value::Vector(members) = value else { return None };
    match name {
        "CONTEXT" => Some(2),
        "DISK" => match form(members)? {
            Form::Filesystem => None,
            Form::Cdrom => Some(1),
            Form::Image => Some(3),
            Form::Volatile => Some(4),
        },
        _ => None,
    }
}

/// Puts the first image, taken for the operating system's, before the CDs, and volatile disks among the images.
fn first_image_first(devices: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let first = devices.iter().find(|(_, rank)| *rank == 3).map(|(index, _)| *index);
    let rank = |index, rank| if Some(index) == first { 0 } else { std::cmp::min(rank, 3) };
    devices.into_iter().map(|(index, old)| (index, rank(index, old))).collect()
}

/// The prefix of a disk; a disk that is no CD gets it written into DEV_PREFIX.
fn own_prefix(members: &mut Vec<Member>, is_context: bool, modern: bool, default: &str) -> String {
    if let Some(prefix) = filled(members, "DEV_PREFIX") {
        return prefix.to_owned();
    }
    if is_context || form(members) == Some(Form::Cdrom) {
        return if modern { "sd" } else { "hd" }.to_owned();
    }
    set(members, "DEV_PREFIX", default);
    default.to_owned()
}

fn free(prefix: &str, taken: &HashSet<String>, modern: bool) -> Option<String> {
    let limit = match prefix {
        "hd" if !modern => HD_LIMIT,
        _ => SD_LIMIT,
    };
    (0..limit).map(|number| format!("{prefix}{}", letters(number))).find(|target| !taken.contains(target))
}

/// a … z, aa, ab …
fn letters(number: usize) -> String {
    let letter = |n: usize| char::from(b'a' + u8::try_from(n % 26).unwrap_or(0));
    match number.checked_sub(26) {
        None => letter(number).to_string(),
        Some(rest) => format!("{}{}", letters(rest / 26), letter(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_go_on_behind_z() {
        let all: Vec<_> = [0, 25, 26, 51, 52, 701, 702].map(letters).to_vec();
        assert_eq!(all, ["a", "z", "aa", "az", "ba", "zz", "aaa"]);
    }
}
