//! The driver's user on a host, and other accounts, as the system's databases (files, LDAP) have them.

use std::time::Duration;

use super::access::Who;
use crate::node::tools::{Ask, Tools};

/// Time limit of one question to the databases.
const LIMIT: Duration = Duration::from_secs(10);

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name, numbers of user and groups.
    pub who: Who,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Its home folder.
    pub home: String,
    /// Its login shell.
    pub shell: String,
}

/// Looks `name` up (a number is a name, too). `Ok(None)`: there is none.
///
/// # Errors
/// Why the databases gave no answer.
pub async fn look_up(tools: &dyn Tools, name: &str) -> Result<Option<Account>, String> {
    let Some(line) = entry(tools, "passwd", name).await? else { return Ok(None) };
    let fields: Vec<&str> = line.split(':').collect();
    let [own, _, uid, gid, _, home, shell, ..] = fields[..] else {
        return Err(format!("the entry of {name} in the user database is odd: {line:?}"));
    };
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{line:?} has no number {text:?}"));
    let (uid, gid) = (number(uid)?, number(gid)?);
    let mut gids = vec![gid];
    let all = ask(tools, "id", &["-G", "--", own]).await?;
    gids.extend(all.split_whitespace().filter_map(|word| word.parse::<u32>().ok()).filter(|id| *id != gid));
    let mut groups = Vec::new();
    for id in &gids {
        groups.push(match entry(tools, "group", &id.to_string()).await? {
            Some(line) => line.split(':').next().unwrap_or_default().to_owned(),
            None => id.to_string(),
        });
    }
    let who = Who { name: own.to_owned(), uid, gids };
    Ok(Some(Account { who, groups, home: home.to_owned(), shell: shell.trim().to_owned() }))
}

/// Whether there is a group of this name.
///
/// # Errors
/// Why the database gave no answer.
pub async fn group_exists(tools: &dyn Tools, name: &str) -> Result<bool, String> {
    Ok(entry(tools, "group", name).await?.is_some())
}

/// One line of `getent`; status 2 says that there is none.
async fn entry(tools: &dyn Tools, database: &str, key: &str) -> Result<Option<String>, String> {
    let answer = tools.ask(Ask::new("getent", ["--", database, key], LIMIT)).await?;
    match answer.ended {
        crate::node::tools::Ended::Exited(2) => Ok(None),
        _ => Ok(answer.good("getent", LIMIT)?.lines().next().map(str::to_owned)),
    }
}

async fn ask(tools: &dyn Tools, program: &str, args: &[&str]) -> Result<String, String> {
    tools.ask(Ask::new(program, args.iter().copied(), LIMIT)).await?.good(program, LIMIT)
}

/// Starts programs as another user (`setpriv`); for root only.
pub struct As<T> {
    /// What starts programs as us.
    pub tools: T,
    /// The user.
    pub account: Account,
}

impl<T: std::ops::Deref<Target = dyn Tools> + Send + Sync> Tools for As<T> {
    fn ask(&self, mut ask: Ask) -> crate::host::job::Boxed<'_, Result<crate::node::tools::Answer, String>> {
        let Account { who, home, .. } = &self.account;
        let gid = who.gids.first().copied().unwrap_or(who.uid);
        let mut args = vec![
            format!("--reuid={}", who.uid),
            format!("--regid={gid}"),
            "--init-groups".to_owned(),
            "--".to_owned(),
            std::mem::replace(&mut ask.program, "setpriv".to_owned()),
        ];
        args.append(&mut ask.args);
        ask.args = args;
        for (name, value) in [("HOME", home), ("USER", &who.name), ("LOGNAME", &who.name)] {
            ask.env.insert(0, (name.to_owned(), value.clone()));
        }
        ask.dir.get_or_insert_with(|| "/".into());
        self.tools.ask(ask)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::tools::fake::Fake;

    /// What a host with the users root, oneadmin and libvirt-qemu answers to `getent` and `id`; `None` to all else.
    pub fn databases(ask: &Ask) -> Option<Result<String, (i32, String)>> {
        let words: Vec<&str> = ask.args.iter().map(String::as_str).collect();
        let line = match (ask.program.as_str(), &words[..]) {
            ("getent", ["--", "passwd", "oneadmin" | "9869"]) => {
                "oneadmin:x:9869:9869::/var/lib/one:/bin/bash"
            }
            ("getent", ["--", "passwd", "libvirt-qemu"]) => {
                "libvirt-qemu:x:64055:107::/var/lib/libvirt:/usr/sbin/nologin"
            }
            ("getent", ["--", "passwd", "root" | "0"]) => "root:x:0:0::/root:/bin/bash",
            ("getent", ["--", "group", "9869" | "oneadmin"]) => "oneadmin:x:9869:",
            ("getent", ["--", "group", "107" | "kvm"]) => "kvm:x:107:oneadmin",
            ("getent", ["--", "group", "106" | "libvirt"]) => "libvirt:x:106:oneadmin",
            ("getent", ["--", "group", "0"]) => "root:x:0:",
            ("getent", _) => return Some(Err((2, String::new()))),
            ("id", ["-G", "--", "oneadmin"]) => "9869 106 107",
            ("id", ["-G", "--", "libvirt-qemu"]) => "107",
            ("id", ["-G", "--", "root"]) => "0",
            _ => return None,
        };
        Some(Ok(format!("{line}\n")))
    }

    #[tokio::test]
    async fn an_account_is_looked_up_with_its_groups() {
        let tools = Fake(|ask: &_| databases(ask).expect("a question to the databases"));
        let found = look_up(&tools, "oneadmin").await.expect("an answer").expect("an account");
        assert_eq!(found.who, Who { name: "oneadmin".into(), uid: 9869, gids: vec![9869, 106, 107] });
        assert_eq!(found.groups, ["oneadmin", "libvirt", "kvm"]);
        assert_eq!((found.home.as_str(), found.shell.as_str()), ("/var/lib/one", "/bin/bash"));
        assert_eq!(look_up(&tools, "nobody-here").await, Ok(None));
        let broken = Fake(|_: &_| Err((1, "no server".to_owned())));
        assert!(look_up(&broken, "oneadmin").await.is_err_and(|e| e.contains("no server")));
    }

    #[tokio::test]
    async fn a_program_is_started_as_the_user_with_words_as_they_are() {
        let tools: Arc<dyn Tools> =
            Arc::new(Fake(|ask: &Ask| Ok(format!("{} {}", ask.program, ask.args.join("|")))));
        let who = Who { name: "o".into(), uid: 7, gids: vec![8, 9] };
        let account = Account { who, groups: vec![], home: "/h".into(), shell: String::new() };
        let answer = As { tools, account }.ask(Ask::new("virsh", ["a b", "$c"], LIMIT)).await.expect("one");
        assert_eq!(answer.stdout, "setpriv --reuid=7|--regid=8|--init-groups|--|virsh|a b|$c");
    }
}
