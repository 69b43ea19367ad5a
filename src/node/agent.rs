//! `kvmad-node agent`: requests to a guest's agent and what its answers say, for the scripts. JSON is read and
//! written here alone.

use std::io::{Read, Write};
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use serde_json::{Value, json};

use crate::template::xml::Document;

/// Longest request in bytes: it is one argument of virsh, which the kernel limits to 128 KiB.
const LONGEST: usize = 120 * 1024;

/// Requests are printed for `virsh qemu-agent-command`; answers are read from stdin.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Request to start a command: that of the action on stdin, or the one given
    Exec {
        /// The command line, in words as a shell splits them; without it the action is read from stdin
        #[arg(long, allow_hyphen_values = true)]
        command: Option<String>,
        /// Its stdin in base64
        #[arg(long, default_value = "", allow_hyphen_values = true)]
        input: String,
    },
    /// Print the process number in the answer to `exec`
    Pid,
    /// Request for the state of a process
    Status {
        /// Process in the guest
        pid: u64,
    },
    /// Succeed when the answer to `status` says that the process has ended, exit 1 when it runs
    Exited,
    /// Request to kill a process
    Kill {
        /// Process in the guest
        pid: u64,
    },
    /// Request that any agent answers
    Ping,
}

/// Answers `command`: exit status 0 done, 1 no, 2 the input is not understood; the reason stands on stderr.
#[must_use]
pub fn main(command: Command) -> ExitCode {
    let (text, status) = match answer(command, &mut std::io::stdin().lock()) {
        Ok(Some(text)) => (text, ExitCode::SUCCESS),
        Ok(None) => (String::new(), ExitCode::from(1)),
        Err(reason) => {
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(std::io::stderr(), "{reason}");
            (String::new(), ExitCode::from(2))
        }
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => status,
        Err(_) => ExitCode::from(2),
    }
}

fn answer(command: Command, stdin: &mut dyn Read) -> Result<Option<String>, String> {
    let request = match command {
        Command::Exec { command: Some(line), input } => exec(&line, &input)?,
        Command::Exec { command: None, .. } => {
            let document = Document::parse(read(stdin)?).map_err(|error| format!("the action: {error}"))?;
            let at = |name: &str| {
                let path = format!("TEMPLATE/QEMU_GA_EXEC/{name}");
                document.root().filled(&format!("VM/{path}")).or_else(|| document.root().filled(&path))
            };
            exec(&at("COMMAND").unwrap_or_default(), &at("STDIN").unwrap_or_default())?
        }
        Command::Pid => {
            let pid = returned(&read(stdin)?)?.get("pid").and_then(Value::as_u64);
            return pid
                .map(|pid| Some(pid.to_string()))
                .ok_or_else(|| "the answer names no process".to_owned());
        }
        Command::Status { pid } => json!({"execute": "guest-exec-status", "arguments": {"pid": pid}}),
        Command::Exited => {
            let exited = returned(&read(stdin)?)?.get("exited").and_then(Value::as_bool);
            return match exited {
                Some(true) => Ok(Some(String::new())),
                Some(false) => Ok(None),
                None => Err("the answer does not say whether the process has ended".to_owned()),
            };
        }
        Command::Kill { pid } => {
            let args = ["-9".to_owned(), pid.to_string()];
            json!({"execute": "guest-exec", "arguments": {"path": "kill", "arg": args}})
        }
        Command::Ping => json!({"execute": "guest-ping"}),
    };
    let text = request.to_string();
    if text.len() > LONGEST {
        return Err(format!(
            "command and input make {} bytes; at most {LONGEST} can be handed to the agent",
            text.len()
        ));
    }
    Ok(Some(text))
}

