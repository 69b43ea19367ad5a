//! Small things before and after a migration, none of which makes it fail.

use std::sync::Arc;
use std::time::Duration;

use super::libvirt::{Domain, Libvirt};
use super::voice::Voice;
use crate::node::tools::{Ask, Tools};
use crate::template::xml::Document;

/// For the guest's agent to set the clock.
const AGENT: Duration = Duration::from_secs(5);

/// Sets the longest time, in milliseconds, for which the guest may stand still; 0 leaves it. Gives what it was, to be
/// set again when the migration fails.
pub async fn set_downtime(libvirt: &Libvirt, uuid: &str, downtime: u64, voice: &Voice) -> Option<u64> {
    if downtime == 0 {
        return None;
    }
    let before =
        libvirt.call(["migrate-getmaxdowntime", uuid]).await.ok().and_then(|text| text.trim().parse().ok());
    if let Err(why) = libvirt.call(["migrate-setmaxdowntime", uuid, &downtime.to_string()]).await {
        voice.warning(&format!("MIGRATE_MAX_DOWNTIME could not be set: {why}"));
        return None;
    }
    before
}

/// Undoes [`set_downtime`].
pub async fn restore_downtime(libvirt: &Libvirt, uuid: &str, before: Option<u64>) {
    if let Some(before) = before {
        // The next migration sets its own.
        let _ = libvirt.call(["migrate-setmaxdowntime", uuid, &before.to_string()]).await;
    }
}

/// Lets the guest run when it ran before and stands still: it was stopped to get an end.
pub async fn let_run(libvirt: &Libvirt, uuid: &str, ran: bool, domain: Domain, voice: &Voice) {
    if ran
        && matches!(domain, Domain::Active(3, 0..=2))
        && let Err(why) = libvirt.call(["resume", uuid]).await
    {
        voice.error(&format!("the guest stands still on host {}: {why}", libvirt.host()));
    }
}

/// Sets the guest's clock, if it has an agent that answers.
pub async fn sync_time(libvirt: &Libvirt, uuid: &str, domain: &Document, voice: &Voice) {
    if !has_agent(domain) {
        return;
    }
    if let Err(why) = libvirt.within(AGENT, ["domtime", uuid, "--sync"]).await {
        voice.info(&format!("the guest's clock was not set: {why}"));
    }
}

/// Whether the guest's agent was connected.
fn has_agent(domain: &Document) -> bool {
    let channels = domain.root().children("devices").flat_map(|devices| devices.children("channel"));
    channels.filter_map(|channel| channel.child("target")).any(|target| {
        target.attribute("name") == Some("org.qemu.guest_agent.0")
            && target.attribute("state") == Some("connected")
    })
}

/// Gives the kernel back its caches and joins free memory.
pub async fn compact(tools: &Arc<dyn Tools>, voice: &Voice) {
    let limit = Duration::from_secs(60);
    let args = ["-n", "sysctl", "vm.drop_caches=3", "vm.compact_memory=1"];
    let done =
        tools.ask(Ask::new("sudo", args, limit)).await.and_then(|answer| answer.good("sudo sysctl", limit));
    if let Err(why) = done {
        voice.info(&format!("the memory of this host could not be compacted: {why}"));
    }
}

/// The folder of the VM that the domain names in its metadata.
#[must_use]
pub fn folder_of(domain: &Document) -> Option<String> {
    let metadata = domain.root().child("metadata")?;
    let vm = metadata.elements().find(|element| local(element.name()) == "vm")?;
    let folder = vm.elements().find(|element| local(element.name()) == "system_datastore")?.text();
    let folder = folder.trim().trim_end_matches('/');
    folder.starts_with('/').then(|| folder.to_owned())
}

fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Document {
        Document::parse(text).expect("a document")
    }

    #[test]
    fn the_folder_is_in_the_metadata_whatever_the_prefix() {
        let text = "<domain><metadata><x:y xmlns:x='a'/><one:vm xmlns:one='u'><one:system_datastore> /ds/0/7/ </one:system_datastore></one:vm></metadata></domain>";
        assert_eq!(folder_of(&parse(text)).as_deref(), Some("/ds/0/7"));
        assert_eq!(folder_of(&parse("<domain/>")), None);
    }

    #[test]
    fn an_agent_counts_when_it_is_connected() {
        let domain = |state: &str| {
            parse(&format!(
                "<domain><devices><channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='{state}'/></channel></devices></domain>"
            ))
        };
        assert!(has_agent(&domain("connected")));
        assert!(!has_agent(&domain("disconnected")));
        assert!(!has_agent(&parse("<domain/>")));
    }
}
