//! Interfaces and what follows from them: ATTACHNIC, DETACHNIC, UPDATECONF, UPDATESG, UPDATENIC.

use crate::template::xml::Element;

use super::build::{Builder, Planned, text};
use super::network::Reads;
use super::{Info, Refusal, Step, Value};

/// The interface that the action is about.
enum Interface<'a> {
    /// A device of the VM: NIC or PCI.
    Device(&'a Element),
    /// A further address on one, without a device.
    Alias,
}

fn flagged<'a>(builder: &Builder<'a>) -> Result<Interface<'a>, Refusal> {
    let action = builder.action;
    if let Some(device) = action.flagged("NIC", "ATTACH").or_else(|| action.flagged("PCI", "ATTACH")) {
        return Ok(Interface::Device(device));
    }
    match action.flagged("NIC_ALIAS", "ATTACH") {
        Some(_) => Ok(Interface::Alias),
        None => Err(builder.expecting("VM/TEMPLATE/NIC[ATTACH='YES']")),
    }
}

fn attribute(device: &Element, name: &str, or: &str) -> Value {
    text(device.filled(name).unwrap_or_else(|| or.to_owned()))
}

/// `attach_nic`: deploy id, MAC, bridge, model, network driver, target.
fn attach_step(builder: &Builder<'_>, device: &Element) -> Result<Step, Refusal> {
    let args = [
        builder.deploy_id()?,
        attribute(device, "MAC", ""),
        attribute(device, "BRIDGE", ""),
        attribute(device, "MODEL", "-"),
        attribute(device, "VN_MAD", ""),
        attribute(device, "TARGET", ""),
    ];
    Ok(builder.vmm("attach_nic", args))
}

fn detach_step(builder: &Builder<'_>, device: &Element) -> Result<Step, Refusal> {
    Ok(builder.vmm("detach_nic", [builder.deploy_id()?, attribute(device, "MAC", "")]))
}

/// ATTACHNIC. Whatever fails later, the interface is taken out again and its network cleaned.
pub(crate) fn attach(builder: &Builder<'_>) -> Planned {
    let id = builder.deploy_id()?;
    let clean = builder.network("clean", vec![builder.host()])?;
    let mut steps = vec![builder.network("pre", vec![])?.undone_by(clean)];
    let interface = flagged(builder)?;
    if let Interface::Device(device) = interface {
        steps.push(attach_step(builder, device)?.undone_by(detach_step(builder, device)?));
    }
    steps.push(builder.network("post", vec![id, builder.host()])?);
    steps.extend(reconfigure(builder)?);
    Ok(match interface {
        Interface::Device(_) => (steps, Info::Output("attach_nic")),
        Interface::Alias => (steps, Info::Nothing),
    })
}

/// DETACHNIC. When the context can't be renewed the interface is put back: `oned` keeps it.
pub(crate) fn detach(builder: &Builder<'_>) -> Planned {
    let clean = builder.network("clean", vec![builder.host()])?;
    let post = builder.network("post", vec![builder.deploy_id()?, builder.host()])?;
    let pre = builder.network("pre", vec![])?;
    let Interface::Device(device) = flagged(builder)? else {
        let mut steps = vec![clean.undone_by(pre).undone_by(post)];
        steps.extend(reconfigure(builder)?);
        return Ok((steps, Info::Nothing));
    };
    if device.filled("MAC").is_none() {
        return Err(Refusal::NoMac);
    }
    let back = attach_step(builder, device)?;
    let mut steps =
        vec![detach_step(builder, device)?.undone_by(back).undone_by(post), clean.no_fail().undone_by(pre)];
    steps.extend(reconfigure(builder)?);
    Ok((steps, Info::Output("detach_nic")))
}

/// The context disk is taken out, made again and put in. Whatever fails in between, a disk is put in again.
fn reconfigure(builder: &Builder<'_>) -> Result<Vec<Step>, Refusal> {
    let target = text(builder.action.text("VM/TEMPLATE/CONTEXT/TARGET"));
    let id = builder.deploy_id()?;
    let path = text(builder.action.text("DISK_TARGET_PATH"));
    let put_in = builder.vmm("reconfigure", [id.clone(), target.clone(), path]);
    let mut steps = vec![builder.vmm("prereconfigure", [id, target]).undone_by(put_in.clone())];
    steps.extend(builder.context()?);
    steps.push(put_in);
    Ok(steps)
}

/// UPDATECONF.
pub(crate) fn update_conf(builder: &Builder<'_>) -> Planned {
    Ok((reconfigure(builder)?, Info::Nothing))
}

/// UPDATESG.
pub(crate) fn update_sg(builder: &Builder<'_>) -> Planned {
    builder.need("SECURITY_GROUP_ID")?;
    let step = builder.network("update_sg", vec![builder.deploy_id()?])?;
    Ok((vec![step], Info::Output("update_sg")))
}

/// UPDATENIC. A NIC without network has no VIRTUAL_NETWORK_ID: it is -1 then.
pub(crate) fn update_nic(builder: &Builder<'_>) -> Planned {
    let network = super::prefix(builder.verb, builder.action).unwrap_or_default();
    let host = builder.action.host();
    let drivers = builder.network_drivers(host)?;
    let args = [builder.deploy_id()?, text(network)];
    let step = builder.network_step(host, "update_nic", &args, &drivers, Reads::WholeOnHost);
    Ok((vec![step], Info::Output("update_nic")))
}
