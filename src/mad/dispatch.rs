//! The middle of a driver: lines come in, requests start, end, and are cancelled. It has a thread of its own, owns
//! the queue, and is told everything by events, so that nothing of this needs a lock.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::actions::{Actions, Answer, Context, Overtake, Prepared, Request, Severity, Slot};
use super::end::End;
use super::event::Event;
use super::form::ReplyTo;
use super::line::{self, Line};
use super::output::Output;
use super::queue::{Accepted, Ended, Queue};
use super::reader::Input;
use super::slot::Keeper;
use super::ticket::Ticket;

/// Most events that are taken before starting what can be started.
const BATCH: usize = 1000;
/// How often a driver that has finished looks whether its last lines are read.
const LAST_LINES: Duration = Duration::from_millis(50);

/// A request that is not finished.
struct Job<W> {
    verb: String,
    subject: i64,
    ticket: Option<Ticket>,
    work: Option<W>,
    cancel: CancellationToken,
    /// The verb of those that it stops.
    stops: Option<&'static str>,
    /// Told when it has its slot again.
    granted: Option<oneshot::Sender<()>>,
}

/// The dispatcher.
pub(super) struct Dispatcher<A: Actions> {
    pub(super) actions: Arc<A>,
    pub(super) output: Output,
    pub(super) queue: Queue,
    pub(super) runtime: Handle,
    pub(super) events: Sender<Event>,
    /// Why no request can be served, if so.
    pub(super) fault: Option<String>,
    pub(super) overtake_wait: Duration,
    pub(super) exit_wait: Duration,
    jobs: HashMap<u64, Job<A::Work>>,
    next_serial: u64,
    /// When those that hinder a request that ends others are given up.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Why no new request is taken, once it is so.
    finishing: Option<String>,
    ended: Option<End>,
}

impl<A: Actions> Dispatcher<A> {
    pub(super) fn new(
        actions: Arc<A>,
        output: Output,
        queue: Queue,
        runtime: Handle,
        events: Sender<Event>,
    ) -> Self {
        Self {
            actions,
            output,
            queue,
            runtime,
            events,
            fault: None,
            overtake_wait: Duration::from_secs(15),
            exit_wait: Duration::from_millis(800),
            jobs: HashMap::new(),
            next_serial: 0,
            deadlines: BTreeSet::new(),
            finishing: None,
            ended: None,
        }
    }

    /// Works until the driver is to end.
    pub(super) fn run(mut self, inbox: &Receiver<Event>) -> End {
        loop {
            if let Some(event) = self.next(inbox) {
                self.handle(event);
                inbox.try_iter().take(BATCH).for_each(|event| self.handle(event));
            }
            if let Some(end) = self.ended.take() {
                return self.leave(inbox, end);
            }
            self.give_up_late_ones();
            self.start_what_can();
            if self.finishing.is_some()
                && self.queue.is_idle()
                && self.output.drain(Instant::now() + LAST_LINES)
            {
                return End::Finalized;
            }
        }
    }

