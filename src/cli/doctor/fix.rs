//! The dialogue of `--fix`: shows each edit, asks, and has it made.

use std::io::{BufRead, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use super::places::{Places, Seen};
use crate::cli::plain;
use crate::node::check::edit::Edit;
use crate::node::check::{Finding, Fix, Verdict};

/// With whom it is spoken.
pub struct Talk<'a> {
    /// Answers, a line each.
    pub input: &'a mut dyn BufRead,
    /// Questions.
    pub out: &'a mut dyn Write,
    /// Every answer is yes.
    pub yes: bool,
}

/// What came of it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Something was changed.
    pub changed: bool,
    /// Something was not: refused, not allowed, or failed.
    pub left: bool,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    All,
    Quit,
}

/// Mends what `seen` found.
///
/// # Errors
/// When the dialogue breaks off, or the host can't be asked.
pub async fn mend(places: &Places, seen: &Seen, talk: &mut Talk<'_>) -> Result<Done, String> {
    let fixes: Vec<(&Finding, &Fix)> = seen
        .findings
        .iter()
        .filter(|finding| matches!(finding.verdict, Verdict::Failure | Verdict::Warning))
        .filter_map(|finding| Some((finding, finding.fix.as_deref()?)))
        .collect();
    let name = seen.title();
    if fixes.is_empty() {
        talk.say(&format!("{name}: there is nothing more that --fix can mend"))?;
        return Ok(Done::default());
    }
    if !seen.report.as_ref().is_some_and(|report| report.root) {
        let ids: Vec<&str> = fixes.iter().map(|(finding, _)| finding.id.as_ref()).collect();
        let how = match &seen.host {
            Some(host) => format!("kvmad doctor --fix root@{host}, or `kvmad doctor --fix` as root on it"),
            None => "run it as root".to_owned(),
        };
        talk.say(&format!("{name}: mending {} needs root's rights: {how}", ids.join(", ")))?;
        return Ok(Done { changed: false, left: true });
    }
    let edits = unique(&fixes);
    let shown = places.show(seen, &edits.iter().map(|(_, edit)| (*edit).clone()).collect::<Vec<_>>()).await?;
    let mut done = Done::default();
    let accepted = talk.choose(&name, &edits, &shown, &mut done)?;
    if accepted.is_empty() {
        return Ok(done);
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    for result in places.apply(seen, &accepted, &seconds.to_string()).await? {
        match result {
            Ok(text) => {
                done.changed = true;
                talk.say(&format!("{name}: {text}"))?;
            }
            Err(reason) => {
                done.left = true;
                talk.say(&format!("{name}: not done: {reason}"))?;
            }
        }
    }
    for after in afterwards(&fixes, &accepted) {
        talk.say(&format!("{name}: it counts after: {after}"))?;
    }
    Ok(done)
}

/// The edits with the check that asks for each; one that several ask for once.
fn unique<'a>(fixes: &[(&'a Finding, &'a Fix)]) -> Vec<(&'a Finding, &'a Edit)> {
    let mut all: Vec<(&Finding, &Edit)> = Vec::new();
    for (finding, fix) in fixes {
        for edit in &fix.edits {
            if !all.iter().any(|(_, other)| *other == edit) {
                all.push((finding, edit));
            }
        }
    }
    all
}

/// What a person must do for the edits that were made; each once.
fn afterwards<'a>(fixes: &[(&'a Finding, &'a Fix)], made: &[Edit]) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for (_, fix) in fixes {
        let counts = fix.edits.iter().any(|edit| made.contains(edit)) && !fix.after.is_empty();
        if counts && !all.contains(&fix.after.as_str()) {
            all.push(&fix.after);
        }
    }
    all
}

