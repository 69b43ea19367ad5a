//! From one host to another.

use std::path::Path;
use std::time::Duration;

use super::files::Files;
use super::job::{Job, time};
use super::libvirt::{Domain, Known, Libvirt};
use super::migration::Migration;
use super::settings::Remedy;
use super::snapshots::Snapshots;
use super::transfer::{Ended, Transfer, arguments};
use super::transport::data_uri;
use super::truth::{Pair, Place};
use super::{End, after, copy, storage};
use crate::node::monitor::virsh::is_uuid;
use crate::template::xml::Document;

/// The domain as it was found.
struct Found {
    pair: Pair,
    name: String,
    persistent: bool,
    domain: Document,
    data: Option<String>,
    snapshots: Snapshots,
}

/// One run of virsh and what came of it.
struct Attempt {
    ended: Ended,
    place: Place,
    /// What the target had of the domain then, and of its job.
    seen: Option<(Domain, Option<Job>)>,
}

/// How long both hosts are asked when virsh is content and they are not.
const CONTENT: Duration = Duration::from_secs(10);

impl Migration<'_> {
    /// To the other host.
    pub async fn to_another_host(&self) -> End {
        match self.begin().await {
            Ok(found) => self.carry_out(&found).await,
            Err(end) => end,
        }
    }

    /// Finds the domain and asks the target. Nothing is changed.
    async fn begin(&self) -> Result<Found, End> {
        let failed = |why: String| self.failed(&why);
        let (source, target) = self.sides().map_err(failed)?;
        let data =
            data_uri(self.kvmrc, &self.action.target).map_err(|error| self.failed(&error.to_string()))?;
        let Some(uuid) = self.uuid(&source).await.map_err(failed)? else {
            return Err(self.not_here(&target).await);
        };
        // Each call is a program and a connection: all at once.
        let (known, text, snapshots, there) = tokio::join!(
            source.known(&uuid),
            source.call(["dumpxml", &uuid]),
            Snapshots::read(&source, &uuid),
            target.domain(&uuid)
        );
        let Some(Known { name, domain: here, persistent }) = known.map_err(failed)? else {
            return Err(self.not_here(&target).await);
        };
        if !here.is_active() {
            return Err(self.failed("it does not run there"));
        }
        if !here.runs() && !source.ever_ran(&uuid).await.map_err(failed)? {
            return Err(self.failed(
                "it stands still and never ran since it came to this host; QEMU up to 9.2 ends when it is to send such a guest: \
                 let it run for a moment first (virsh resume)",
            ));
        }
        let domain = Document::parse(text.map_err(failed)?)
            .map_err(|error| self.failed(&format!("libvirt's XML of it: {error}")))?;
        let (snapshots, there) = (snapshots.map_err(failed)?, there.map_err(failed)?);
        if there.is_active() {
            return Err(
                self.failed("the target has a running domain of the same uuid, which was not touched")
            );
        }
        let pair = Pair { source, target, uuid, ran: here.runs(), free: there == Domain::Gone };
        Ok(Found { pair, name, persistent, domain, data, snapshots })
    }

    /// uuid of the domain; the source has it surely only when it was asked for by name.
    async fn uuid(&self, source: &Libvirt) -> Result<Option<String>, String> {
        let id = self.action.id.to_ascii_lowercase();
        if is_uuid(&id) {
            return Ok(Some(id));
        }
        Ok(source.find(&self.action.id).await?.map(|(uuid, _)| uuid))
    }

    /// The source has no such domain: it may have been migrated by an earlier call whose answer was lost.
    async fn not_here(&self, target: &Libvirt) -> End {
        let there = match target.find(&self.action.id).await {
            Ok(Some((uuid, _))) => target.domain(&uuid).await,
            Ok(None) => Ok(Domain::Gone),
            Err(why) => Err(why),
        };
        match there {
            Ok(domain) if domain.runs() => {
                self.voice.warning(&format!(
                    "domain {} runs on host {} already",
                    self.action.id,
                    target.host()
                ));
                End::Done
            }
            Ok(_) => self.failed("neither host has it running"),
            Err(why) => self.failed(&format!("the source does not have it; {why}")),
        }
    }

    async fn carry_out(&self, found: &Found) -> End {
        let snapshots = &found.snapshots;
        self.keep_snapshots(found);
        let files = match self.take_files(found).await {
            Ok(files) => files,
            Err(why) => return self.failed(&why),
        };
        if let Err(why) = snapshots.forget(&found.pair.source, &found.pair.uuid).await {
            self.return_snapshots(snapshots, &found.pair).await;
            let left = files.undo().await;
            return self.failed(&format!("its snapshots can't be carried over: {why}{left}"));
        }
        let pair = &found.pair;
        if self.term.is_cancelled() {
            self.return_snapshots(snapshots, pair).await;
            return self.failed(&format!("the driver ended it before it began{}", files.undo().await));
        }
        let downtime =
            after::set_downtime(&pair.source, &pair.uuid, self.settings.max_downtime, self.voice).await;
        let Attempt { ended, place, seen } = self.transfer(found, &files.options).await;
        match place {
            Place::Target(warning) => {
                self.arrived(found, &ended, warning, seen).await;
                End::Done
            }
            Place::Source { text, clean } => {
                self.return_snapshots(snapshots, pair).await;
                after::restore_downtime(&pair.source, &pair.uuid, downtime).await;
                let left = if clean { files.undo().await } else { files.left() };
                self.failed(&format!("{}; {text}{left}", why(&ended)))
            }
            Place::NotTarget(text) => {
                self.snapshots_left(snapshots);
                self.failed(&format!("{}; {text}{}", why(&ended), files.left()))
            }
            Place::Unknown(text) => {
                self.snapshots_left(snapshots);
                let text = format!("{}; {text}{}", why(&ended), files.left());
                match self.failed(&text) {
                    End::Failed(text) => End::Unknown(text),
                    end => end,
                }
            }
        }
    }

    /// Brings the files of the VM to the target, when it sees others or the VM goes to another datastore, too.
    async fn take_files(&self, found: &Found) -> Result<Files, String> {
        let mut files = Files::default();
        if self.from_afar && self.action.changes_datastore() {
            return Err("only the script migrate can move a VM to another datastore".to_owned());
        }
        if self.from_afar && self.action.private {
            return Err("its datastore is not shared by the hosts (SHARED): only the script migrate can copy the files; \
                 take -l migrate=migrate_local out of the driver's arguments"
                .to_owned());
        }
        if self.from_afar || (self.action.shared && !self.action.changes_datastore()) {
            return Ok(files);
        }
        let from = self.action.from.clone().or_else(|| after::folder_of(&found.domain));
        let from = from.ok_or("the action does not name the folder of the VM")?;
        let to = self.action.to.clone().unwrap_or_else(|| from.clone());
        let storage = storage::plan(&self.tools, &found.domain, &from, &to, self.settings.ask).await?;
        files.fills(&storage);
        if Path::new(&from).components().ne(Path::new(&to).components()) {
            let uuid = found.pair.uuid.as_str();
            let args = ["dumpxml", "--migratable", "--security-info", uuid];
            files.rewrite("--xml", &found.pair.source.call(args).await?, &storage)?;
            if found.persistent {
                let args = ["dumpxml", "--inactive", "--migratable", "--security-info", uuid];
                files.rewrite("--persistent-xml", &found.pair.source.call(args).await?, &storage)?;
            }
        }
        files.at = Some(copy::Where::Host(self.action.target.clone(), self.remote.to_owned()));
        let stall = self.settings.stall.unwrap_or(self.settings.ask);
        let around =
            copy::Around { term: self.term, voice: self.voice, progress: self.settings.progress, stall };
        files.made = copy::carry(
            &storage,
            &copy::Where::Host(self.action.target.clone(), self.remote.to_owned()),
            &around,
        )
        .await?;
        Ok(files)
    }

    /// Runs virsh, once more without post-copy when that alone could not begin, and finds out where the domain is.
    async fn transfer(&self, found: &Found, more: &[String]) -> Attempt {
        let mut postcopy = self.settings.may(Remedy::PostCopy);
        loop {
            let attempt = self.attempt(found, more, postcopy).await;
            let ended = &attempt.ended;
            let began = ended.last.is_some_and(|job| job.moved() > 0);
            let stayed = matches!(attempt.place, Place::Source { .. });
            let again = postcopy && !began && ended.given_up.is_none() && stayed;
            if !again || ended.result.is_ok() || self.term.is_cancelled() {
                return attempt;
            }
            self.voice.warning(&format!("it is tried again without post-copy: {}", why(ended)));
            postcopy = false;
        }
    }

    async fn attempt(&self, found: &Found, more: &[String], postcopy: bool) -> Attempt {
        let pair = &found.pair;
        let mut more = more.to_vec();
        if found.persistent {
            more.extend(["--persistent", "--undefinesource"].map(str::to_owned));
        }
        let target = pair.target.uri();
        let args = arguments(self.settings, &pair.uuid, target, found.data.as_deref(), postcopy, &more);
        let transfer = Transfer {
            source: &pair.source,
            uuid: &pair.uuid,
            settings: self.settings,
            postcopy,
            term: self.term,
            voice: self.voice,
        };
        let ended = transfer.run(&args).await;
        if ended.result.is_ok() {
            // That virsh is content is no proof.
            let (here, there) = tokio::join!(pair.source.domain(&pair.uuid), pair.target.arrived(&pair.uuid));
            if let (Ok(here), Ok(there)) = (here, there)
                && !here.is_active()
                && there.0.is_active()
            {
                return Attempt { ended, place: Place::Target(None), seen: Some(there) };
            }
        }
        if ended.result.is_err() && !ended.split {
            self.stop_job(pair).await;
        }
        let patience = if ended.result.is_ok() { CONTENT } else { Duration::MAX };
        let patience = patience.min(self.settings.settle);
        let place = match pair.place(patience, self.term, self.voice).await {
            // It has a word where nobody else can be asked, or where the guest has ended since.
            Place::Unknown(text) | Place::NotTarget(text) if ended.result.is_ok() => {
                Place::Target(Some(text))
            }
            place => place,
        };
        Attempt { ended, place, seen: None }
    }

    /// virsh has ended. Peer to peer the migration would go on without it.
    async fn stop_job(&self, pair: &Pair) {
        let hurried = if self.term.is_cancelled() { super::truth::HURRIED } else { self.settings.ask };
        let source = pair.source.hurried(hurried);
        if let Ok(Some(job)) = source.job(&pair.uuid).await
            && job.is_migration()
        {
            self.voice.info("virsh has ended, the migration has not: it is aborted");
            // What became of it is asked next.
            let _ = source.call(["domjobabort", &pair.uuid]).await;
        }
    }

    /// Keeps in the VM's folder the snapshots that it does not hold yet.
    fn keep_snapshots(&self, found: &Found) {
        if let Some(folder) = after::folder_of(&found.domain).filter(|_| !self.from_afar)
            && let Err(why) = found.snapshots.keep(Path::new(&folder))
        {
            self.voice.warning(&why);
        }
    }

    /// Gives them back to the source.
    async fn return_snapshots(&self, snapshots: &Snapshots, pair: &Pair) {
        let folder = self.action.from.as_deref().unwrap_or("/");
        snapshots.give_back(&pair.source, &pair.uuid, folder, self.voice).await;
    }

    fn snapshots_left(&self, snapshots: &Snapshots) {
        if !snapshots.is_empty() {
            let text = format!(
                "{} snapshots are unknown to libvirt until the VM is restored; what it knew of them is in the VM's folder",
                snapshots.len()
            );
            self.voice.error(&text);
        }
    }

    async fn arrived(
        &self,
        found: &Found,
        ended: &Ended,
        warning: Option<String>,
        seen: Option<(Domain, Option<Job>)>,
    ) {
        let (target, uuid) = (&found.pair.target, &found.pair.uuid);
        if let Err(text) = &ended.result {
            self.voice.warning(&format!(
                "virsh reported a failure, but the domain is on host {}: {text}",
                target.host()
            ));
        }
        if let Some(text) = warning {
            self.voice.warning(&text);
        }
        let seen = match seen {
            Some(seen) => Ok(seen),
            None => target.arrived(uuid).await,
        };
        let job = match seen {
            Ok((domain, job)) => {
                after::let_run(target, uuid, found.pair.ran, domain, self.voice).await;
                job
            }
            Err(why) => {
                self.voice.warning(&why);
                None
            }
        };
        let job: Option<Job> = job.or(ended.last);
        let text = job.map_or_else(|| format!("took {}", time(ended.took)), |job| job.summary(ended.took));
        self.voice.info(&format!("domain {} is on host {}: {text}", found.name, target.host()));
        let folder = self.action.to.as_deref().or(self.action.from.as_deref()).unwrap_or("/");
        found.snapshots.give_back(target, uuid, folder, self.voice).await;
        if self.settings.sync_time && !self.term.is_cancelled() {
            after::sync_time(target, uuid, &found.domain, self.voice).await;
        }
        if self.settings.compact && !self.from_afar {
            after::compact(&self.tools, self.voice).await;
        }
    }
}

fn why(ended: &Ended) -> String {
    match (&ended.given_up, &ended.result) {
        (Some(why), _) => format!("it was aborted: {why}"),
        (None, Err(text)) => text.clone(),
        (None, Ok(())) => "virsh reported no failure".to_owned(),
    }
}
