//! `kvmad domain-xml`: the libvirt domain of a VM.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::domain::{Choices, Failure, crowded_ide};
use super::schema::{self, Verdict};
use crate::domain::Domain;

/// Arguments of `kvmad domain-xml`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A VM (onevm show -x), an action document, or a template in text form; - for stdin
    file: PathBuf,
    #[command(flatten)]
    choices: Choices,
    /// Check the domain against libvirt's schema (virt-xml-validate)
    #[arg(long)]
    validate: bool,
}

/// Prints the domain on `out`, what is to be said about it on `err`.
pub fn run(arguments: &Arguments, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    match domain(arguments, err) {
        Err(failure) => failure.tell(&arguments.file, err),
        Ok(domain) => {
            if let Err(error) = out.write_all(domain.to_xml().as_bytes()).and_then(|()| out.flush()) {
                return super::unwritten(&error, err);
            }
            if arguments.validate { validate(&domain, err) } else { super::FINE }
        }
    }
}

fn domain(arguments: &Arguments, err: &mut dyn Write) -> Result<Domain, Failure> {
    let ground = arguments.choices.read(err)?;
    let vm = ground.vm(&arguments.file)?;
    let domain = ground.domain(&vm)?;
    let crowded = crowded_ide(&domain.root);
    for note in vm
        .notes
        .iter()
        .map(|note| ("note", note))
        .chain(domain.warnings.iter().chain(&crowded).map(|w| ("warning", w)))
    {
        // Nobody is left to tell when stderr is gone.
        let _ = writeln!(err, "{}: {}", note.0, super::plain(note.1));
    }
    Ok(domain)
}

fn validate(domain: &Domain, err: &mut dyn Write) -> u8 {
    let (status, text) = match schema::check(&schema::merged(domain)) {
        Verdict::Valid => (super::FINE, "the domain is valid by libvirt's schema".to_owned()),
        Verdict::Invalid(why) => (super::FINDING, format!("libvirt's schema refuses the domain:\n{why}")),
        Verdict::Unchecked(why) => (super::UNCHECKED, format!("could not check the domain: {why}")),
    };
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(err, "{}", super::plain(&text));
    status
}
