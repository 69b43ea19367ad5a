//! The libvirt of one host, through `virsh`. Every call has a time limit. Where several commands go to one `virsh` (a
//! connection to another host costs more than the question), only fixed words, checked uuids and names of our own
//! temporary files stand in the text.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::job::Job;
use crate::node::monitor::virsh::is_uuid;
use crate::node::tools::{Ask, Tools};

/// Separates the outputs of two commands.
const MARK: &str = "=kvmad=";

/// What a host has of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// libvirt knows no such domain.
    Gone,
    /// It is defined and does not run.
    Off,
    /// It is there, in libvirt's state and for libvirt's reason, as numbers.
    Active(u8, u8),
}

impl Domain {
    /// Whether its processors run (or would, had the guest not put itself to sleep).
    #[must_use]
    pub fn runs(self) -> bool {
        matches!(self, Self::Active(1 | 2 | 4 | 7, _))
    }

    /// Whether something of it is there that could run.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Active(..))
    }
}

/// A domain that a host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// What it does.
    pub domain: Domain,
    /// It has a definition that outlives it.
    pub persistent: bool,
}

/// libvirt of one host.
#[derive(Clone)]
pub struct Libvirt {
    tools: Arc<dyn Tools>,
    host: String,
    uri: String,
    limit: Duration,
}

impl Libvirt {
    /// `limit` is for calls that only ask or set something. `host` names it in messages.
    #[must_use]
    pub fn new(tools: Arc<dyn Tools>, host: &str, uri: &str, limit: Duration) -> Self {
        Self { tools, host: host.to_owned(), uri: uri.to_owned(), limit }
    }

    /// The same with less time for each call.
    #[must_use]
    pub fn hurried(&self, limit: Duration) -> Self {
        Self { limit: limit.min(self.limit), ..self.clone() }
    }

    /// Its host, as people name it.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its URI.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// One call; what it printed.
    ///
    /// # Errors
    /// Why libvirt did not do it, naming the host.
    pub async fn call<T: Into<String>>(&self, args: impl IntoIterator<Item = T>) -> Result<String, String> {
        self.within(self.limit, args).await
    }

    /// As [`Libvirt::call`] with a limit of its own.
    ///
    /// # Errors
    /// As [`Libvirt::call`].
    pub async fn within<T: Into<String>>(
        &self,
        limit: Duration,
        args: impl IntoIterator<Item = T>,
    ) -> Result<String, String> {
        self.give(limit, args, Bytes::new()).await
    }

    /// As [`Libvirt::within`] with `stdin` to be read from `/dev/stdin`.
    ///
    /// # Errors
    /// As [`Libvirt::call`].
    pub async fn give<T: Into<String>>(
        &self,
        limit: Duration,
        args: impl IntoIterator<Item = T>,
        stdin: Bytes,
    ) -> Result<String, String> {
        let mut all = vec!["--quiet".to_owned(), "--connect".to_owned(), self.uri.clone()];
        all.extend(args.into_iter().map(Into::into));
        let ask = Ask { stdin, ..Ask::new("virsh", all, limit) };
        let answer = self.tools.ask(ask).await.and_then(|answer| answer.good("virsh", limit));
        answer.map_err(|why| format!("libvirt of {}: {}", self.host, why.replace("error: ", "")))
    }

    /// uuid and name of the domain called `id`, a uuid or a name; `None` when libvirt has no such domain.
    ///
    /// # Errors
    /// As [`Libvirt::call`].
    pub async fn find(&self, id: &str) -> Result<Option<(String, String)>, String> {
        let list = self.call(["list", "--all", "--uuid", "--name"]).await?;
        let wanted = id.to_ascii_lowercase();
        Ok(list.lines().filter_map(|line| line.trim_end().split_once(' ')).find_map(|(uuid, name)| {
            let is = is_uuid(uuid) && (uuid == wanted || name == id);
            is.then(|| (uuid.to_owned(), name.to_owned()))
        }))
    }

