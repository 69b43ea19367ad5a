//! Delegated jobs: an ssh of their own that forwards the agent, so that the host can go on to other hosts.

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::channel::{self, Channel, ChannelEnd, Reading};
use super::collect::Collector;
use super::connection::Connection;
use super::entry::Entry;
use super::fallback;
use super::helper::{self, Helper};
use super::job::Watch;
use super::pool::{Inner, Ran};
use super::process::Process;
use crate::wire::{Open, Refusal, WhyRefused};

/// Runs a command over a connection of its own. `connection` is the shared one; it tells whether the host has a
/// helper.
pub(super) async fn run(
    pool: &Inner,
    entry: &Entry,
    connection: &Arc<Connection>,
    open: &Open,
    stdin: &Bytes,
    output: &mut Collector,
    watch: &Watch,
) -> Ran {
    if let Some(words) = &pool.helper_words
        && connection.helper(words, &pool.helper_limits, watch).await.is_some()
    {
        return by_helper(pool, entry, words, open, stdin, output, watch).await;
    }
    if let Err(text) = fallback::check(open) {
        return Ran::Refused(Refusal { why: WhyRefused::Other, text });
    }
    match start(pool, entry, fallback::COMMAND).await {
        Ok(channel) => fallback::run(channel, open, stdin.clone(), output, watch, pool.times()).await.into(),
        Err(reason) => Ran::Lost(reason),
    }
}

async fn by_helper(
    pool: &Inner,
    entry: &Entry,
    words: &str,
    open: &Open,
    stdin: &Bytes,
    output: &mut Collector,
    watch: &Watch,
) -> Ran {
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
    let helper_reason = helper.reason();
    // The helper sees the end of its stdin and goes, then ssh.
    drop(helper);
    match ended {
        helper::Ended::Exit(exit) => {
            tokio::spawn(end);
            Ran::Exit(exit)
        }
        helper::Ended::Refused(refusal) => {
            tokio::spawn(end);
            Ran::Refused(refusal)
        }
        helper::Ended::Lost => {
            let lost = || helper_reason.unwrap_or_else(|| "the connection was lost".to_owned());
            let ended = tokio::time::timeout(std::time::Duration::from_secs(2), end).await;
            let words = match ended {
                Ok(ended) => reason(ended, said).await,
                Err(_) => None,
            };
            Ran::Lost(words.unwrap_or_else(lost))
        }
    }
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
    super::ssh::own_words(&String::from_utf8_lossy(&kept))
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
