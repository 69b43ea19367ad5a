//! Requests of all eras of OpenNebula.
//!
//! * 5.12 to 7.4: `START_MONITOR - ID 0 PACKED` and `STOP_MONITOR`, a zlib-packed document with the host and the
//!   configuration of `onemonitord`.
//! * 4.4 to 5.10: `MONITOR ID HOST DATASTORES FLAG` and `STOPMONITOR ID HOST`.
//! * 3.8 to 4.2: `MONITOR ID HOST FLAG`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::host::HostName;
use crate::mad::actions::{LineForm, Request};
use crate::node::monitor::message::unpack;
use crate::template::xml::{Document, Element};

/// A request that was understood: a script with its words and stdin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The host.
    pub host: HostName,
    /// Its id.
    pub id: i64,
    /// Path of the script below the remotes.
    pub script: &'static str,
    /// Its words.
    pub words: Vec<String>,
    /// Its stdin.
    pub stdin: Bytes,
    /// Whether the answer is a first reply whose shape is known.
    pub starts: bool,
}

/// What the driver was started with and what `oned` wrote in VAR/config, as far as requests need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Era {
    /// The word of ARGUMENTS that names the probe folder up to 5.10.
    pub hypervisor: String,
    /// Port of collectd (4.4 to 5.10).
    pub port: String,
    /// Its period in seconds.
    pub period: String,
}

impl Era {
    /// Takes port and period from the arguments of the `collectd` entry among the `IM_MAD` lines of VAR/config; 4124
    /// and 20 when they are not there.
    #[must_use]
    pub fn new<'a>(hypervisor: &str, im_mads: impl Iterator<Item = &'a str>) -> Self {
        let (mut port, mut period) = ("4124".to_owned(), "20".to_owned());
        for entry in im_mads.filter(|entry| entry.split(',').any(|part| part.trim() == "NAME=collectd")) {
            let arguments = entry.split("ARGUMENTS=").nth(1).unwrap_or("");
            let words: Vec<&str> = arguments.split([' ', ',', '"']).filter(|word| !word.is_empty()).collect();
            let number = |word: &str| word.bytes().all(|b| b.is_ascii_digit()).then(|| word.to_owned());
            for pair in words.windows(2) {
                match (pair[0], number(pair[1])) {
                    ("-p", Some(value)) => port = value,
                    ("-i", Some(value)) => period = value,
                    _ => {}
                }
            }
        }
        Self { hypervisor: hypervisor.to_owned(), port, period }
    }
}

/// Understands a request.
///
/// # Errors
/// Why not, for people.
pub fn read(request: &Request, era: &Era) -> Result<Work, String> {
    match (request.verb.as_str(), request.form) {
        ("START_MONITOR", LineForm::Stamped) => stamped(request, "im/run_monitord_client", true),
        ("STOP_MONITOR", LineForm::Stamped) => stamped(request, "im/stop_monitord_client", false),
        ("MONITOR", _) => pull(request, era),
        ("STOPMONITOR", _) => {
            let host = host_name(request.payload.split_whitespace().next().unwrap_or(""))?;
            let words = vec![hypervisor(&era.hypervisor)?, id(request)?.to_string(), host.to_string()];
            Ok(Work {
                host,
                id: id(request)?,
                script: "im/stop_probes",
                words,
                stdin: Bytes::new(),
                starts: false,
            })
        }
        (verb, _) => Err(format!("the action {verb} is not known to this driver")),
    }
}

fn id(request: &Request) -> Result<i64, String> {
    if request.number < 0 { Err(format!("{:?} is no id of a host", request.id)) } else { Ok(request.number) }
}

fn host_name(name: &str) -> Result<HostName, String> {
    HostName::new(name).map_err(|error| error.to_string())
}

/// The word becomes the name of a folder.
fn hypervisor(word: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if word.is_empty() || word.starts_with(['.', '-']) || !word.bytes().all(plain) {
        return Err(format!("{word:?} is no name of a hypervisor"));
    }
    Ok(word.to_owned())
}

fn stamped(request: &Request, script: &'static str, starts: bool) -> Result<Work, String> {
    let packed = request.payload.split_whitespace().next_back().unwrap_or("");
    let plain = unpack(packed).map_err(|error| format!("the request can't be decoded: {error}"))?;
    let text = String::from_utf8_lossy(&plain).into_owned();
    let document = Document::parse(text).map_err(|error| format!("the request is no XML: {error}"))?;
    let root = document.root();
    let told = |path: &str| root.filled(path).ok_or_else(|| format!("the request has no {path}"));
    let host = host_name(&told("HOST/NAME")?)?;
    let number = told("HOST/ID")?;
    let id = id(request)?;
    if number.trim().parse() != Ok(id) {
        return Err(format!("the document is of host {number}, the request of host {id}"));
    }
    let folder = hypervisor(&told("HOST/IM_MAD")?)?;
    let configuration =
        root.child("MONITOR_CONFIGURATION").ok_or("the request has no MONITOR_CONFIGURATION")?;
    let stdin = Bytes::from(with_host_id(&document, configuration, id));
    let words = vec![folder, id.to_string(), host.to_string()];
    Ok(Work { host, id, script, words, stdin, starts })
}

/// The configuration with HOST_ID as its last child.
fn with_host_id(document: &Document, configuration: &Element, id: i64) -> String {
    const END: &str = "</MONITOR_CONFIGURATION>";
    let source = document.source_of(configuration);
    let open = source.strip_suffix(END).map(str::to_owned);
    let open = open.unwrap_or_else(|| format!("{}>", source.trim_end_matches("/>")));
    format!("{open}<HOST_ID>{id}</HOST_ID>{END}")
}