fn exec(line: &str, input: &str) -> Result<Value, String> {
    let words =
        shell_words::split(line).map_err(|error| format!("the command {line:?} can't be split: {error}"))?;
    let Some((path, rest)) = words.split_first().filter(|(path, _)| !path.is_empty()) else {
        return Err("there is no command".to_owned());
    };
    let mut arguments = json!({"path": path, "arg": rest, "capture-output": true});
    let input: String = input.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    if !input.is_empty() {
        STANDARD.decode(&input).map_err(|error| format!("the input of the command is no base64: {error}"))?;
        arguments["input-data"] = Value::String(input);
    }
    Ok(json!({"execute": "guest-exec", "arguments": arguments}))
}

fn returned(text: &str) -> Result<Value, String> {
    let answer: Value =
        serde_json::from_str(text).map_err(|error| format!("the answer is no JSON: {error}"))?;
    answer.get("return").cloned().ok_or_else(|| format!("the agent refused: {answer}"))
}

fn read(stdin: &mut dyn Read) -> Result<String, String> {
    let mut text = String::new();
    stdin.read_to_string(&mut text).map_err(|error| format!("can't read stdin: {error}"))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(command: Command, stdin: &str) -> Result<Option<String>, String> {
        answer(command, &mut stdin.as_bytes())
    }

    fn request(line: &str, input: &str) -> Result<Value, String> {
        let command = Command::Exec { command: Some(line.to_owned()), input: input.to_owned() };
        ask(command, "").map(|text| serde_json::from_str(&text.expect("a request")).expect("JSON"))
    }

    #[test]
    fn a_command_line_becomes_words_and_nothing_more() {
        let hostile = r#"/bin/sh -c 'echo "a" $(touch x); `y`' "it's" \" {"#;
        let arguments = request(hostile, "").expect("a request")["arguments"].clone();
        assert_eq!(arguments["path"], "/bin/sh");
        assert_eq!(arguments["arg"], json!(["-c", "echo \"a\" $(touch x); `y`", "it's", "\"", "{"]));
        assert_eq!(arguments.get("input-data"), None);
    }

    #[test]
    fn input_is_handed_on_when_it_is_base64() {
        assert_eq!(request("cat", "YWJj\nZA==").expect("a request")["arguments"]["input-data"], "YWJjZA==");
        assert!(request("cat", "a'b").is_err());
        assert!(request("cat", &"QUFB".repeat(40_000)).is_err());
    }

    #[test]
    fn a_command_that_is_none_is_refused() {
        for line in ["", "  ", "'", "''", "\"a"] {
            assert!(request(line, "").is_err(), "{line}");
        }
    }

    #[test]
    fn the_action_is_read_from_stdin() {
        let exec = || Command::Exec { command: None, input: String::new() };
        let vm = "<VM><TEMPLATE><QEMU_GA_EXEC><COMMAND><![CDATA[ls '-l' /]]></COMMAND><STDIN><![CDATA[]]></STDIN></QEMU_GA_EXEC></TEMPLATE></VM>";
        for document in [vm.to_owned(), format!("<VMM_DRIVER_ACTION_DATA>{vm}</VMM_DRIVER_ACTION_DATA>")] {
            let text = ask(exec(), &document).expect("a request").expect("text");
            assert!(text.contains(r#""arg":["-l","/"]"#), "{text}");
        }
        assert!(ask(exec(), "").is_err());
        assert!(ask(exec(), "<VM/>").is_err());
    }

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(ask(Command::Pid, r#"{"return":{"pid":812}}"#), Ok(Some("812".to_owned())));
        for text in ["", "{}", r#"{"return":{}}"#, r#"{"return":{"pid":-1}}"#, r#"{"error":{"class":"x"}}"#] {
            assert!(ask(Command::Pid, text).is_err(), "{text}");
            assert!(ask(Command::Exited, text).is_err(), "{text}");
        }
        assert_eq!(
            ask(Command::Exited, r#"{"return":{"exited":true,"exitcode":0}}"#),
            Ok(Some(String::new()))
        );
        assert_eq!(ask(Command::Exited, r#"{"return":{"exited":false}}"#), Ok(None));
    }
}