    fn next(&self, inbox: &Receiver<Event>) -> Option<Event> {
        let last_lines = self.finishing.is_some() && self.queue.is_idle();
        let wait = match self.deadlines.first() {
            _ if last_lines => Duration::ZERO,
            Some((deadline, _)) => deadline.saturating_duration_since(Instant::now()),
            None => Duration::from_secs(3600),
        };
        match inbox.recv_timeout(wait) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Input(Input::End(None))),
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Input(Input::Line(line)) => self.line(line::parse(&line), None),
            Event::Input(Input::TooLong(head, length)) => self.line(line::parse(&head), Some(length)),
            Event::Input(Input::End(fault)) => {
                tracing::info!(?fault, "stdin has ended");
                // A request whose reply is out is finished, also while its task has yet to tell us.
                let open = |serial: &u64| self.output.is_open(*serial);
                let finished = self.finishing.is_some() && !self.jobs.keys().any(open);
                self.ended.get_or_insert(if finished { End::Finalized } else { End::InputClosed });
            }
            Event::OutputLost(error) => {
                tracing::error!("stdout can't be written to: {error}");
                self.ended.get_or_insert(End::OutputLost);
            }
            Event::Signal(name) => self.finish(format!("the driver is ending ({name})")),
            Event::Finished(serial) => self.finished(serial),
            Event::Waiting(serial) => self.queue.waiting(serial),
            Event::Ready { serial, place, granted } => {
                if self.queue.ready(serial, &place) {
                    let _ = granted.send(());
                } else if let Some(job) = self.jobs.get_mut(&serial) {
                    job.granted = Some(granted);
                }
            }
            Event::Unreachable(place) => self.queue.unreachable(&place),
        }
    }

    fn line(&mut self, line: Line, too_long: Option<usize>) {
        match line {
            Line::Empty => {}
            Line::Init => self.output.init(self.fault.as_deref()),
            Line::Finalize => self.finish("the driver is ending (FINALIZE)".to_owned()),
            Line::Cancel(subject, form) => {
                self.output.open(form);
                let ended = self.queue.cancel(subject);
                let text = format!("Driver command for {subject} cancelled");
                self.end(subject, ended, &text);
            }
            Line::Request(request) => {
                self.output.open(request.form);
                self.request(&request, too_long);
            }
            Line::Unreadable(why) => {
                tracing::warn!("a line can't be answered: {why}");
                self.output.log(Severity::Warning, None, &format!("a line can't be answered: {why}"));
            }
        }
    }

    fn request(&mut self, request: &Request, too_long: Option<usize>) {
        self.next_serial += 1;
        let refusal = match (too_long, &self.fault, &self.finishing) {
            (Some(length), _, _) => Some(format!(
                "the request has {length} bytes, more than the driver accepts (request_limit in section [mad] of \
                 kvmad.conf)"
            )),
            (None, Some(reason), _) | (None, None, Some(reason)) => Some(reason.clone()),
            (None, None, None) => None,
        };
        let actions = &self.actions;
        let prepared = match refusal {
            Some(reason) => Err(reason),
            None => std::panic::catch_unwind(AssertUnwindSafe(|| actions.prepare(request)))
                .unwrap_or_else(|panic| Err(panicked(&request.verb, panic.as_ref()))),
        };
        match prepared {
            Ok(prepared) => self.accept(request, prepared),
            Err(reason) => {
                tracing::warn!(verb = %request.verb, id = %request.id, "refused: {reason}");
                let to = reply_to(request, None);
                Ticket::new(&self.output, self.next_serial, request.number, false, to)
                    .answer(&Answer::Failure(reason));
            }
        }
    }

    fn accept(&mut self, request: &Request, prepared: Prepared<A::Work>) {
        let Prepared { keys, overtake, prefix, work } = prepared;
        let (serial, subject, verb) = (self.next_serial, keys.subject, &request.verb);
        let output = &self.output;
        let open = |serial| output.is_open(serial);
        let ended = match self.queue.accept(serial, verb, prefix.as_deref(), keys, overtake, open) {
            Accepted::Queued(ended) => ended,
            Accepted::Joined(_) => {
                let text = format!("{verb} is under way already: the repeated request gets its result");
                self.output.log(Severity::Info, Some(subject), &text);
                return;
            }
        };
        if overtake == Overtake::End {
            self.deadlines.insert((Instant::now() + self.overtake_wait, serial));
            self.end(subject, ended, &format!("{verb} ends earlier actions"));
        }
        let to = reply_to(request, prefix);
        let ticket = Ticket::new(&self.output, serial, subject, overtake == Overtake::Spared, to);
        let stops = if let Overtake::Stop(verb) = overtake { Some(verb) } else { None };
        let job = Job {
            verb: verb.clone(),
            subject,
            ticket: Some(ticket),
            work: Some(work),
            cancel: CancellationToken::new(),
            stops,
            granted: None,
        };
        self.jobs.insert(serial, job);
        if let Some(stopped) = stops {
            self.queue.stoppable(serial, stopped).into_iter().for_each(|serial| self.output.spare(serial));
            let ended = self.queue.stop(serial, stopped, true);
            self.stop(ended, verb);
        }
    }

    /// Ends requests so that they are not answered.
    fn end(&mut self, subject: i64, ended: Ended, text: &str) {
        self.output.cancel(subject, &ended.all(), text);
        self.stop(ended, text);
    }

    /// Ends requests; those that are not begun are answered now, unless they are cancelled.
    fn stop(&mut self, ended: Ended, by: &str) {
        for serial in ended.queued {
            if let Some(Job { verb, ticket: Some(ticket), .. }) = self.jobs.remove(&serial) {
                ticket.answer(&Answer::Failure(format!("{verb} was ended before it began: {by}")));
            }
        }
        for serial in ended.running {
            if let Some(job) = self.jobs.get(&serial) {
                job.cancel.cancel();
            }
        }
    }

    /// Takes no more: what can start does, what would have to wait is refused.
    fn finish(&mut self, why: String) {
        self.start_what_can();
        self.refuse_more(why);
    }

    fn refuse_more(&mut self, why: String) {
        tracing::info!("{why}");
        let queued = self.queue.drop_queued();
        self.stop(Ended { queued, running: Vec::new() }, &why);
        self.finishing.get_or_insert(why);
    }

    fn finished(&mut self, serial: u64) {
        if let Some(Job { stops: Some(stopped), verb, .. }) = self.jobs.remove(&serial) {
            let ended = self.queue.stop(serial, stopped, false);
            self.stop(ended, &verb);
        }
        self.queue.finished(serial);
    }

    fn give_up_late_ones(&mut self) {
        let now = Instant::now();
        while let Some((_, serial)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now)
        {
            self.deadlines.pop_first();
            let Some(job) = self.jobs.get(&serial) else { continue };
            for late in self.queue.abandon_for(serial) {
                let Some(late) = self.jobs.get(&late) else { continue };
                let text = format!("{} goes on although {} has not ended yet", job.verb, late.verb);
                self.output.log(Severity::Warning, Some(job.subject), &text);
            }
        }
    }

    fn start_what_can(&mut self) {
        let (granted, started) = self.queue.pick();
        for serial in granted {
            if let Some(granted) = self.jobs.get_mut(&serial).and_then(|job| job.granted.take()) {
                let _ = granted.send(());
            }
        }
        for serial in started {
            self.deadlines.retain(|(_, waiting)| *waiting != serial);
            self.start(serial);
        }
    }

    fn start(&mut self, serial: u64) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let (Some(ticket), Some(work)) = (job.ticket.take(), job.work.take()) else { return };
        let (output, subject, verb) = (self.output.clone(), job.subject, job.verb.clone());
        let keeper = Keeper { serial, events: self.events.clone(), cancel: job.cancel.clone() };
        let context = Context {
            log: Arc::new(move |severity, text| output.log(severity, Some(subject), text)),
            cancel: job.cancel.clone(),
            slot: Slot::of(Arc::new(keeper)),
        };
        let actions = self.actions.clone();
        let run = self.runtime.spawn(async move { actions.run(work, context).await });
        let events = self.events.clone();
        self.runtime.spawn(async move {
            let answer = match run.await {
                Ok(answer) => answer,
                Err(error) => Answer::Failure(match error.try_into_panic() {
                    Ok(panic) => panicked(&verb, panic.as_ref()),
                    Err(_) => format!("{verb} was dropped because the driver ends"),
                }),
            };
            ticket.answer(&answer);
            let _ = events.send(Event::Finished(serial));
        });
    }

    /// Ends everything within the time that oned gives, and answers all that is open, in case it still reads.
    fn leave(mut self, inbox: &Receiver<Event>, end: End) -> End {
        let deadline = Instant::now() + self.exit_wait;
        self.refuse_more("oned closed the connection to the driver".to_owned());
        for serial in self.queue.cancel_all().running {
            if let Some(job) = self.jobs.get(&serial) {
                job.cancel.cancel();
            }
        }
        while !self.queue.is_idle() {
            match inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Finished(serial)) => self.finished(serial),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.output.fail_open(|to| {
            format!(
                "oned closed the connection to the driver while {} was running; its end on the host was not \
                 awaited: look at the VM there before going on",
                to.verb
            )
        });
        let _ = self.output.drain(deadline);
        end
    }
}

fn reply_to(request: &Request, prefix: Option<String>) -> ReplyTo {
    ReplyTo { verb: request.verb.clone(), id: request.id.clone(), prefix, form: request.form }
}

fn panicked(verb: &str, panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("the driver failed inside while serving {verb} (a fault of kvmad): {text}")
}
