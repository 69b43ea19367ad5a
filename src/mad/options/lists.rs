//! Lists of actions, as `-l` and `-d` have them: `migrate,poll=poll_ganglia , save`.

/// Actions that one option names, some with a script of another name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionList {
    entries: Vec<(String, Option<String>)>,
}

impl ActionList {
    /// Reads a list: entries are separated by commas, blanks around them are dropped, `name=script` is split at the
    /// first `=`, a name is compared in upper case, empty names are dropped, an empty script is none, the later
    /// of two equal names wins.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut list = Self::default();
        for entry in text.split(',') {
            let (name, script) = match entry.split_once('=') {
                Some((name, script)) => (name.trim(), Some(script.trim())),
                None => (entry.trim(), None),
            };
            if name.is_empty() {
                continue;
            }
            let name = name.to_uppercase();
            let script = script.filter(|script| !script.is_empty()).map(str::to_owned);
            list.entries.retain(|(known, _)| *known != name);
            list.entries.push((name, script));
        }
        list
    }

    /// Whether the action (in any case) is in the list.
    #[must_use]
    pub fn contains(&self, action: &str) -> bool {
        self.find(action).is_some()
    }

    /// Name of the script that the list gives the action instead of its own.
    #[must_use]
    pub fn script(&self, action: &str) -> Option<&str> {
        self.find(action).and_then(|(_, script)| script.as_deref())
    }

    /// The names in upper case, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    fn find(&self, action: &str) -> Option<&(String, Option<String>)> {
        let action = action.to_uppercase();
        self.entries.iter().find(|(name, _)| *name == action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_other_scripts_are_read() {
        let list = ActionList::parse("migrate=migrate_local, poll=poll_ganglia ,save");
        assert_eq!(list.names().collect::<Vec<_>>(), ["MIGRATE", "POLL", "SAVE"]);
        assert_eq!(list.script("migrate"), Some("migrate_local"));
        assert_eq!(list.script("Poll"), Some("poll_ganglia"));
        assert_eq!(list.script("save"), None);
        assert!(list.contains("save") && !list.contains("deploy"));
    }

    #[test]
    fn odd_entries_are_taken_as_they_can() {
        let list = ActionList::parse(",, =x, a= ,b=c=d,b=e");
        assert_eq!(list.names().collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!((list.script("a"), list.script("b")), (None, Some("e")));
        assert_eq!(ActionList::parse("b=c=d").script("b"), Some("c=d"));
        assert_eq!(ActionList::parse(""), ActionList::default());
    }
}
