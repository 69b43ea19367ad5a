//! Follows libvirt's lifecycle events through one long-lived `virsh event`. When it ends (libvirtd was restarted,
//! the connection broke) it is started again; both are told, because events were lost meanwhile.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::sync::mpsc;

use super::event::Event;
use crate::host::process::{Process, Start};

/// What comes from libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Something happened to a domain.
    Event(Event),
    /// `virsh event` was started; it will have registered in a moment.
    Started,
    /// It has ended, with what it said.
    Lost(String),
}

/// Longest pause before it is started again.
const LONGEST: Duration = Duration::from_secs(10);

/// Follows events until `news` is closed.
pub async fn follow(uri: String, news: mpsc::UnboundedSender<News>) {
    let mut pause = Duration::from_millis(200);
    while !news.is_closed() {
        let began = tokio::time::Instant::now();
        let reason = once(&uri, &news).await;
        if news.send(News::Lost(reason)).is_err() {
            return;
        }
        pause = if began.elapsed() > LONGEST { Duration::from_millis(200) } else { (pause * 2).min(LONGEST) };
        tokio::time::sleep(pause).await;
    }
}

async fn once(uri: &str, news: &mpsc::UnboundedSender<News>) -> String {
    // Through ourselves, so that it can't outlive us even when we are killed; see `node::tied`. A hung daemon is
    // noticed by virsh's keepalive, 5 s three times.
    let start = Start::new("/proc/self/exe")
        .args(["tied", "--parent", &std::process::id().to_string(), "--", "virsh"])
        .args(["--quiet", "--keepalive-interval", "5", "--keepalive-count", "3", "--connect", uri])
        .args(["event", "--event", "lifecycle", "--loop"])
        .env("LC_ALL", "C")
        .env_remove("LANGUAGE")
        .no_stdin();
    let (process, mut pipes) = match Process::start(&start).await {
        Ok(started) => started,
        Err(error) => return error.to_string(),
    };
    if news.send(News::Started).is_err() {
        return String::new();
    }
    let said = tokio::spawn(async move {
        let mut text = Vec::new();
        let _ = (&mut pipes.stderr).take(4096).read_to_end(&mut text).await;
        // What comes beyond is read and thrown away, so that it never blocks.
        let _ = tokio::io::copy(&mut pipes.stderr, &mut tokio::io::sink()).await;
        String::from_utf8_lossy(&text).trim().replace('\n', "; ")
    });
    let mut lines = BufReader::new(pipes.stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A name has at most some hundred bytes; more without a newline is no event.
        match (&mut lines).take(64 << 10).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(event) = Event::parse(text.trim_end_matches(['\n', '\r']))
            && news.send(News::Event(event)).is_err()
        {
            break;
        }
    }
    drop(process);
    said.await.unwrap_or_default()
}
