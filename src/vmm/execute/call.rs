//! From a planned call to a job: scripts are found, arguments and stdin written out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::host::job::{Job, Place, Program};
use crate::vmm::plan::{Call, Form, Plan, Source, Stdin, Value, What};

/// Bytes that fit into one argument: Linux takes 128 KiB with the closing NUL.
pub const ARGUMENT_BYTES: usize = 128 * 1024 - 1;

/// Makes the domain from an action document.
pub type MakeDomain = Arc<dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync>;

/// What calls need from the front-end.
#[derive(Clone)]
pub(crate) struct FrontEnd {
    /// Folder of the front-end's remotes.
    pub(crate) remotes: PathBuf,
    /// How a domain is made, when DEPLOY makes it.
    pub(crate) domain: Option<MakeDomain>,
    /// Variables for what runs here.
    pub(crate) environment: Vec<(String, String)>,
}

impl FrontEnd {
    /// The job for `call`; the error is the reason why it can't be made, for people.
    pub(crate) async fn job(&self, plan: &Plan, call: &Call, deploy_id: Option<&str>) -> Result<Job, String> {
        let mut job = Job::new(self.program(&call.program).await?);
        job.args = call.args.iter().map(|value| argument(value, plan, deploy_id)).collect();
        job.stdin = self.stdin(&call.stdin, plan).await?;
        if call.place == Place::Local {
            job.env.clone_from(&self.environment);
        }
        Ok(job)
    }

    async fn program(&self, what: &What) -> Result<Program, String> {
        match what {
            What::Script(path) => Ok(Program::Script(path.clone())),
            What::Program(path) => Ok(Program::Path((*path).to_owned())),
            What::Impossible(reason) => Err(reason.clone()),
            What::Driver { folder, names } => {
                let path = self.remotes.join(folder);
                if !is_folder(&path).await {
                    return Err(no_driver(folder));
                }
                for name in names {
                    if exists(&path.join(name)).await {
                        return Ok(Program::Script(format!("{folder}/{name}")));
                    }
                }
                let wanted = path.join(names.last().map_or("", String::as_str));
                Err(format!("Driver path '{}' does not exist", wanted.display()))
            }
        }
    }

    async fn stdin(&self, stdin: &Stdin, plan: &Plan) -> Result<Bytes, String> {
        let data = match &stdin.source {
            Source::Nothing => return Ok(Bytes::new()),
            Source::Data(data) => data.clone(),
            Source::File(path) => deployment_file(path).await?,
            Source::Domain => match &self.domain {
                Some(make) => Bytes::from(make(&plan.document)?),
                None => {
                    return Err("the domain can't be made: the driver was started without --generate-domain"
                        .to_owned());
                }
            },
        };
        let form = match stdin.form {
            Form::LocalScript if exists(&self.remotes.join(".kvmad/stamp")).await => Form::Line,
            Form::LocalScript => Form::Base64Bare,
            form => form,
        };
        Ok(written(data, form))
    }
}

async fn is_folder(path: &Path) -> bool {
    tokio::fs::metadata(path).await.is_ok_and(|meta| meta.is_dir())
}

async fn exists(path: &Path) -> bool {
    tokio::fs::metadata(path).await.is_ok_and(|meta| meta.is_file())
}

fn no_driver(folder: &str) -> String {
    match folder.split_once('/') {
        Some(("tm", name)) => format!("Transfer Driver '{name}' not available"),
        Some((_, name)) => format!("Datastore Driver '{name}' not available"),
        None => format!("Driver '{folder}' not available"),
    }
}

async fn deployment_file(path: &str) -> Result<Bytes, String> {
    match tokio::fs::read(path).await {
        Ok(data) if data.iter().all(u8::is_ascii_whitespace) => {
            Err(format!("Cannot open deployment file {path}: it is empty"))
        }
        Ok(data) => Ok(Bytes::from(data)),
        Err(error) => Err(format!("Cannot open deployment file {path}: {error}")),
    }
}

/// `value` as the script gets it. Text that does not fit into one argument becomes `-`: scripts read it from
/// the document.
fn argument(value: &Value, plan: &Plan, deploy_id: Option<&str>) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::DeployId(or) => deploy_id.unwrap_or(or).to_owned(),
        Value::Fitting(text) if text.len() <= ARGUMENT_BYTES => text.clone(),
        Value::Document if plan.document.len().div_ceil(3) * 4 <= ARGUMENT_BYTES => {
            STANDARD.encode(&plan.document)
        }
        Value::Fitting(_) | Value::Document => "-".to_owned(),
    }
}

fn written(data: Bytes, form: Form) -> Bytes {
    match form {
        Form::Plain => data,
        Form::Line => {
            let mut all = Vec::with_capacity(data.len() + 1);
            all.extend_from_slice(&data);
            all.push(b'\n');
            Bytes::from(all)
        }
        Form::Base64Bare | Form::LocalScript => Bytes::from(STANDARD.encode(data)),
        Form::Base64 => Bytes::from(STANDARD.encode(data) + "\n"),
        Form::Base64Lines => {
            let text = STANDARD.encode(data);
            let mut all = Vec::with_capacity(text.len() + text.len() / 60 + 1);
            for line in text.as_bytes().chunks(60) {
                all.extend_from_slice(line);
                all.push(b'\n');
            }
            Bytes::from(all)
        }
    }
}

/// The command for the log: every word quoted for a shell, long ones cut.
pub(crate) fn command_line(job: &Job) -> String {
    const LONGEST: usize = 100;
    let program = match &job.program {
        Program::Script(path) | Program::Path(path) => path.as_str(),
    };
    let mut line = shell_words::quote(program).into_owned();
    for word in &job.args {
        line.push(' ');
        if word.chars().count() > LONGEST {
            let start: String = word.chars().take(LONGEST / 2).collect();
            line.push_str(&shell_words::quote(&format!("{start}...")));
        } else {
            line.push_str(&shell_words::quote(word));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stdin_is_written_in_each_form() {
        let data = || Bytes::from(vec![b'x'; 100]);
        assert_eq!(written(data(), Form::Plain).len(), 100);
        assert_eq!(written(data(), Form::Line).last(), Some(&b'\n'));
        let bare = written(data(), Form::Base64Bare);
        assert_eq!((bare.len(), bare.contains(&b'\n')), (136, false));
        let lines = written(data(), Form::Base64Lines);
        let text = String::from_utf8(lines.to_vec()).expect("ascii");
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [60, 60, 16]);
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn long_words_are_cut_in_the_log_and_odd_ones_quoted() {
        let mut job = Job::new(Program::Script("vmm/kvm/exec".to_owned()));
        job.args = vec!["7".to_owned(), "a'b; c".to_owned(), "y".repeat(5000)];
        let line = command_line(&job);
        assert!(line.starts_with("vmm/kvm/exec 7 "), "{line}");
        assert_eq!(shell_words::split(&line).expect("words")[2], "a'b; c");
        assert!(line.len() < 200);
    }
}
