//! One try to download an image, by curl or else wget of the host, which know its proxies and certificates.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, interval};

use super::Ground;
use super::error::CloudError;
use super::spec::Places;
use crate::node::tools::{Answer, Ask, Ended};

/// How a try ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// All is there.
    Complete,
    /// It can be gone on with.
    Cut(String),
    /// What is there belongs to another version, or the server can't go on in the middle: from the start.
    Changed,
    /// The server has no such image, or is not to be trusted; what is there so far is kept.
    NotThere(String),
    /// It can't be written.
    Full(String),
}

/// How long it may take to connect, in seconds.
const CONNECT: &str = "20";

/// How often what is there so far is told.
const TELL: Duration = Duration::from_secs(5);

/// A download as a whole; it is the stall that ends one that hangs.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Goes on with the download of `url` into `part`; `version` keeps the ETag that belongs to it.
///
/// # Errors
/// [`CloudError::Program`] when the host has neither curl nor wget, [`CloudError::Image`] when it is too large.
pub async fn run(
    ground: &Ground,
    url: &str,
    part: &Path,
    version: &Path,
    places: &Places,
) -> Result<Ending, CloudError> {
    let headers = part.with_extension("headers");
    let etag = known_version(version, &headers);
    if etag.is_none() {
        // Nobody can say whether the rest on the server belongs to it.
        let _ = fs::remove_file(part);
    }
    let _ = fs::remove_file(&headers);
    let etag = etag.as_deref();
    let answer = match watched(ground, url, curl(url, part, &headers, etag, places), part, places).await? {
        Ok(answer) => curl_ending(&answer),
        Err(_) => match watched(ground, url, wget(url, part, places), part, places).await? {
            Ok(answer) => wget_ending(&answer),
            Err(reason) => {
                return Err(CloudError::Program(format!("{reason}; install curl (or wget) on this host")));
            }
        },
    };
    if let Some(etag) = fs::read_to_string(&headers).ok().as_deref().and_then(etag_of) {
        let _ = fs::write(version, etag);
    }
    let _ = fs::remove_file(&headers);
    Ok(answer)
}

/// The ETag that the part belongs to; of a try that was killed it stands in the headers only.
fn known_version(version: &Path, headers: &Path) -> Option<String> {
    let kept = fs::read_to_string(version).ok().map(|etag| etag.trim().to_owned());
    let etag = kept.or_else(|| etag_of(&fs::read_to_string(headers).ok()?))?;
    if !is_strong(&etag) {
        return None;
    }
    // Without it the next try starts anew, no worse.
    let _ = fs::write(version, &etag);
    Some(etag)
}

/// Runs `ask` and tells meanwhile how much is there. The outer error is that the image is too large, the inner one
/// that the program could not be started.
async fn watched(
    ground: &Ground,
    url: &str,
    ask: Ask,
    part: &Path,
    places: &Places,
) -> Result<Result<Answer, String>, CloudError> {
    let size = || fs::metadata(part).map_or(0, |meta| meta.len());
    let mut running = Box::pin(ground.ask_tied(ask));
    let mut tick = interval(Duration::from_millis(500));
    let (mut told, mut last) = (Instant::now(), size());
    loop {
        tokio::select! {
            answer = &mut running => return Ok(answer),
            _ = tick.tick() => {}
        }
        let now = size();
        if now > places.limit {
            drop(running);
            let _ = fs::remove_file(part);
            let limit = places.limit >> 20;
            return Err(CloudError::image(
                url,
                format!("it is larger than {limit} MiB (image_limit of [cloud])"),
            ));
        }
        if told.elapsed() >= TELL && now != last {
            ground.say(&format!("{url}: {} MiB so far", now >> 20));
            (told, last) = (Instant::now(), now);
        }
    }
}

fn curl(url: &str, part: &Path, headers: &Path, etag: Option<&str>, places: &Places) -> Ask {
    let mut args: Vec<String> =
        ["-q", "--silent", "--show-error", "--fail", "--location", "--globoff"].map(str::to_owned).to_vec();
    let stall = places.stall.to_string();
    for (option, value) in [
        ("--proto", "=https"),
        ("--proto-redir", "=https"),
        ("--max-redirs", "10"),
        ("--connect-timeout", CONNECT),
        ("--speed-limit", "1"),
        ("--speed-time", &stall),
        ("--continue-at", "-"),
        ("--dump-header", &headers.to_string_lossy()),
        ("--output", &part.to_string_lossy()),
        ("--url", url),
    ] {
        args.extend([option.to_owned(), value.to_owned()]);
    }
    if let Some(etag) = etag {
        args.extend(["--header".to_owned(), format!("If-Range: {etag}")]);
    }
    if let Some(file) = &places.ca_file {
        args.extend(["--cacert".to_owned(), file.to_string_lossy().into_owned()]);
    }
    Ask { cap: 64 << 10, ..Ask::new("curl", args, LIMIT) }
}

