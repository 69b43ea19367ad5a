//! What an agent answers on its own host: its status and Prometheus figures, over a socket of its user; the figures
//! also in a file and on a loopback port when that is wanted.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;

use super::agent::{Shared, clock};
use super::metrics;
use super::store::replace;

/// How long one that asks may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers `status` and `metrics` on the agent's socket.
pub async fn socket(agent: Shared) {
    let path = agent.files.path("socket");
    let _ = std::fs::remove_file(&path);
    let listener = match UnixListener::bind(&path) {
        Ok(listener) => listener,
        Err(error) => {
            agent.fault(format!("{}: {error}", path.display()));
            return std::future::pending().await;
        }
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let agent = agent.clone();
        tokio::spawn(timeout(PATIENCE, async move {
            let (read, mut write) = stream.into_split();
            let mut line = String::new();
            let _ = BufReader::new(read.take(100)).read_line(&mut line).await;
            let answer = match line.trim() {
                "metrics" => metrics::text(&agent),
                _ => status(&agent),
            };
            let _ = write.write_all(answer.as_bytes()).await;
        }));
    }
}

/// The status as JSON.
fn status(agent: &Shared) -> String {
    let record = agent.journal.record().clone();
    let about = &agent.about;
    let value = serde_json::json!({
        "host": {"id": about.id, "name": about.name, "hypervisor": about.hypervisor},
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "since": agent.since,
        "now": clock(),
        "receiver": agent.sender.as_ref().map(|sender| sender.target().to_string()),
        "encrypted": !agent.config.public_key.trim().is_empty(),
        "record": record,
        "vms": agent.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).rows,
    });
    format!("{value}\n")
}

/// Writes the figures to a file each minute and serves them on a port, each only when it is set.
pub async fn metrics(agent: Shared) {
    tokio::join!(to_file(&agent), on_port(&agent));
    std::future::pending().await
}

async fn to_file(agent: &Shared) {
    let Some(path) = &agent.limits.metrics_file else { return };
    loop {
        if let Err(error) = replace(path, metrics::text(agent).as_bytes(), 0o644) {
            agent.fault(format!("{}: {error}", path.display()));
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

async fn on_port(agent: &Shared) {
    let Some(port) = u16::try_from(agent.limits.metrics_port).ok().filter(|port| *port > 0) else { return };
    let listener = match TcpListener::bind(("127.0.0.1", port)).await {
        Ok(listener) => listener,
        Err(error) => return agent.fault(format!("metrics on 127.0.0.1:{port}: {error}")),
    };
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let agent = agent.clone();
        tokio::spawn(timeout(PATIENCE, async move {
            let mut request = [0_u8; 4096];
            let length = stream.read(&mut request).await.unwrap_or(0);
            let wanted =
                request[..length].starts_with(b"GET /metrics") || request[..length].starts_with(b"GET / ");
            let (status, body) =
                if wanted { ("200 OK", metrics::text(&agent)) } else { ("404 Not Found", String::new()) };
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }));
    }
}