fn pull(request: &Request, era: &Era) -> Result<Work, String> {
    let given: Vec<&str> = request.payload.split_whitespace().collect();
    let folder = hypervisor(&era.hypervisor)?;
    let id = id(request)?;
    let (host, words) = match given.as_slice() {
        [host, _flag] => (host_name(host)?, vec![folder, id.to_string(), (*host).to_owned()]),
        [host, datastores, _flag] => {
            let datastores = (*datastores).to_owned();
            let words = vec![
                folder,
                datastores,
                era.port.clone(),
                era.period.clone(),
                id.to_string(),
                (*host).to_owned(),
            ];
            (host_name(host)?, words)
        }
        other => return Err(format!("MONITOR has {} words behind the id; 2 or 3 are expected", other.len())),
    };
    Ok(Work { host, id, script: "im/run_probes", words, stdin: Bytes::new(), starts: false })
}

impl Work {
    /// Its stdin for a script on the front-end: OpenNebula's own scripts there take the document in base64, and ours
    /// take it both ways.
    #[must_use]
    pub fn local_stdin(&self) -> Bytes {
        if self.stdin.is_empty() { Bytes::new() } else { Bytes::from(STANDARD.encode(&self.stdin)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::monitor::message::pack;

    fn request(verb: &str, form: LineForm, payload: &str) -> Request {
        Request { verb: verb.into(), id: "3".into(), number: 3, payload: payload.into(), form }
    }

    fn era() -> Era {
        let entries = [
            "NAME=kvm,ARGUMENTS=-r 3 -t 15 kvm",
            "NAME=collectd,EXECUTABLE=collectd,ARGUMENTS=-p 4130 -f 5 -t 50 -i 60",
        ];
        Era::new("kvm", entries.into_iter())
    }

    fn document(name: &str, id: &str, mad: &str) -> String {
        format!(
            "<MONITOR_DRIVER_ACTION><HOST><ID>{id}</ID><NAME>{name}</NAME><IM_MAD><![CDATA[{mad}]]></IM_MAD></HOST><MONITOR_CONFIGURATION><NETWORK><PUBKEY><![CDATA[a\nb]]></PUBKEY></NETWORK></MONITOR_CONFIGURATION></MONITOR_DRIVER_ACTION>"
        )
    }

    fn start(document: &str) -> Result<Work, String> {
        read(
            &request("START_MONITOR", LineForm::Stamped, &format!("0 {}", pack(document.as_bytes()))),
            &era(),
        )
    }

    #[test]
    fn a_start_becomes_the_script_with_the_configuration_on_stdin() {
        let work = start(&document("node3", "3", "kvm")).expect("good");
        assert_eq!(
            (work.script, work.words),
            ("im/run_monitord_client", vec!["kvm".into(), "3".into(), "node3".into()])
        );
        assert_eq!(
            work.stdin,
            "<MONITOR_CONFIGURATION><NETWORK><PUBKEY><![CDATA[a\nb]]></PUBKEY></NETWORK><HOST_ID>3</HOST_ID></MONITOR_CONFIGURATION>"
        );
        let empty =
            "<X><HOST><ID>3</ID><NAME>n</NAME><IM_MAD>kvm</IM_MAD></HOST><MONITOR_CONFIGURATION/></X>";
        assert_eq!(
            start(empty).expect("good").stdin,
            "<MONITOR_CONFIGURATION><HOST_ID>3</HOST_ID></MONITOR_CONFIGURATION>"
        );
    }

    #[test]
    fn pulls_of_both_eras_become_run_probes() {
        let words = |payload: &str| {
            read(&request("MONITOR", LineForm::Old, payload), &era()).map(|w| w.words.join(" "))
        };
        assert_eq!(words("node3 1").as_deref(), Ok("kvm 3 node3"));
        assert_eq!(
            words("node3 /var/lib/one//datastores 0").as_deref(),
            Ok("kvm /var/lib/one//datastores 4130 60 3 node3")
        );
        assert!(words("node3").is_err() && words("-x 1").is_err());
        let stop = read(&request("STOPMONITOR", LineForm::Old, "node3"), &era()).expect("good");
        assert_eq!((stop.script, stop.words.join(" ").as_str()), ("im/stop_probes", "kvm 3 node3"));
    }

    #[test]
    fn what_can_not_be_served_is_refused_with_a_reason() {
        for (text, part) in [
            (document("node3; rm -rf /", "3", "kvm"), "no host name"),
            (document("node3", "4", "kvm"), "of host 4"),
            (document("node3", "3", "../x"), "no name of a hypervisor"),
            ("<X/>".to_owned(), "no HOST/NAME"),
            ("<X>".to_owned(), "no XML"),
        ] {
            let reason = start(&text).expect_err(&text);
            assert!(reason.contains(part), "{reason}");
        }
        let bad = read(&request("START_MONITOR", LineForm::Stamped, "0 !!"), &era()).expect_err("no base64");
        assert!(bad.contains("can't be decoded"), "{bad}");
        assert!(read(&request("NOPE", LineForm::Stamped, "0 x"), &era()).is_err());
    }

    #[test]
    fn port_and_period_are_the_usual_ones_without_collectd() {
        let era = Era::new("kvm", std::iter::empty());
        assert_eq!((era.port.as_str(), era.period.as_str()), ("4124", "20"));
    }
}
