//! What the output of scripts means: a deploy id, a state.

/// The deploy id in what `deploy` printed: the last line that is a UUID or `one-<id>`, whatever else was printed;
/// else the last line when it is one word (other hypervisors have ids of their own form).
///
/// # Errors
/// What is wrong, for people: nothing, `-`, or only prose was printed.
pub(crate) fn deploy_id(stdout: &str) -> Result<String, String> {
    let mut lines = stdout.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    if let Some(id) = lines.clone().find(|line| is_domain_id(line)) {
        return Ok(id.to_owned());
    }
    match lines.next() {
        None | Some("-") => Err("deploy printed no deploy id".to_owned()),
        Some(word) if !word.contains(char::is_whitespace) => Ok(word.to_owned()),
        Some(line) => Err(format!("deploy printed {line:?} where its deploy id is expected")),
    }
}

/// Whether `deploy` of ours says, as it was asked, that the VM ran and there was nothing to start.
pub(crate) fn ran_before(stdout: &str) -> bool {
    stdout.lines().any(|line| line.trim() == "RAN=before")
}

fn is_domain_id(line: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let uuid = line.len() == 36
        && line.bytes().enumerate().all(|(at, byte)| {
            if matches!(at, 8 | 13 | 18 | 23) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        });
    uuid || line.strip_prefix("one-").is_some_and(digits)
}

/// The last line that is not empty.
///
/// # Errors
/// When there is none, or it is `-`.
pub(crate) fn last_line(stdout: &str, what: &str) -> Result<String, String> {
    match stdout.lines().map(str::trim).rfind(|line| !line.is_empty()) {
        None | Some("-") => Err(format!("{what} printed nothing")),
        Some(line) => Ok(line.to_owned()),
    }
}

/// The state in the answer of `poll` (`STATE=a CPU=...`): `a` active, `p` paused, `e` failed, `d` not there.
pub(crate) fn polled_state(stdout: &str) -> Option<char> {
    let state = stdout.split_whitespace().find_map(|word| word.strip_prefix("STATE="))?;
    state.trim_matches(['"', '\'']).chars().next().map(|c| c.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deploy_id_is_found_behind_stray_output_and_its_absence_is_a_failure() {
        let uuid = "7eba4a6c-4fa0-4a37-8f35-677b6dcc3662";
        assert_eq!(deploy_id(&format!("{uuid}\n")).as_deref(), Ok(uuid));
        assert_eq!(deploy_id(&format!("Domain created\n {uuid} \nbye now\n")).as_deref(), Ok(uuid));
        assert_eq!(deploy_id("one-7\n").as_deref(), Ok("one-7"));
        assert_eq!(deploy_id("host1:lc-dummy:dummy\n").as_deref(), Ok("host1:lc-dummy:dummy"));
        for bad in ["", "\n\n", "-", " - \n", "two words"] {
            assert!(deploy_id(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_state_of_a_poll_is_read() {
        assert_eq!(polled_state("STATE=a CPU=3\n"), Some('a'));
        assert_eq!(polled_state("CPU=3 STATE=\"D\""), Some('d'));
        assert_eq!(polled_state("nothing"), None);
        assert_eq!(polled_state("STATE="), None);
    }
}
