//! `graphics`, `video`, `input`.

use super::context::Context;
use super::markup;
use super::provenance::Provenance;
use super::refusal::Refusal;
use super::tree::{Element, Node};
use super::value::{Sourced, as_attribute, attribute_meaning, because, given};
use crate::template::lookup::Text;

/// Characters of a made-up password that the protocols take.
const VNC_PASSWORD: usize = 8;
const SPICE_PASSWORD: usize = 59;

/// Everything in order; `last_kind` is the kind of the last disk, which stands in for a missing TYPE in
/// OpenNebula.
///
/// # Errors
/// [`Refusal`] of `SPICE_OPTIONS` that are no markup.
pub fn displays(context: &Context<'_>, last_kind: &str) -> Result<Vec<Node>, Refusal> {
    let mut nodes = Vec::new();
    let mut current = last_kind.to_ascii_lowercase();
    if context.vm.vector("GRAPHICS").is_some() {
        let kind = context.all.member("GRAPHICS", "TYPE");
        if let Some(kind) = kind {
            current = kind.value.to_ascii_lowercase();
        }
        match kind.filter(|_| current == "vnc" || current == "spice") {
            Some(kind) => {
                nodes.push(Node::Element(graphics(context, &current, kind)));
                let options = context.all.text("SPICE_OPTIONS").and_then(Text::filled);
                if let Some(options) = options.filter(|_| current == "spice") {
                    nodes.extend(markup::nodes(options)?);
                }
            }
            None => context.warn(format!("GRAPHICS has the type {current:?}; only vnc and spice are known")),
        }
    }
    if context.vm.vector("VIDEO").is_some() {
        nodes.extend(video(context, &current).map(Node::Element));
    }
    nodes.extend(input(context).map(Node::Element));
    Ok(nodes)
}

fn graphics(context: &Context<'_>, kind: &str, at: Text<'_>) -> Element {
    let member = |name| context.all.member("GRAPHICS", name).and_then(Text::filled).map(as_attribute);
    let port = context.vm.vector("GRAPHICS").and_then(|vector| vector.filled_text("PORT"));
    let password = member("PASSWD").or_else(|| {
        let random = context.all.member_flag("GRAPHICS", "RANDOM_PASSWD");
        let length = if kind == "spice" { SPICE_PASSWORD } else { VNC_PASSWORD };
        let password: String = context.inputs.options.random_password.chars().take(length).collect();
        random.value.then(|| Sourced::computed(password, "a random password", random.at.map(given)))
    });
    Element::new("graphics")
        .attr("type", Sourced { value: kind.to_owned(), from: Provenance::Given(given(at.at)) })
        .attr_if("listen", member("LISTEN"))
        .attr_if("port", port.map(as_attribute))
        .attr_if("passwd", password)
        .attr_if("keymap", member("KEYMAP"))
}

fn video(context: &Context<'_>, current: &str) -> Option<Element> {
    let kind = context.all.member("VIDEO", "TYPE");
    if context.mended && kind.is_none_or(|kind| kind.value.is_empty()) {
        context.warn("VIDEO has no TYPE; it is left out");
        return None;
    }
    let lower = kind.map_or_else(|| current.to_owned(), |kind| kind.value.to_ascii_lowercase());
    let mut video = Element::new("video");
    let iommu = context.all.member_flag("VIDEO", "IOMMU");
    let ats = context.all.member_flag("VIDEO", "ATS");
    let exact = kind.map_or(current, |kind| kind.value);
    if exact == "virtio" && (iommu.value || ats.value) {
        let on = |flag: &crate::template::lookup::Typed<'_, bool>| {
            flag.value.then(|| Sourced { value: "on".to_owned(), from: because(flag) })
        };
        video.push(Element::new("driver").attr_if("iommu", on(&iommu)).attr_if("ats", on(&ats)));
    }
    let from = kind.map_or(Provenance::BuiltIn, |kind| Provenance::Given(given(kind.at)));
    let mut model = Element::new("model").attr("type", Sourced { value: attribute_meaning(&lower), from });
    let vram = context.all.member_int("VIDEO", "VRAM", 0);
    if vram.value >= 1024 && lower != "none" {
        model.set("vram", Sourced::number(&vram));
    }
    let resolution = context.all.member("VIDEO", "RESOLUTION").and_then(Text::filled);
    if let Some(resolution) = resolution.filter(|_| lower != "none" && lower != "cirrus") {
        model = model.child_if(size(context, resolution));
    }
    Some(video.child(model))
}

/// `WIDTHxHEIGHT`.
fn size(context: &Context<'_>, resolution: Text<'_>) -> Option<Element> {
    let mut parts = resolution.value.split('x').filter(|part| !part.is_empty());
    let (Some(x), Some(y)) = (parts.next(), parts.next()) else {
        context.warn(format!(
            "{} is {:?}, not WIDTHxHEIGHT; it is left out",
            given(resolution.at),
            resolution.value
        ));
        return None;
    };
    let part =
        |value| Sourced { value: attribute_meaning(value), from: Provenance::Given(given(resolution.at)) };
    Some(Element::new("resolution").attr("x", part(x)).attr("y", part(y)))
}

fn input(context: &Context<'_>) -> Option<Element> {
    let inputs = context.vm.vectors("INPUT");
    let (input, kind) = inputs.filter_map(|input| Some((input, input.filled_text("TYPE")?))).next()?;
    let bus = input.filled_text("BUS").map(as_attribute);
    Some(Element::new("input").attr("type", as_attribute(kind)).attr_if("bus", bus))
}
