//! The known word that a misspelt one is nearest to.

/// The one of `known` that differs from `word` least, if it differs little: at most a third of its letters,
/// at most three. Case does not count.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(64).map(|c| c.to_ascii_uppercase()).collect();
    let limit = (word.len() / 3).clamp(1, 3);
    let measured = known.into_iter().map(|other| (distance(&word, other), other));
    measured
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// How many letters have to be put in, taken out, changed or swapped with their neighbour.
fn distance(word: &[char], other: &str) -> usize {
    let other: Vec<char> = other.chars().map(|c| c.to_ascii_uppercase()).collect();
    let width = other.len() + 1;
    let mut rows: Vec<Vec<usize>> = vec![(0..width).collect()];
    for (i, a) in word.iter().enumerate() {
        let mut row = vec![i + 1; width];
        for (j, b) in other.iter().enumerate() {
            let change = rows[i][j] + usize::from(a != b);
            row[j + 1] = change.min(rows[i][j + 1] + 1).min(row[j] + 1);
            let swapped = i > 0 && j > 0 && *a == other[j - 1] && word[i - 1] == *b;
            if swapped {
                row[j + 1] = row[j + 1].min(rows[i - 1][j - 1] + 1);
            }
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_finds_none() {
        let known = ["EMULATOR", "MEMORY_SLOTS", "ACPI", "APIC", "PAE"];
        for (word, expected) in [
            ("EMULATR", Some("EMULATOR")),
            ("emulator", Some("EMULATOR")),
            ("MEMORYSLOTS", Some("MEMORY_SLOTS")),
            ("ACIP", Some("ACPI")),
            ("PEA", Some("PAE")),
            ("BOGUS", None),
            ("", None),
            ("X", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest(&"é".repeat(1_000_000), known), None);
    }
}