    /// What the host has of the domain.
    ///
    /// # Errors
    /// When libvirt did not say; that never means that it is gone.
    pub async fn domain(&self, uuid: &str) -> Result<Domain, String> {
        let text = self.ask_state(uuid, "", "").await?;
        self.read_domain(&text, uuid)
    }

    /// The same, and what libvirt keeps of a job that has ended there.
    ///
    /// # Errors
    /// As [`Libvirt::domain`].
    pub async fn arrived(&self, uuid: &str) -> Result<(Domain, Option<Job>), String> {
        let text = self
            .ask_state(uuid, &format!("domjobinfo {uuid} --completed --rawstats; echo {MARK}; "), "")
            .await?;
        let (job, rest) = text.split_once(MARK).unwrap_or_default();
        Ok((self.read_domain(rest, uuid)?, Job::read(job)))
    }

    /// All that is asked of a domain before it is moved, in one call; `None` when libvirt has no such domain.
    ///
    /// # Errors
    /// As [`Libvirt::domain`].
    pub async fn known(&self, uuid: &str) -> Result<Option<Known>, String> {
        let before = format!("list --all --persistent --uuid; echo {MARK}; ");
        let text = self.ask_state(uuid, &before, " --name").await?;
        let (persistent, rest) = text.split_once(MARK).unwrap_or_default();
        let (state, list) = rest.split_once(MARK).unwrap_or_default();
        let named = list.lines().filter_map(|line| line.trim().split_once(' '));
        let Some((_, name)) = named.into_iter().find(|(one, _)| *one == uuid) else { return Ok(None) };
        let domain = self.read_domain(&format!("{state}{MARK}{uuid}"), uuid)?;
        let persistent = persistent.lines().any(|line| line.trim() == uuid);
        Ok(Some(Known { name: name.to_owned(), domain, persistent }))
    }

    /// The list comes last, because the status of the whole is that of the last command.
    async fn ask_state(&self, uuid: &str, before: &str, listed: &str) -> Result<String, String> {
        if !is_uuid(uuid) {
            return Err(format!("{uuid:?} is no uuid of a domain"));
        }
        let state = format!("domstats --raw --nowait --state {uuid}");
        self.call([format!("{before}{state}; echo {MARK}; list --all --uuid{listed}")]).await
    }

    fn read_domain(&self, text: &str, uuid: &str) -> Result<Domain, String> {
        let (state, list) = text.split_once(MARK).unwrap_or_default();
        if !list.lines().any(|line| line.trim() == uuid) {
            return Ok(Domain::Gone);
        }
        let number = |key: &str| {
            let line = state.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
            line.and_then(|value| value.parse::<u8>().ok())
        };
        match number("state.state") {
            Some(5) => Ok(Domain::Off),
            Some(state) => Ok(Domain::Active(state, number("state.reason").unwrap_or(0))),
            None => Err(format!("libvirt of {} has the domain and gives no state of it", self.host)),
        }
    }

    /// The job that runs on the domain; `None` when there is none.
    ///
    /// # Errors
    /// As [`Libvirt::call`].
    pub async fn job(&self, uuid: &str) -> Result<Option<Job>, String> {
        self.call(["domjobinfo", uuid, "--rawstats"]).await.map(|text| Job::read(&text))
    }

