//! Network steps: which drivers are in use, what each is called with, and the reduced document it reads.

use bytes::Bytes;

use crate::host::job::{HostName, Place};
use crate::template::xml::Element;

use super::build::{Builder, name};
use super::{Call, Form, Kind, Refusal, Source, Stdin, Step, Value, What};

/// Elements of VM/TEMPLATE that are interfaces, in the order in which they name drivers.
const INTERFACES: [&str; 3] = ["NIC", "NIC_ALIAS", "PCI"];

/// Elements of the newest history record that network scripts read.
const HISTORY: [&str; 4] = ["HOSTNAME", "HID", "DS_ID", "VM_MAD"];

/// What a network step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The reduced document.
    Reduced,
    /// The whole VM on a host, the reduced document on the front-end (UPDATENIC).
    WholeOnHost,
}

impl Builder<'_> {
    /// A script of every network driver in use, on the main host.
    pub(crate) fn network(&self, action: &str, args: Vec<Value>) -> Result<Step, Refusal> {
        self.network_at(self.action.host(), action, args)
    }

    /// A script of every network driver in use, on `host`.
    pub(crate) fn network_at(
        &self,
        host: &HostName,
        action: &str,
        args: Vec<Value>,
    ) -> Result<Step, Refusal> {
        let drivers = self.network_drivers(host)?;
        Ok(self.network_step(host, action, &args, &drivers, Reads::Reduced))
    }

    /// A script of each of `drivers`, on `host`.
    pub(crate) fn network_step(
        &self,
        host: &HostName,
        action: &str,
        args: &[Value],
        drivers: &[String],
        reads: Reads,
    ) -> Step {
        let reduced = if drivers.is_empty() { Bytes::new() } else { self.reduced() };
        let call = |driver: &String| self.network_call(host, action, args, driver, reads, &reduced);
        Step::new(Kind::Network, action, drivers.iter().map(call).collect())
    }

    fn network_call(
        &self,
        host: &HostName,
        action: &str,
        args: &[Value],
        driver: &String,
        reads: Reads,
        reduced: &Bytes,
    ) -> Call {
        let listed = self.setup.local_script(action);
        let own = self.setup.network_local.contains(&format!("{driver}-{action}"));
        let (place, script) = match listed {
            Some(script) => (Place::Local, script),
            None if own => (Place::Local, action.to_owned()),
            None => (self.place(host), action.to_owned()),
        };
        let stdin = match (&place, reads) {
            (Place::Local, _) => Stdin { source: Source::Data(reduced.clone()), form: Form::Base64Bare },
            (_, Reads::Reduced) => Stdin { source: Source::Data(reduced.clone()), form: Form::Base64 },
            (_, Reads::WholeOnHost) => {
                let whole = self.action.slice(self.action.vm());
                Stdin { source: Source::Data(whole), form: Form::Base64Lines }
            }
        };
        Call {
            label: Some(driver.clone()),
            place,
            program: What::Script(format!("vnm/{driver}/{script}")),
            args: args.to_vec(),
            stdin,
        }
    }

    /// The drivers in use, each once, in the order in which interfaces name them. Cores up to 4.14 name one
    /// for the host instead.
    pub(crate) fn network_drivers(&self, host: &HostName) -> Result<Vec<String>, Refusal> {
        let mut found: Vec<String> = Vec::new();
        if self.action.names_net_drv() {
            let second =
                self.action.migr_host().is_some_and(|second| second == host) && self.action.host() != host;
            let given = self.action.text(if second { "MIGR_NET_DRV" } else { "NET_DRV" });
            if !given.trim().is_empty() {
                found.push(name("the network driver", given.trim())?);
            }
            return Ok(found);
        }
        for interface in self.interfaces() {
            let driver = interface.filled("VN_MAD").unwrap_or_default();
            let driver = name("VN_MAD", driver.trim())?;
            if !found.contains(&driver) {
                found.push(driver);
            }
        }
        Ok(found)
    }

    /// The interfaces that have a network driver.
    fn interfaces(&self) -> impl Iterator<Item = &Element> {
        let template = self.action.template();
        let old = self.action.names_net_drv();
        let driven = move |element: &&Element| {
            old || element.text_at("VN_MAD").is_some_and(|driver| !driver.trim().is_empty())
        };
        INTERFACES
            .iter()
            .flat_map(move |name| template.into_iter().flat_map(move |template| template.children(name)))
            .filter(driven)
    }

    /// The document that network scripts read: the parts of the VM they need, each in a chain of parents of its
    /// own, so TEMPLATE and HISTORY_RECORDS repeat.
    pub(crate) fn reduced(&self) -> Bytes {
        let vm = self.action.vm();
        let mut out = String::from("<VM>");
        let mut put = |chain: &[&str], element: Option<&Element>| {
            let Some(element) = element else { return };
            for parent in chain {
                out.push_str(&format!("<{parent}>"));
            }
            out.push_str(self.action.source_of(element));
            for parent in chain.iter().rev() {
                out.push_str(&format!("</{parent}>"));
            }
        };
        put(&[], vm.child("ID"));
        put(&[], vm.child("DEPLOY_ID"));
        put(&["TEMPLATE"], vm.at("TEMPLATE/CONTEXT"));
        put(&[], vm.child("USER_TEMPLATE"));
        for rule in self.action.template().into_iter().flat_map(|t| t.children("SECURITY_GROUP_RULE")) {
            put(&["TEMPLATE"], Some(rule));
        }
        let history = vm.at("HISTORY_RECORDS/HISTORY");
        for field in HISTORY {
            put(&["HISTORY_RECORDS", "HISTORY"], history.and_then(|history| history.child(field)));
        }
        for interface in self.interfaces() {
            put(&["TEMPLATE"], Some(interface));
        }
        out.push_str("</VM>");
        Bytes::from(out)
    }
}
