//! `user-data` of the seed: what was asked for as cloud-config, and the own user-data beside it.
//!
//! Own user-data is not torn apart here: both go as parts of one MIME document, and cloud-init in the guest merges
//! them, the own part into the made one (lists are joined, single values of the own part win).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::yaml;
use crate::node::cloud::error::CloudError;
use crate::node::cloud::spec::Seed;

#[derive(Serialize)]
struct CloudConfig<'a> {
    hostname: &'a str,
    preserve_hostname: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<[User<'a>; 1]>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    ssh_authorized_keys: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    packages: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    package_update: Option<bool>,
}

#[derive(Serialize)]
struct User<'a> {
    name: &'a str,
    shell: &'static str,
    lock_passwd: bool,
    sudo: &'static str,
    ssh_authorized_keys: &'a [String],
}

/// Kinds of own user-data by their first line, with the type that cloud-init gives them.
const KINDS: [(&str, &str); 6] = [
    ("#cloud-config-archive", "text/cloud-config-archive"),
    ("#cloud-config", "text/cloud-config"),
    ("#cloud-boothook", "text/cloud-boothook"),
    ("#include", "text/x-include-url"),
    ("## template: jinja", "text/jinja2"),
    ("#!", "text/x-shellscript"),
];

/// How cloud-init merges the own part into the one before it.
const MERGE: &str = "list(append)+dict(no_replace,recurse_list)+str()";

/// The text of `user-data`.
///
/// # Errors
/// What is wrong with a name, a key, or the own user-data.
pub fn user_data(seed: &Seed) -> Result<String, CloudError> {
    let made = format!("#cloud-config\n{}", yaml(&config(seed)?)?);
    let Some(own) = &seed.user_data else { return Ok(made) };
    let kind = kind(own).map_err(|reason| CloudError::Refused(format!("the own user-data {reason}")))?;
    // The later part is merged into what stands before it, and what is there is not replaced: so the own part,
    // whose values win, comes first.
    Ok(multipart(&[(kind, own), ("text/cloud-config", &made)]))
}

fn config(seed: &Seed) -> Result<CloudConfig<'_>, CloudError> {
    for key in &seed.keys {
        check_key(key).map_err(CloudError::Refused)?;
    }
    if let Some(user) = &seed.user {
        check_user(user).map_err(CloudError::Refused)?;
    }
    let users = seed.user.as_deref().map(|name| {
        [User {
            name,
            shell: "/bin/bash",
            lock_passwd: true,
            sudo: "ALL=(ALL) NOPASSWD:ALL",
            ssh_authorized_keys: &seed.keys,
        }]
    });
    Ok(CloudConfig {
        hostname: &seed.hostname,
        preserve_hostname: false,
        ssh_authorized_keys: if users.is_some() { &[] } else { &seed.keys },
        users,
        packages: &seed.packages,
        package_update: (!seed.packages.is_empty()).then_some(true),
    })
}

/// Whether `key` is one line of an authorized_keys file.
///
/// # Errors
/// What it must look like.
pub fn check_key(key: &str) -> Result<(), String> {
    let kinds = ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"];
    let mut words = key.split_ascii_whitespace();
    let kind = words.next().is_some_and(|word| kinds.iter().any(|kind| word.starts_with(kind)));
    let good = kind && words.next().is_some_and(|body| STANDARD.decode(body).is_ok());
    if good && !key.chars().any(char::is_control) {
        return Ok(());
    }
    if key.contains("PRIVATE KEY") {
        return Err("this is a private ssh key; give the public one (.pub)".to_owned());
    }
    Err(format!("{:?} is no public ssh key", key.chars().take(40).collect::<String>()))
}

fn check_user(name: &str) -> Result<(), String> {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    if first && name.len() <= 32 && name.chars().all(inside) {
        return Ok(());
    }
    Err(format!("{name:?} can't be the name of a user: lower case letters, digits, _ and -, up to 32"))
}

/// The type of own user-data.
///
/// # Errors
/// Why cloud-init would not take it.
pub fn kind(own: &str) -> Result<&'static str, String> {
    let first = own.lines().next().unwrap_or("").trim_end();
    let found = KINDS.iter().find(|(start, _)| first.to_ascii_lowercase().starts_with(start));
    let (_, kind) = found.ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|(start, _)| *start).collect();
        format!("begins with {first:?}; cloud-init knows it by its first line: {}", known.join(", "))
    })?;
    if *kind == "text/cloud-config"
        && let Err(error) = serde_saphyr::from_str::<serde_json::Value>(own)
    {
        let error = error.to_string().lines().next().unwrap_or("").to_owned();
        return Err(format!("is no YAML: {error}"));
    }
    Ok(kind)
}

