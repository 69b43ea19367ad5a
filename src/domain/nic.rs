//! `interface`.

use super::context::{Context, Queues};
use super::disk::{boot, vector_given};
use super::provenance::Provenance;
use super::tree::Element;
use super::value::{Sourced, as_attribute, attribute_meaning, given};
use crate::template::lookup::Text;
use crate::template::value::Vector;

/// Where the sockets of Open vSwitch with DPDK are.
const VHOST_SOCKETS: &str = "/var/run/one/vhost-socks/";

/// Defaults for an interface: the site's, or others for one that is attached.
pub struct NicDefaults<'a> {
    pub model: Option<Text<'a>>,
    pub filter: Option<Text<'a>>,
    pub queues: Queues<'a>,
}

impl<'a> NicDefaults<'a> {
    pub fn of_site(context: &Context<'a>) -> Self {
        let member = |name| context.site.member("NIC", name).and_then(Text::filled);
        Self {
            model: member("MODEL"),
            filter: member("FILTER"),
            queues: Queues::new(member("VIRTIO_QUEUES")),
        }
    }
}

/// One interface for each NIC.
pub fn interfaces(context: &Context<'_>) -> Vec<Element> {
    let mut defaults = NicDefaults::of_site(context);
    context.vm.vectors("NIC").map(|nic| interface(context, nic, &mut defaults)).collect()
}

/// The interface of `nic`.
pub fn interface<'a>(context: &Context<'a>, nic: Vector<'a>, defaults: &mut NicDefaults<'a>) -> Element {
    let mut element = network(nic).because(Provenance::Given(vector_given(nic)));
    let mut simple = |name: &'static str, attribute: &'static str, key: &'static str| {
        if let Some(text) = nic.filled_text(key) {
            element.push(Element::new(name).attr(attribute, as_attribute(text)));
        }
    };
    simple("mac", "address", "MAC");
    simple("target", "dev", "TARGET");
    element = element.child_if(boot(context, nic));
    if let Some(script) = nic.filled_text("SCRIPT") {
        element.push(Element::new("script").attr("path", as_attribute(script)));
    }
    let model = nic.filled_text("MODEL").or(defaults.model);
    if let Some(model) = model {
        element.push(Element::new("model").attr("type", as_attribute(model)));
    }
    let queues = defaults.queues.of(context, nic.text("VIRTIO_QUEUES"));
    if let Some(queues) = queues.filter(|_| model.is_some_and(|model| model.value == "virtio")) {
        element.push(Element::new("driver").attr("name", "vhost").attr("queues", queues));
    }
    element.child_if(filter(nic, defaults)).child_if(bandwidth(nic))
}

fn network(nic: Vector<'_>) -> Element {
    let dummy = nic.get("NETWORK_MODE").is_some_and(|mode| mode.eq_ignore_ascii_case("dummy"));
    let Some(bridge) = nic.filled_text("BRIDGE").filter(|_| !dummy) else {
        return Element::new("interface").attr("type", "ethernet");
    };
    let source = Element::new("source");
    let kind = |kind: &str, from: Text<'_>| {
        let kind = Sourced { value: kind.to_owned(), from: Provenance::Given(given(from.at)) };
        Element::new("interface").attr("type", kind)
    };
    match nic.filled_text("BRIDGE_TYPE") {
        Some(text) if text.value == "openvswitch" => kind("bridge", text)
            .child(Element::new("virtualport").attr("type", "openvswitch"))
            .child(source.attr("bridge", as_attribute(bridge))),
        Some(text) if text.value == "openvswitch_dpdk" => {
            let target = nic.text("TARGET");
            let path = format!("{VHOST_SOCKETS}{}", target.map_or("", |target| target.value));
            let path =
                Sourced::computed(attribute_meaning(&path), "socket of TARGET", target.map(|t| given(t.at)));
            kind("vhostuser", text)
                .child(source.attr("type", "unix").attr("mode", "server").attr("path", path))
        }
        _ => kind("bridge", bridge).child(source.attr("bridge", as_attribute(bridge))),
    }
}

fn filter(nic: Vector<'_>, defaults: &NicDefaults<'_>) -> Option<Element> {
    let ip = nic.filled_text("IP")?;
    let filter = nic.filled_text("FILTER").or(defaults.filter)?;
    let parameter = |value| Element::new("parameter").attr("name", "IP").attr("value", as_attribute(value));
    let element = Element::new("filterref").attr("filter", as_attribute(filter)).child(parameter(ip));
    Some(element.child_if(nic.filled_text("VROUTER_IP").map(parameter)))
}

fn bandwidth(nic: Vector<'_>) -> Option<Element> {
    const MEMBERS: [(&str, [&str; 3]); 2] = [
        ("inbound", ["INBOUND_AVG_BW", "INBOUND_PEAK_BW", "INBOUND_PEAK_KB"]),
        ("outbound", ["OUTBOUND_AVG_BW", "OUTBOUND_PEAK_BW", "OUTBOUND_PEAK_KB"]),
    ];
    let mut bandwidth = Element::new("bandwidth");
    for (name, [average, peak, burst]) in MEMBERS {
        let value = |key| nic.filled_text(key).map(as_attribute);
        let element = Element::new(name)
            .attr_if("average", value(average))
            .attr_if("peak", value(peak))
            .attr_if("burst", value(burst));
        if !element.attributes.is_empty() {
            bandwidth.push(element);
        }
    }
    (!bandwidth.children.is_empty()).then_some(bandwidth)
}
