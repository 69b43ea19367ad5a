//! From one datastore to another on the same host, while the guest runs.
//!
//! First everything is copied, each disk kept equal to its copy from then on; then, while the guest stands still for a
//! moment, every disk changes over to its copy. Until the last one has, an error brings every disk back to where it was.
//! Which file a disk uses is asked of libvirt, never assumed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::job::{bytes, time};
use super::libvirt::Libvirt;
use super::migration::Migration;
use super::receive::Made;
use super::snapshots::Snapshots;
use super::storage::{self, Disk, Storage};
use super::{End, copy};
use crate::node::xml::relocate::relocate;
use crate::template::xml::Document;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// For what was made to be taken away.
const UNDO: Duration = Duration::from_secs(20);

/// What a disk of the running domain uses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Use {
    file: PathBuf,
    /// It is being copied; whether the copy is equal.
    copied: Option<bool>,
}

/// One move.
struct Move<'a> {
    migration: &'a Migration<'a>,
    libvirt: Libvirt,
    uuid: String,
    ran: bool,
    storage: Storage,
}

/// Moves the domain from the folder `from` to `to`.
pub async fn run(migration: &Migration<'_>, libvirt: &Libvirt) -> End {
    let id = &migration.action.id;
    match moved(migration, libvirt).await {
        Ok(text) => {
            migration.voice.info(&text);
            End::Done
        }
        Err(Trouble { why, apart }) => {
            let host = libvirt.host();
            let text = format!("Could not move domain {id} to another datastore on host {host}: {why}");
            if apart { End::Unknown(text) } else { End::Failed(text) }
        }
    }
}

/// Why it is not done.
struct Trouble {
    why: String,
    /// Its disks lie in both folders now: what the driver would undo may be in use.
    apart: bool,
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self { why, apart: false }
    }
}

async fn moved(migration: &Migration<'_>, libvirt: &Libvirt) -> Result<String, Trouble> {
    let begin = Instant::now();
    let action = migration.action;
    let (Some(from), Some(to)) = (&action.from, &action.to) else {
        return Err("the action does not name both folders of the VM".to_owned().into());
    };
    if Path::new(from).components().eq(Path::new(to).components()) {
        return Err("host and datastore are those where it is; there is nothing to move".to_owned().into());
    }
    let (uuid, name) = libvirt.find(&action.id).await?.ok_or_else(|| "there is no such domain".to_owned())?;
    let here = libvirt.domain(&uuid).await?;
    if !here.is_active() {
        return Err("it does not run".to_owned().into());
    }
    let domain = dump(libvirt, &uuid).await?;
    let storage = storage::plan(&migration.tools, &domain, from, to, migration.settings.ask).await?;
    let snapshots = Snapshots::read(libvirt, &uuid).await?;
    let this = Move { migration, libvirt: libvirt.clone(), uuid, ran: here.runs(), storage };
    if let Err(why) = snapshots.keep(Path::new(from)) {
        migration.voice.warning(&why);
    }
    let stall = migration.settings.stall.unwrap_or(migration.settings.ask);
    let (term, voice) = (migration.term, migration.voice);
    let around = copy::Around { term, voice, progress: migration.settings.progress, stall };
    let made = copy::carry(&this.storage, &copy::Where::Here, &around).await?;
    match this.change_over(&snapshots).await {
        Ok(()) => {
            this.settled(&snapshots, from, to, &domain).await;
            let count = this.storage.disks.len();
            let took = time(begin.elapsed());
            Ok(format!(
                "domain {name} is in {to}: {count} disks were copied, {} in all, {took}",
                bytes(this.storage.bytes)
            ))
        }
        Err(why) => {
            let back = this.put_back(&snapshots, from, made).await;
            let (apart, text) = (back.is_err(), back.unwrap_or_else(|text| text));
            Err(Trouble { why: format!("{why}; {text}"), apart })
        }
    }
}

async fn dump(libvirt: &Libvirt, uuid: &str) -> Result<Document, String> {
    let text = libvirt.call(["dumpxml", uuid]).await?;
    Document::parse(text).map_err(|error| format!("libvirt's XML of the domain: {error}"))
}

