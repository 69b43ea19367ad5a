//! `iotune`: how much a disk may do.

use super::provenance::Provenance;
use super::tree::Element;
use super::value::{Sourced, given};
use crate::template::lookup::{Chain, Text};
use crate::template::value::Vector;

const WHO: [[&str; 3]; 2] = [
    ["TOTAL_BYTES_SEC", "READ_BYTES_SEC", "WRITE_BYTES_SEC"],
    ["TOTAL_IOPS_SEC", "READ_IOPS_SEC", "WRITE_IOPS_SEC"],
];

const MAX: [[&str; 3]; 2] = [
    ["TOTAL_BYTES_SEC_MAX", "READ_BYTES_SEC_MAX", "WRITE_BYTES_SEC_MAX"],
    ["TOTAL_IOPS_SEC_MAX", "READ_IOPS_SEC_MAX", "WRITE_IOPS_SEC_MAX"],
];

const LENGTH: [[&str; 3]; 2] = [
    ["TOTAL_BYTES_SEC_MAX_LENGTH", "READ_BYTES_SEC_MAX_LENGTH", "WRITE_BYTES_SEC_MAX_LENGTH"],
    ["TOTAL_IOPS_SEC_MAX_LENGTH", "READ_IOPS_SEC_MAX_LENGTH", "WRITE_IOPS_SEC_MAX_LENGTH"],
];

const NAMES: [[[&str; 3]; 3]; 2] = [
    [
        ["total_bytes_sec", "total_bytes_sec_max", "total_bytes_sec_max_length"],
        ["read_bytes_sec", "read_bytes_sec_max", "read_bytes_sec_max_length"],
        ["write_bytes_sec", "write_bytes_sec_max", "write_bytes_sec_max_length"],
    ],
    [
        ["total_iops_sec", "total_iops_sec_max", "total_iops_sec_max_length"],
        ["read_iops_sec", "read_iops_sec_max", "read_iops_sec_max_length"],
        ["write_iops_sec", "write_iops_sec_max", "write_iops_sec_max_length"],
    ],
];

/// Largest bytes and operations a second.
const MOST: [u64; 2] = [u64::MAX, u32::MAX as u64];

/// `iotune` of `disk`, its own values before the defaults of the site. `mended`: none when it would be empty.
pub fn iotune<'a>(disk: Vector<'a>, site: &Chain<'a>, mended: bool) -> Option<Element> {
    let value = |name: &'static str| {
        disk.filled_text(name).or_else(|| site.member("DISK", name).and_then(Text::filled))
    };
    if WHO.iter().chain(&MAX).flatten().all(|name| value(name).is_none()) {
        return None;
    }
    let mut iotune = Element::new("iotune");
    for unit in 0..2 {
        let total = value(WHO[unit][0]).is_some() || value(MAX[unit][0]).is_some();
        let whose = if total { 0..1 } else { 1..3 };
        for who in whose {
            let values = [value(WHO[unit][who]), value(MAX[unit][who]), value(LENGTH[unit][who])];
            add_group(&mut iotune, values, NAMES[unit][who], MOST[unit]);
        }
    }
    let size = value("SIZE_IOPS_SEC").filter(|_| WHO[1].iter().any(|name| value(name).is_some()));
    if let Some(size) = size {
        iotune.push(limit("size_iops_sec", size, u64::MAX));
    }
    (!mended || !iotune.children.is_empty()).then_some(iotune)
}

fn add_group(
    iotune: &mut Element,
    [base, max, length]: [Option<Text<'_>>; 3],
    names: [&'static str; 3],
    most: u64,
) {
    if let Some(base) = base {
        iotune.push(limit(names[0], base, most));
    }
    let above = base.map_or(0, |base| number(base.value, most));
    let Some(max) = max.filter(|max| number(max.value, most) > above) else { return };
    iotune.push(limit(names[1], max, most));
    if let Some(length) = length {
        iotune.push(limit(names[2], length, most));
    }
}

fn limit(name: &'static str, text: Text<'_>, most: u64) -> Element {
    let value = number(text.value, most).to_string();
    let from = if value == text.value {
        Provenance::Given(given(text.at))
    } else {
        Provenance::Computed { how: "read as a number", from: vec![given(text.at)] }
    };
    Element::new(name).text(Sourced { value, from })
}

/// Digits only; anything else counts as 0, too many of them as `most`.
fn number(text: &str, most: u64) -> u64 {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    text.parse().unwrap_or(u64::MAX).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_digits_only_and_end_at_the_largest() {
        for (text, value) in [("007", 7), ("5k", 0), ("-5", 0), (" 5", 0), ("99999999999", 4_294_967_295)] {
            assert_eq!(number(text, MOST[1]), value, "{text}");
        }
        assert_eq!(number("99999999999999999999999", MOST[0]), u64::MAX);
    }
}