    /// Whether the domain's processors ever ran in this process of QEMU; they have less than 50 ms when it only arrived.
    ///
    /// # Errors
    /// As [`Libvirt::call`].
    pub async fn ever_ran(&self, uuid: &str) -> Result<bool, String> {
        let text = self.call(["domstats", "--raw", "--nowait", "--vcpu", uuid]).await?;
        let times = text.lines().filter_map(|line| line.trim().strip_prefix("vcpu.")?.split_once(".time="));
        let nanoseconds: u64 = times.filter_map(|(_, time)| time.parse::<u64>().ok()).sum();
        Ok(nanoseconds >= 50_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tools::fake::Fake;

    const A: &str = "19062f04-b7aa-4e3e-8fcd-de3db72803d6";
    const B: &str = "d5927dae-fd85-4012-87a5-8fcb225a4f22";

    fn libvirt(answer: impl Fn(&Ask) -> Result<String, (i32, String)> + Send + Sync + 'static) -> Libvirt {
        Libvirt::new(Arc::new(Fake(answer)), "node2", "qemu+tcp://node2/system", Duration::from_secs(9))
    }

    async fn domain(text: &'static str) -> Result<Domain, String> {
        libvirt(move |_| Ok(text.replace("A!", A))).domain(A).await
    }

    #[tokio::test]
    async fn a_domain_is_gone_only_when_a_list_lacks_it() {
        let stats = "Domain: 'one-7'\n  state.state=3\n  state.reason=2\n=kvmad=\nA!\n\n";
        assert_eq!(domain(stats).await, Ok(Domain::Active(3, 2)));
        assert_eq!(domain("=kvmad=\n\n").await, Ok(Domain::Gone));
        assert_eq!(domain("Domain: 'one-7'\n  state.state=5\n=kvmad=A!\n").await, Ok(Domain::Off));
        assert!(domain("=kvmad=A!\n").await.is_err(), "there, but in what state?");
        let down = libvirt(|_| Err((1, "error: failed to connect".into()))).domain(A).await;
        assert_eq!(down, Err("libvirt of node2: virsh failed (exit status 1): failed to connect".into()));
    }

    #[tokio::test]
    async fn what_is_known_of_a_domain_is_asked_in_one_call() {
        let known = |text: &'static str| async move {
            libvirt(move |_| Ok(text.replace("A!", A).replace("B!", B))).known(A).await
        };
        let stats = "Domain: 'one 7'\n  state.state=1\n  state.reason=1\n";
        let text: &'static str =
            Box::leak(format!("B!\n\n=kvmad=\n{stats}\n=kvmad=\nA! one 7\nB! x\n").into_boxed_str());
        let one = Known { name: "one 7".to_owned(), domain: Domain::Active(1, 1), persistent: false };
        assert_eq!(known(text).await, Ok(Some(one.clone())));
        let text: &'static str = Box::leak(format!("A!\n{}", &text[2..]).into_boxed_str());
        assert_eq!(known(text).await, Ok(Some(Known { persistent: true, ..one })));
        assert_eq!(known("=kvmad=\n=kvmad=\nB! x\n").await, Ok(None));
        assert!(known("=kvmad=\n=kvmad=\nA! x\n").await.is_err(), "there, but in what state?");
    }

    #[tokio::test]
    async fn a_guest_that_only_arrived_never_ran() {
        // As libvirt 9.0.0 prints it: before, and after it ran for a second.
        let stats = "Domain: 'one-7'\n  vcpu.current=2\n  vcpu.0.state=1\n  vcpu.0.time=TIME\n  vcpu.0.delay=22901812\n  vcpu.1.time=0\n";
        let ran = |time: &'static str| async move {
            libvirt(move |_| Ok(stats.replace("TIME", time))).ever_ran(A).await
        };
        assert_eq!(ran("0").await, Ok(false));
        assert_eq!(ran("280000000").await, Ok(true));
    }

    #[tokio::test]
    async fn only_a_uuid_comes_into_a_text_of_several_commands() {
        let never = libvirt(|ask| panic!("asked {:?}", ask.args));
        assert!(never.domain("x; destroy y").await.is_err());
    }

    #[tokio::test]
    async fn a_domain_is_found_by_uuid_in_any_case_and_by_its_whole_name() {
        let list = libvirt(|_| Ok(format!("{A} one-11\n{B} one-1\n\n")));
        let found = |id: &'static str| list.find(id);
        assert_eq!(found("one-1").await, Ok(Some((B.to_owned(), "one-1".to_owned()))));
        assert_eq!(
            found("19062F04-B7AA-4E3E-8FCD-DE3DB72803D6").await.map(|d| d.map(|d| d.0)),
            Ok(Some(A.to_owned()))
        );
        assert_eq!(found("one").await, Ok(None));
    }
}