fn wget(url: &str, part: &Path, places: &Places) -> Ask {
    let mut args = vec![
        "--no-config".to_owned(),
        "--no-verbose".to_owned(),
        "--https-only".to_owned(),
        "--tries=1".to_owned(),
        "--max-redirect=10".to_owned(),
        format!("--connect-timeout={CONNECT}"),
        format!("--read-timeout={}", places.stall),
        format!("--output-document={}", part.display()),
    ];
    if let Some(file) = &places.ca_file {
        args.push(format!("--ca-certificate={}", file.display()));
    }
    args.extend(["--".to_owned(), url.to_owned()]);
    Ask { cap: 64 << 10, ..Ask::new("wget", args, LIMIT) }
}

/// By the documented exit statuses of curl.
fn curl_ending(answer: &Answer) -> Ending {
    match answer.ended {
        Ended::Exited(0) => Ending::Complete,
        // HTTP error; a bad or unknown certificate; a URL or protocol that it does not take
        Ended::Exited(22 | 60 | 77 | 1 | 3 | 47) => Ending::NotThere(said(answer)),
        // the server can't go on in the middle, or has another version by now
        Ended::Exited(33 | 36) => Ending::Changed,
        Ended::Exited(23) => Ending::Full(said(answer)),
        _ => Ending::Cut(said(answer)),
    }
}

/// By the documented exit statuses of wget; it starts anew each time.
fn wget_ending(answer: &Answer) -> Ending {
    match answer.ended {
        Ended::Exited(0) => Ending::Complete,
        Ended::Exited(3) => Ending::Full(said(answer)),
        Ended::Exited(4) => Ending::Cut(said(answer)),
        _ => Ending::NotThere(said(answer)),
    }
}

fn said(answer: &Answer) -> String {
    let lines = answer.stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = lines.collect::<Vec<_>>().join("; ");
    if said.is_empty() { format!("the program ended with {:?}", answer.ended) } else { said }
}

/// The ETag of the last answer in `headers` (answers with a redirection come before it), when it is a strong one.
fn etag_of(headers: &str) -> Option<String> {
    let last = headers.rfind("HTTP/").map_or(headers, |at| &headers[at..]);
    let values = last.lines().filter_map(|line| line.split_once(':'));
    let mut etags =
        values.filter(|(name, _)| name.trim().eq_ignore_ascii_case("etag")).map(|(_, value)| value.trim());
    etags.rfind(|etag| is_strong(etag)).map(str::to_owned)
}

/// A weak ETag does not say that the bytes are the same.
fn is_strong(etag: &str) -> bool {
    let inside = |c: char| c.is_ascii_graphic() && c != '"';
    etag.len() > 2
        && etag
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .is_some_and(|tag| tag.chars().all(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_strong_etag_of_the_last_answer_counts() {
        for (headers, expected) in [
            ("HTTP/1.1 302 Found\r\nETag: \"a\"\r\n\r\nHTTP/2 200\r\netag: \"b\"\r\n\r\n", Some("\"b\"")),
            ("HTTP/1.1 302 Found\r\nETag: \"a\"\r\n\r\nHTTP/2 200\r\n\r\n", None),
            ("HTTP/1.1 200\r\nETag: W/\"b\"\r\n", None),
            ("HTTP/1.1 200\r\nETag: b\r\n", None),
            ("HTTP/1.1 200\r\nETag: \"a b\"\r\n", None),
            ("", None),
        ] {
            assert_eq!(etag_of(headers).as_deref(), expected, "{headers}");
        }
    }

    /// A host without curl; its wget writes a file.
    struct OnlyWget;

    impl crate::node::tools::Tools for OnlyWget {
        fn ask(&self, ask: Ask) -> crate::host::job::Boxed<'_, Result<Answer, String>> {
            Box::pin(async move {
                if ask.program != "wget" {
                    return Err(format!("{}: there is no such program", ask.program));
                }
                let output = ask.args.iter().find_map(|arg| arg.strip_prefix("--output-document="));
                fs::write(output.expect("a file"), "image").expect("written");
                let (stdout, stderr) = (String::new(), String::new());
                Ok(Answer { ended: Ended::Exited(0), stdout, stderr, dropped: 0 })
            })
        }
    }

    fn places(folder: &Path) -> Places {
        Places { base: folder.to_owned(), limit: 1 << 20, ..Places::of(&crate::settings::Cloud::default()) }
    }

    #[tokio::test]
    async fn a_host_without_curl_uses_wget() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = crate::node::root::Root::system();
        let ground = Ground::new(std::sync::Arc::new(OnlyWget), root, "x86_64", "test:///default", |_| {});
        let (part, version) = (dir.path().join(".x.part"), dir.path().join(".x.version"));
        let ending = run(&ground, "https://h/x", &part, &version, &places(dir.path())).await.expect("a try");
        assert_eq!(
            (ending, fs::read_to_string(part).expect("the part")),
            (Ending::Complete, "image".to_owned())
        );
        assert!(!version.exists(), "wget tells no version, so nothing is gone on with");
    }
}
