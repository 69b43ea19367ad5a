//! A whole driver: stdin, stdout, and the actions between them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use super::actions::Actions;
use super::dispatch::Dispatcher;
use super::end::End;
use super::event::Event;
use super::form::{Form, PlainForm};
use super::output::Output;
use super::queue::{Limits, Queue};
use super::reader;
use crate::settings;

/// How a driver serves.
#[derive(Clone)]
pub struct Setup {
    /// Slots and shares.
    pub limits: Limits,
    /// How messages are written.
    pub form: Arc<dyn Form>,
    /// LOG lines kept while nobody reads, in bytes.
    pub log_buffer: usize,
    /// Longest request line, in bytes.
    pub request_limit: usize,
    /// How long CANCEL and CLEANUP wait for the end of what they end.
    pub overtake_wait: Duration,
    /// How long the driver may take to end when stdin ended.
    pub exit_wait: Duration,
    /// Why the driver can't serve: INIT and all requests are then answered FAILURE.
    pub fault: Option<String>,
    /// Whether SIGTERM, SIGHUP and SIGINT finish what runs and end the driver.
    pub signals: bool,
}

impl Setup {
    /// From the settings, for `slots` requests at once.
    #[must_use]
    pub fn new(settings: &settings::Mad, slots: usize, parallel: bool) -> Self {
        let share = (slots * settings.host_share.0 / 100).max(1);
        Self {
            limits: Limits { slots, extra: settings.overtake_slots, parallel, share },
            form: Arc::new(PlainForm {
                info_limit: settings.info_limit.0,
                log_limit: settings.log_line_limit.0,
            }),
            log_buffer: settings.log_buffer.0,
            request_limit: settings.request_limit.0,
            overtake_wait: settings.overtake_wait,
            exit_wait: settings.exit_wait,
            fault: None,
            signals: true,
        }
    }
}

/// Serves until stdin ends, FINALIZE has been obeyed, or stdout is lost. Requests run on `runtime`; the threads of
/// stdin and stdout may outlive the call, since nothing can wake a blocked read: the program is expected to end.
///
/// # Errors
/// When a thread can't be started.
pub fn serve<A: Actions>(
    actions: Arc<A>,
    setup: Setup,
    runtime: &Handle,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> std::io::Result<End> {
    let (events, inbox) = mpsc::channel();
    let lost = events.clone();
    let output = Output::start(setup.form, setup.log_buffer, output, move |error| {
        let _ = lost.send(Event::OutputLost(error));
    })?;
    let lines = events.clone();
    let limit = setup.request_limit;
    std::thread::Builder::new().name("mad-read".to_owned()).spawn(move || {
        reader::drain(input, limit, |input| lines.send(Event::Input(input)).is_ok());
    })?;
    if setup.signals {
        watch_signals(runtime, &events);
    }
    let writer = output.clone();
    let mut dispatcher = Dispatcher::new(actions, output, Queue::new(setup.limits), runtime.clone(), events);
    dispatcher.fault = setup.fault;
    dispatcher.overtake_wait = setup.overtake_wait;
    dispatcher.exit_wait = setup.exit_wait;
    let end = dispatcher.run(&inbox);
    writer.close();
    Ok(end)
}

/// stdin and stdout of this process for [`serve`], unbuffered and blocking, whatever they were before.
///
/// # Errors
/// When one of them is not there.
pub fn stdio() -> std::io::Result<(File, File)> {
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    for file in [&input, &output] {
        let flags = rustix::fs::fcntl_getfl(file)?;
        rustix::fs::fcntl_setfl(file, flags.difference(rustix::fs::OFlags::NONBLOCK))?;
    }
    Ok((input, output))
}

fn watch_signals(runtime: &Handle, events: &mpsc::Sender<Event>) {
    let kinds = [
        (SignalKind::terminate(), "SIGTERM"),
        (SignalKind::hangup(), "SIGHUP"),
        (SignalKind::interrupt(), "SIGINT"),
    ];
    for (kind, name) in kinds {
        let events = events.clone();
        runtime.spawn(async move {
            match signal(kind) {
                Ok(mut signals) => {
                    while signals.recv().await.is_some() && events.send(Event::Signal(name)).is_ok() {}
                }
                Err(error) => tracing::warn!("{name} can't be watched: {error}"),
            }
        });
    }
}