impl Talk<'_> {
    fn say(&mut self, text: &str) -> Result<(), String> {
        writeln!(self.out, "{}", plain(text)).map_err(|error| format!("the output can't be written: {error}"))
    }

    /// Shows each edit and asks.
    fn choose(
        &mut self,
        name: &str,
        edits: &[(&Finding, &Edit)],
        shown: &[Result<Vec<String>, String>],
        done: &mut Done,
    ) -> Result<Vec<Edit>, String> {
        let mut accepted = Vec::new();
        let mut answer = if self.yes { Answer::All } else { Answer::No };
        for ((finding, edit), shown) in edits.iter().zip(shown) {
            let lines = match shown {
                Err(reason) => {
                    done.left = true;
                    self.say(&format!("{name}: {}: {reason}", finding.id))?;
                    continue;
                }
                Ok(lines) if lines.is_empty() => continue,
                Ok(lines) => lines,
            };
            self.say(&format!("{name}: {} ({})", finding.id, finding.evidence))?;
            for line in lines {
                self.say(&format!("    {line}"))?;
            }
            if answer != Answer::All && answer != Answer::Quit {
                answer = self.ask()?;
            }
            if matches!(answer, Answer::Yes | Answer::All) {
                accepted.push((*edit).clone());
            } else {
                done.left = true;
            }
        }
        Ok(accepted)
    }

    fn ask(&mut self) -> Result<Answer, String> {
        let broken = |error: std::io::Error| format!("no answer: {error}");
        write!(self.out, "    do it? [y]es, [n]o, [a]ll, [q]uit: ")
            .and_then(|()| self.out.flush())
            .map_err(broken)?;
        let mut line = String::new();
        // The end of the input is no answer: nothing more is done.
        if self.input.read_line(&mut line).map_err(broken)? == 0 {
            self.say("")?;
            return Ok(Answer::Quit);
        }
        Ok(match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Answer::Yes,
            "a" | "all" => Answer::All,
            "q" | "quit" => Answer::Quit,
            _ => Answer::No,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::check::Group;

    fn member(group: &str) -> Edit {
        Edit::Member { user: "oneadmin".into(), group: group.into() }
    }

    fn finding(edit: Edit) -> Finding {
        Finding::bad("group-kvm", Group::Opennebula, Verdict::Failure, "not in it", "mend").with_edits([edit])
    }

    /// Asks about four edits, the third of which can't be shown, with these answers.
    fn chosen(answers: &str, yes: bool) -> (Vec<Edit>, Done, String) {
        let edits = ["a", "b", "c", "d"].map(member);
        let findings = edits.clone().map(finding);
        let pairs: Vec<(&Finding, &Edit)> = findings.iter().zip(&edits).collect();
        let shown = ["a", "b", "", "d"].map(|name| match name {
            "" => Err("can't be read".to_owned()),
            name => Ok(vec![format!("usermod {name}")]),
        });
        let mut out = Vec::new();
        let mut input = answers.as_bytes();
        let mut done = Done::default();
        let accepted = Talk { input: &mut input, out: &mut out, yes }.choose("n", &pairs, &shown, &mut done);
        (accepted.expect("a dialogue"), done, String::from_utf8(out).expect("text"))
    }

    #[test]
    fn nothing_is_accepted_without_a_yes() {
        for answers in ["", "n\nn\nn\n", "\n\n\n", "what\nn\nn\n", "q\n"] {
            let (accepted, done, _) = chosen(answers, false);
            assert_eq!((accepted, done.left), (vec![], true), "{answers:?}");
        }
    }

    #[test]
    fn answers_count_for_one_or_for_all_and_every_edit_is_shown() {
        assert_eq!(chosen("y\nn\ny\n", false).0, [member("a"), member("d")]);
        assert_eq!(chosen("n\na\n", false).0, [member("b"), member("d")]);
        assert_eq!(chosen("y\nq\n", false).0, [member("a")]);
        let (accepted, done, text) = chosen("", true);
        assert_eq!(accepted, [member("a"), member("b"), member("d")]);
        assert!(done.left, "one can't be shown");
        for shown in ["usermod a", "usermod b", "usermod d", "can't be read"] {
            assert!(text.contains(shown), "{text}");
        }
    }

    #[test]
    fn an_edit_that_two_checks_ask_for_is_made_once_and_what_follows_is_said_once() {
        let one = finding(member("a")).after("restart it");
        let two = finding(member("a")).after("restart it");
        let three = finding(member("b")).after("log in anew");
        let fixes: Vec<(&Finding, &Fix)> =
            [&one, &two, &three].map(|f| (f, f.fix.as_deref().expect("a fix"))).into();
        assert_eq!(unique(&fixes).len(), 2);
        assert_eq!(afterwards(&fixes, &[member("a")]), ["restart it"]);
    }
}
