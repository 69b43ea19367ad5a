//! A driver of canned actions: the payload says what a request does, the verb only how it stands to others.
//!
//! Payload: `HOST OP [ARGUMENT ...]`
//!
//! * `echo TEXT`, `fail TEXT`: answers at once; `bytes N`: answers with N letters;
//! * `sleep MS`: answers after that time, or `cancelled` when it is ended before;
//! * `hang MS`: waits to be ended, then rolls back for MS milliseconds, deaf to everything;
//! * `panic`, `panic-early` (while it is prepared): a fault of the driver;
//! * `logs N LENGTH`: writes so many LOG lines; `connect MS`: waits for a connection for that time; `lost`: the host
//!   does not answer;
//! * `refuse`: can't be understood.

use std::sync::Mutex;
use std::time::Duration;

use kvmad::mad::{Actions, Answer, Context, Keys, Overtake, Prepared, Request, Severity};

/// The canned actions, and a record of what began and ended in what order: `+7 DEPLOY`, `-7 DEPLOY`.
#[derive(Default)]
pub struct Canned {
    pub record: Mutex<Vec<String>>,
}

/// What one request does.
pub struct Work {
    name: String,
    host: String,
    words: Vec<String>,
}

const VERBS: &[&str] = &[
    "DEPLOY",
    "SHUTDOWN",
    "CANCEL",
    "SAVE",
    "RESTORE",
    "MIGRATE",
    "REBOOT",
    "RESET",
    "POLL",
    "CLEANUP",
    "UPDATESG",
    "UPDATENIC",
    "BACKUP",
    "BACKUPCANCEL",
    "EXEC",
    "RESIZE",
];

impl Actions for Canned {
    type Work = Work;

    fn prepare(&self, request: &Request) -> Result<Prepared<Work>, String> {
        if !VERBS.contains(&request.verb.as_str()) {
            return Err(format!("{} is no verb that this driver knows", request.verb));
        }
        let mut words = request.payload.split(' ').map(str::to_owned);
        let host = words.next().unwrap_or_default();
        let words: Vec<String> = words.collect();
        match words.first().map(String::as_str) {
            None => return Err("the payload is missing".to_owned()),
            Some("refuse") => return Err("refused\nas asked".to_owned()),
            Some("panic-early") => panic!("early"),
            Some(_) => {}
        }
        let overtake = match request.verb.as_str() {
            "CANCEL" | "CLEANUP" => Overtake::End,
            "UPDATESG" | "UPDATENIC" => Overtake::Spared,
            "BACKUPCANCEL" => Overtake::Stop("BACKUP"),
            "EXEC" | "POLL" => Overtake::Each,
            _ => Overtake::Wait,
        };
        Ok(Prepared {
            keys: Keys { subject: request.number, places: vec![host.clone()] },
            overtake,
            prefix: request.verb.starts_with("UPDATE").then(|| "101".to_owned()),
            work: Work { name: format!("{} {}", request.id, request.verb), host, words },
        })
    }

    async fn run(&self, work: Work, context: Context) -> Answer {
        self.note(format!("+{}", work.name));
        let answer = act(&work, &context).await;
        self.note(format!("-{}", work.name));
        answer
    }
}

impl Canned {
    fn note(&self, text: String) {
        self.record.lock().expect("no panic holds it").push(text);
    }
}

async fn act(work: &Work, context: &Context) -> Answer {
    let number = |at: usize| work.words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
    let pause = |millis: usize| tokio::time::sleep(Duration::from_millis(millis as u64));
    let text = || work.words[1..].join(" ").replace("\\n", "\n");
    match work.words[0].as_str() {
        "echo" => Answer::Success(text()),
        "fail" => Answer::Failure(text()),
        "bytes" => Answer::Success("x".repeat(number(1))),
        "panic" => panic!("as asked"),
        "sleep" => tokio::select! {
            () = pause(number(1)) => Answer::Success("slept".to_owned()),
            () = context.cancel.cancelled() => Answer::Failure("cancelled".to_owned()),
        },
        "hang" => {
            context.cancel.cancelled().await;
            pause(number(1)).await;
            Answer::Failure("rolled back".to_owned())
        }
        "logs" => {
            let text = "y".repeat(number(2));
            (0..number(1)).for_each(|_| (context.log)(Severity::Info, &text));
            Answer::Success("logged".to_owned())
        }
        "connect" => {
            context.slot.waiting(&work.host);
            pause(number(1)).await;
            context.slot.ready(&work.host).await;
            Answer::Success("connected".to_owned())
        }
        "lost" => {
            context.slot.unreachable(&work.host);
            Answer::Failure(format!("{} does not answer", work.host))
        }
        op => Answer::Failure(format!("no such op {op}")),
    }
}