fn multipart(parts: &[(&str, &str)]) -> String {
    // Parts are in base64, so the boundary can't occur in them.
    let mut text = "Content-Type: multipart/mixed; boundary=\"==kvmad==\"\nMIME-Version: 1.0\n\n".to_owned();
    for (number, (kind, part)) in parts.iter().enumerate() {
        text.push_str(&format!(
            "--==kvmad==\nContent-Type: {kind}; charset=\"utf-8\"\nMIME-Version: 1.0\n\
             Content-Transfer-Encoding: base64\nContent-Disposition: attachment; filename=\"part-{number}\"\n"
        ));
        if *kind == "text/cloud-config" {
            text.push_str(&format!("Merge-Type: {MERGE}\n"));
        }
        text.push('\n');
        for line in STANDARD.encode(part).as_bytes().chunks(76) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
    }
    text.push_str("--==kvmad==--\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4Qe1mO0d5jVYk5j0uG0hC9a5mYpF3m9kE1n8b2c3d4 me@x";

    fn seed() -> Seed {
        Seed {
            instance: "kvmad-a-1".to_owned(),
            hostname: "no".to_owned(),
            user: Some("admin".to_owned()),
            keys: vec![KEY.to_owned()],
            packages: vec!["qemu-guest-agent".to_owned(), "1.5".to_owned()],
            ..Seed::default()
        }
    }

    fn read(text: &str) -> serde_json::Value {
        serde_saphyr::from_str(text).expect("YAML")
    }

    #[test]
    fn values_stay_the_texts_that_they_are() {
        let text = user_data(&seed()).expect("a text");
        assert!(text.starts_with("#cloud-config\n"));
        let read = read(&text);
        assert_eq!(read["hostname"], "no");
        assert_eq!(read["packages"], serde_json::json!(["qemu-guest-agent", "1.5"]));
        assert_eq!(read["users"][0]["name"], "admin");
        assert_eq!(read["users"][0]["ssh_authorized_keys"][0], KEY);
        assert_eq!(read["users"][0]["lock_passwd"], true);
        assert_eq!(read.get("ssh_authorized_keys"), None);
    }

    #[test]
    fn without_a_user_the_keys_go_to_the_images_own() {
        let text = user_data(&Seed { user: None, packages: Vec::new(), ..seed() }).expect("a text");
        let read = read(&text);
        assert_eq!(read["ssh_authorized_keys"][0], KEY);
        assert_eq!((read.get("users"), read.get("packages")), (None, None));
    }

    #[test]
    fn own_user_data_goes_beside_it_whole_and_first() {
        let own = "#cloud-config\nruncmd: [ls]\n";
        let text = user_data(&Seed { user_data: Some(own.to_owned()), ..seed() }).expect("a text");
        let parts: Vec<&str> = text.split("--==kvmad==").collect();
        assert_eq!(parts.len(), 4);
        let body = |part: &str| {
            let body = part.split_once("\n\n").expect("a body").1.replace('\n', "");
            String::from_utf8(STANDARD.decode(body).expect("base64")).expect("text")
        };
        assert_eq!(body(parts[1]), own);
        assert!(body(parts[2]).starts_with("#cloud-config\n"));
        let script =
            user_data(&Seed { user_data: Some("#!/bin/sh\nls\n".to_owned()), ..seed() }).expect("a text");
        assert!(script.contains("text/x-shellscript"));
    }

    #[test]
    fn what_cloud_init_would_not_understand_is_refused() {
        let with = |change: fn(&mut Seed)| {
            let mut seed = seed();
            change(&mut seed);
            user_data(&seed).expect_err("refused").to_string()
        };
        assert!(with(|seed| seed.user_data = Some("hello".to_owned())).contains("first line"));
        assert!(with(|seed| seed.user_data = Some("#cloud-config\n a: [\n".to_owned())).contains("no YAML"));
        assert!(
            with(|seed| seed.keys = vec!["-----BEGIN OPENSSH PRIVATE KEY-----".to_owned()])
                .contains("private")
        );
        assert!(with(|seed| seed.keys = vec!["ssh-rsa".to_owned()]).contains("no public ssh key"));
        assert!(with(|seed| seed.keys = vec![format!("{KEY}\nssh-rsa AAAA")]).contains("no public ssh key"));
        assert!(with(|seed| seed.user = Some("Root;".to_owned())).contains("name of a user"));
    }
}
