//! The slot of a running request, as the dispatcher grants it.

use std::sync::mpsc::Sender;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::actions::{Boxed, SlotKeeper};
use super::event::Event;

/// Tells the dispatcher what a running request does with its slot.
pub(super) struct Keeper {
    pub(super) serial: u64,
    pub(super) events: Sender<Event>,
    pub(super) cancel: CancellationToken,
}

impl SlotKeeper for Keeper {
    fn waiting(&self, _place: &str) {
        // When the dispatcher is gone the driver ends: nothing is left to be told.
        let _ = self.events.send(Event::Waiting(self.serial));
    }

    fn ready<'a>(&'a self, place: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            let (granted, grant) = oneshot::channel();
            let event = Event::Ready { serial: self.serial, place: place.to_owned(), granted };
            if self.events.send(event).is_ok() {
                tokio::select! {
                    _ = grant => {}
                    () = self.cancel.cancelled() => {}
                }
            }
        })
    }

    fn unreachable(&self, place: &str) {
        let _ = self.events.send(Event::Unreachable(place.to_owned()));
    }
}