/// What each disk uses now, by its name in the guest.
fn uses(domain: &Document) -> BTreeMap<String, Use> {
    let disks = domain.root().children("devices").flat_map(|devices| devices.children("disk"));
    let each = disks.filter_map(|disk| {
        let target = disk.child("target")?.attribute("dev")?.to_owned();
        let file = disk.child("source")?.attribute("file")?;
        let copied = disk.child("mirror").map(|mirror| mirror.attribute("ready") == Some("yes"));
        Some((target, Use { file: clean(file), copied }))
    });
    each.collect()
}

fn clean(path: &str) -> PathBuf {
    Path::new(path).components().collect()
}

impl Move<'_> {
    /// Disks that are copied by libvirt: those that are written, and read-only ones that are no media.
    fn copied(&self) -> impl Iterator<Item = &Disk> {
        self.storage.disks.iter().chain(self.storage.read_only.iter().filter(|disk| disk.device == "disk"))
    }

    fn media(&self) -> impl Iterator<Item = &Disk> {
        self.storage.read_only.iter().filter(|disk| disk.device != "disk")
    }

    async fn call(&self, args: &[&str]) -> Result<(), String> {
        self.libvirt.call(args.iter().copied()).await.map(|_| ())
    }

    async fn change_over(&self, snapshots: &Snapshots) -> Result<(), String> {
        snapshots.forget(&self.libvirt, &self.uuid).await?;
        for disk in self.copied() {
            self.begin_copy(disk, &disk.file).await?;
        }
        self.equal(self.migration.settings.time_limit, true).await?;
        for disk in self.media() {
            self.change_medium(disk, &disk.file).await?;
        }
        self.pivot_all().await
    }

    async fn begin_copy(&self, disk: &Disk, file: &str) -> Result<(), String> {
        let mut args = vec!["blockcopy", "--domain", &self.uuid, "--path", &disk.target, "--dest", file];
        args.extend(["--format", &disk.format, "--reuse-external", "--transient-job"]);
        if disk.layered {
            args.push("--shallow");
        }
        let bandwidth = self.migration.settings.bandwidth.to_string();
        if bandwidth != "0" {
            args.extend(["--bandwidth", &bandwidth]);
        }
        self.call(&args).await
    }

    async fn change_medium(&self, disk: &Disk, file: &str) -> Result<(), String> {
        self.call(&["change-media", &self.uuid, &disk.target, file, "--update", "--live", "--force"]).await
    }

    /// Waits until every copy is equal to its disk. `heeds` the wish of the driver to end.
    async fn equal(&self, limit: Option<Duration>, heeds: bool) -> Result<(), String> {
        let settings = self.migration.settings;
        let begin = Instant::now();
        let (mut done, mut moved_at, mut told_at) = (0, begin, begin);
        loop {
            if heeds && self.migration.term.is_cancelled() {
                return Err("the driver ended it".to_owned());
            }
            let now = self.uses_patiently().await?;
            let copies: Vec<_> =
                self.copied().map(|disk| now.get(&disk.target).and_then(|one| one.copied)).collect();
            if copies.iter().all(|ready| *ready == Some(true)) {
                return Ok(());
            }
            if copies.contains(&None) {
                return Err("the copy of a disk broke off".to_owned());
            }
            let (current, end) = self.progress().await;
            if current != done {
                (done, moved_at) = (current, Instant::now());
            }
            if settings.progress.is_some_and(|every| told_at.elapsed() >= every) {
                told_at = Instant::now();
                self.migration.voice.info(&format!(
                    "{} of {} of the disks copied",
                    bytes(current),
                    bytes(end)
                ));
            }
            if settings.stall.is_some_and(|patience| moved_at.elapsed() >= patience) {
                return Err(format!("nothing was copied for {}", time(moved_at.elapsed())));
            }
            if limit.is_some_and(|limit| begin.elapsed() >= limit) {
                return Err(format!("it is not done after {}", time(begin.elapsed())));
            }
            sleep(LOOK).await;
        }
    }

    /// Bytes that are copied, and of how many.
    async fn progress(&self) -> (u64, u64) {
        let mut sum = (0, 0);
        for disk in self.copied() {
            let text =
                self.libvirt.call(["blockjob", &self.uuid, &disk.target, "--raw"]).await.unwrap_or_default();
            let number = |key: &str| {
                let line = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
                line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            sum = (sum.0 + number("cur"), sum.1 + number("end"));
        }
        sum
    }

    /// While the guest stands still nothing is written, so the old files stay equal to the new ones: there is a way back.
    async fn pivot_all(&self) -> Result<(), String> {
        if self.ran {
            self.call(&["suspend", &self.uuid]).await?;
        }
        for disk in self.copied() {
            self.call(&["blockjob", &self.uuid, &disk.target, "--pivot"]).await?;
        }
        let now = uses(&dump(&self.libvirt, &self.uuid).await?);
        let all = self.copied().chain(self.media());
        let stays = all.filter(|disk| now.get(&disk.target).is_none_or(|one| one.file != clean(&disk.file)));
        let stays: Vec<_> = stays.map(|disk| disk.target.as_str()).collect();
        if !stays.is_empty() {
            return Err(format!("{} did not change over", stays.join(", ")));
        }
        if self.ran {
            self.resume().await;
        }
        Ok(())
    }

    async fn resume(&self) {
        let until = Instant::now() + self.migration.settings.settle;
        loop {
            let why = match self.libvirt.domain(&self.uuid).await {
                Ok(domain) if domain.runs() || !domain.is_active() => return,
                Ok(_) => self.call(&["resume", &self.uuid]).await.err(),
                Err(why) => Some(why),
            };
            if let Some(why) = why.filter(|_| Instant::now() >= until) {
                return self.migration.voice.error(&format!("the guest stands still: {why}"));
            }
            sleep(LOOK).await;
        }
    }

    /// What is told to libvirt when all is in its new place.
    async fn settled(&self, snapshots: &Snapshots, from: &str, to: &str, domain: &Document) {
        let voice = self.migration.voice;
        if let Err(why) = self.note_folder(to).await {
            voice.warning(&format!("the domain's metadata still name the old folder: {why}"));
        }
        snapshots.give_back(&self.libvirt, &self.uuid, to, voice).await;
        let nvram = domain.root().text_at("os/nvram").unwrap_or_default();
        if clean(nvram.trim()).starts_with(clean(from)) {
            voice.warning(&format!(
                "until the VM is stopped its firmware keeps its variables in {}",
                nvram.trim()
            ));
        }
    }

    async fn note_folder(&self, to: &str) -> Result<(), String> {
        let kvmrc = self.migration.kvmrc;
        let uri =
            kvmrc("LIBVIRT_MD_URI").unwrap_or_else(|| "http://opennebula.org/xmlns/libvirt/1.0".to_owned());
        let key = kvmrc("LIBVIRT_MD_KEY").unwrap_or_else(|| "one".to_owned());
        let text = self.libvirt.call(["metadata", &self.uuid, &uri]).await?;
        let document = Document::parse(text).map_err(|error| error.to_string())?;
        let moved = relocate(&document, to).map_err(|error| error.to_string())?;
        self.call(&["metadata", &self.uuid, &uri, "--key", &key, "--live", "--set", &moved]).await
    }

    /// Brings every disk back; what is to be said of it, as an error when a disk is not where it was.
    async fn put_back(&self, snapshots: &Snapshots, from: &str, made: Vec<Made>) -> Result<String, String> {
        let back = self.disks_back().await;
        if self.ran {
            self.resume().await;
        }
        snapshots.give_back(&self.libvirt, &self.uuid, from, self.migration.voice).await;
        if let Err(why) = back {
            return Err(format!(
                "not every disk could be brought back: {why}; nothing was removed in {from} and {}",
                self.storage.to
            ));
        }
        let what = "the VM uses its disks where they were";
        Ok(match copy::undo(made, &copy::Where::Here, UNDO).await {
            Ok(()) => what.to_owned(),
            Err(why) => format!("{what}; what was made for it is left: {why}"),
        })
    }

    async fn disks_back(&self) -> Result<(), String> {
        let now = self.uses_patiently().await?;
        let using = |disk: &&Disk| now.get(&disk.target).is_some_and(|one| one.file == clean(&disk.file));
        for disk in self.copied().filter(|disk| now.get(&disk.target).is_some_and(|one| one.copied.is_some()))
        {
            // Whether it worked is asked below.
            let _ = self.call(&["blockjob", &self.uuid, &disk.target, "--abort"]).await;
        }
        for disk in self.media().filter(using) {
            self.change_medium(disk, &disk.before).await?;
        }
        let changed: Vec<&Disk> = self.copied().filter(using).collect();
        let back = self.copy_back(&changed).await;
        if back.is_err() {
            for disk in &changed {
                // A copy that goes on would be in the way of everything else; most have none.
                let _ = self.call(&["blockjob", &self.uuid, &disk.target, "--abort"]).await;
            }
        }
        let now = self.uses_patiently().await?;
        let all = self.copied().chain(self.media());
        let away = all.filter(|disk| {
            now.get(&disk.target).is_none_or(|one| one.file != clean(&disk.before) || one.copied.is_some())
        });
        let away: Vec<_> = away
            .map(|disk| match now.get(&disk.target) {
                Some(one) => format!("{} uses {}", disk.target, one.file.display()),
                None => format!("{} has no file", disk.target),
            })
            .collect();
        match (away.is_empty(), back) {
            (true, _) => Ok(()),
            (false, Ok(())) => Err(away.join(", ")),
            (false, Err(why)) => Err(format!("{} ({why})", away.join(", "))),
        }
    }

    /// Brings disks that have changed over back to their old files.
    async fn copy_back(&self, disks: &[&Disk]) -> Result<(), String> {
        for disk in disks {
            self.begin_copy(disk, &disk.before).await?;
        }
        if !disks.is_empty() {
            self.wait_for(disks).await?;
        }
        for disk in disks {
            self.call(&["blockjob", &self.uuid, &disk.target, "--pivot"]).await?;
        }
        Ok(())
    }

    async fn wait_for(&self, disks: &[&Disk]) -> Result<(), String> {
        let until = Instant::now() + self.migration.settings.job;
        while Instant::now() < until {
            let now = self.uses_patiently().await?;
            let ready = |disk: &&Disk| now.get(&disk.target).and_then(|one| one.copied);
            if disks.iter().all(|disk| ready(disk) == Some(true)) {
                return Ok(());
            }
            if disks.iter().any(|disk| ready(disk).is_none()) {
                return Err("the copy back broke off".to_owned());
            }
            sleep(LOOK).await;
        }
        Err("the copy back took too long".to_owned())
    }

    /// libvirt may just be restarted.
    async fn uses_patiently(&self) -> Result<BTreeMap<String, Use>, String> {
        let until = Instant::now() + self.migration.settings.settle;
        loop {
            match dump(&self.libvirt, &self.uuid).await {
                Ok(domain) => return Ok(uses(&domain)),
                Err(why) if Instant::now() >= until => return Err(why),
                Err(_) => sleep(LOOK).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_uses_is_read_from_libvirt() {
        let text = "<domain><devices>\
            <disk type='file'><source file='/ds//100/7/disk.0'/><mirror type='file' job='copy' ready='yes'><source file='/ds/101/7/disk.0'/></mirror><target dev='vda'/></disk>\
            <disk type='file'><source file='/ds/100/7/disk.1'/><mirror type='file' job='copy'/><target dev='vdb'/></disk>\
            <disk type='file'><source file='/ds/101/7/disk.2'/><target dev='vdc'/></disk>\
            <disk type='file' device='cdrom'><target dev='hda'/></disk></devices></domain>";
        let now = uses(&Document::parse(text).expect("a domain"));
        let one = |file: &str, copied| Use { file: PathBuf::from(file), copied };
        assert_eq!(now.get("vda"), Some(&one("/ds/100/7/disk.0", Some(true))));
        assert_eq!(now.get("vdb"), Some(&one("/ds/100/7/disk.1", Some(false))));
        assert_eq!(now.get("vdc"), Some(&one("/ds/101/7/disk.2", None)));
        assert_eq!(now.len(), 3);
    }
}
