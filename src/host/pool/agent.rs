//! Delegated jobs: an ssh of their own that forwards the agent, so that the host can go on to other hosts.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::Inner;
use super::run::{Ran, Wanted};
use crate::host::channel::{self, Channel, ChannelEnd, Reading};
use crate::host::collect::Collector;
use crate::host::connection::Connection;
use crate::host::entry::Entry;
use crate::host::fallback;
use crate::host::helper::Helper;
use crate::host::process::Process;

/// How long an ssh that was lost may take to say why.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs a command over a connection of its own. `connection` is the shared one; it tells whether the host has a
/// helper.
pub(super) async fn run(
    pool: &Inner,
    entry: &Entry,
    connection: &Arc<Connection>,
    wanted: Wanted<'_>,
    output: &mut Collector,
) -> Ran {
    if let Some(words) = &pool.helper_words
        && pool.helper_of(connection, wanted.watch).await.is_some()
    {
        return by_helper(pool, entry, words, wanted, output).await;
    }
    let opening = async { Ok((start(pool, entry, fallback::COMMAND).await?, ())) };
    pool.without_helper(opening, wanted, output).await
}

async fn by_helper(
    pool: &Inner,
    entry: &Entry,
    words: &str,
    wanted: Wanted<'_>,
    output: &mut Collector,
) -> Ran {
    let Wanted { open, stdin, watch } = wanted;
    let Channel { stdin: to, stdout, stderr, end } = match start(pool, entry, words).await {
        Ok(channel) => channel,
        Err(reason) => return Ran::Lost(reason),
    };
    let said = tokio::spawn(last_words(stderr));
    let mut limits = pool.helper_limits.clone();
    // This one connects first.
    limits.hello_wait += pool.options.host.connect_timeout;
    let helper = match Helper::start(stdout, to, &limits).await {
        Ok(helper) => helper,
        Err(error) => return Ran::Lost(reason(end.await, said).await.unwrap_or_else(|| error.to_string())),
    };
    let ended = helper.run(open.clone(), stdin.clone(), output, watch).await;
    let (silent, helper_reason) = (helper.is_silent(), helper.reason());
    // The helper sees the end of its stdin and goes, then ssh.
    drop(helper);
    let why = async move || {
        let Ok(ended) = timeout(LAST_WORDS, end).await else { return None };
        reason(ended, said).await
    };
    Ran::of_helper(ended, silent, async || {
        why().await.or(helper_reason).unwrap_or_else(|| "the connection was lost".to_owned())
    })
    .await
}

async fn start(pool: &Inner, entry: &Entry, words: &str) -> Result<Channel, String> {
    let start = pool.options.ssh.with_agent(&entry.name, words);
    let (process, pipes) = Process::start(&start).await.map_err(|error| error.to_string())?;
    Ok(channel::of_process(process, pipes))
}

async fn last_words(mut stderr: Reading) -> String {
    const KEPT: usize = 8 << 10;
    let mut kept = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..count]);
        kept.drain(..kept.len().saturating_sub(KEPT));
    }
    crate::host::ssh::own_words(&String::from_utf8_lossy(&kept))
}

/// ssh's own words; status 255 is its own, too.
async fn reason(end: ChannelEnd, said: tokio::task::JoinHandle<String>) -> Option<String> {
    let words = said.await.unwrap_or_default();
    match end {
        _ if !words.is_empty() => Some(words),
        ChannelEnd::Status(255) => Some("ssh could not connect".to_owned()),
        ChannelEnd::Status(_) => None,
        ChannelEnd::Lost(reason) => Some(reason),
    }
}
