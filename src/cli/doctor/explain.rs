//! What a check is about.

use super::front;
use crate::conf::nearest;
use crate::node::check::{Check, TABLES};

/// Every check, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Check> {
    std::iter::once(front::CHECKS).chain(TABLES.iter().copied()).flatten()
}

/// The check called `id`.
///
/// # Errors
/// That there is none, with the nearest one.
pub fn find(id: &str) -> Result<&'static Check, String> {
    if let Some(check) = all().find(|check| check.id == id) {
        return Ok(check);
    }
    let hint = nearest::nearest(id, all().map(|check| check.id));
    let hint =
        hint.map_or_else(|| "docs/doctor.md lists all".to_owned(), |near| format!("did you mean {near}?"));
    Err(format!("there is no check {id:?}; {hint}"))
}

/// The text of `--explain`.
///
/// # Errors
/// As [`find`].
pub fn text(id: &str) -> Result<String, String> {
    let Check { id, group, what, why, mend } = find(id)?;
    Ok(format!("{id} (group {})\n  what  {what}\n  why   {why}\n  mend  {mend}\n", group.word()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_well_formed_and_every_check_is_explained() {
        let mut ids: Vec<&str> = all().map(|check| check.id).collect();
        let good = |id: &&str| id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        assert!(ids.iter().all(good), "{ids:?}");
        assert!(all().all(|check| [check.what, check.why, check.mend].iter().all(|text| text.len() > 8)));
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn an_unknown_check_names_the_nearest() {
        assert!(find("group-libvrt").is_err_and(|why| why.contains("did you mean group-libvirt?")));
        assert!(
            text("qemu-user")
                .is_ok_and(|text| text.contains("group opennebula") && text.contains("qemu.conf"))
        );
    }
}
