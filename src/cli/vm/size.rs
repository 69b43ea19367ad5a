//! Sizes on the command line.

/// Bytes: a number with K, M, G or T (`20G`, `512MiB`); a bare number is MiB, as OpenNebula counts disks and memory.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size: a number with M, G or T, such as 20G");
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" if unit.trim().is_empty() => 20,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let bytes = number.checked_mul(1 << shift).filter(|bytes| (1..=1 << 50).contains(bytes));
    bytes.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_a_bare_number_is_mib() {
        for (text, size) in
            [("512", 512 << 20), ("20G", 20 << 30), ("20GiB", 20 << 30), ("1t", 1 << 40), ("64 kb", 65536)]
        {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["", "G", "-1", "0", "1.5G", "5X", "99999999999T", "20b"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
