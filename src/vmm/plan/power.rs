//! Starting, stopping and keeping a VM: DEPLOY, SHUTDOWN, CANCEL, SAVE, RESTORE, REBOOT, RESET, POLL.

use crate::host::job::Place;

use super::build::{Builder, Planned, text};
use super::{Call, Form, Info, Kind, Refusal, Source, Stdin, Step, UndoWhen, Value, What};

/// Stores its stdin as the file `$2` in the folder `$1`: readable for its owner only, never half a file. The
/// text is fixed; folder and name are arguments, the contents are stdin. VM and datastore documents may hold
/// decrypted secrets.
pub(crate) const STORE: &str = "set -eu\n\
    [ -d \"$1\" ] || mkdir -p -- \"$1\"\n\
    umask 077\n\
    trap 'rm -f -- \"$1/.$2.new\"' EXIT\n\
    cat >\"$1/.$2.new\"\n\
    mv -f -- \"$1/.$2.new\" \"$1/$2\"\n\
    trap - EXIT\n";

/// DEPLOY. The files vm.xml and ds.xml lie beside the deployment file before the domain starts.
pub(crate) fn deploy(builder: &Builder<'_>) -> Planned {
    let local_file = if builder.setup.generate_domain {
        builder.action.text("LOCAL_DEPLOYMENT_FILE")
    } else {
        builder.need("LOCAL_DEPLOYMENT_FILE")?
    };
    let clean = builder.network("clean", vec![builder.host()])?;
    let mut deploy = builder.vmm("deploy", []);
    let place = deploy.calls[0].place.clone();
    let file =
        if place == Place::Local { local_file.clone() } else { builder.need("REMOTE_DEPLOYMENT_FILE")? };
    let form = if place == Place::Local { Form::LocalScript } else { Form::Line };
    let source = if builder.setup.generate_domain { Source::Domain } else { Source::File(local_file) };
    deploy.calls[0].stdin = Stdin { source, form };
    deploy.calls[0].args = builder.with_tail([text(&file), builder.host()]);

    let printed = Value::DeployId(format!("one-{}", builder.action.id()));
    let mut steps: Vec<Step> = builder.context()?.into_iter().collect();
    steps.push(builder.network("pre", vec![])?.undone_by(clean));
    steps.extend(store_documents(builder, &place, &file));
    let cancel = builder.vmm("cancel", [printed.clone(), builder.host()]);
    steps.push(deploy.undone_by(cancel).undone(UndoWhen::Unsure));
    steps.push(builder.network("post", vec![printed, builder.host()])?);
    Ok((steps, Info::DeployId))
}

fn store_documents(builder: &Builder<'_>, place: &Place, file: &str) -> Vec<Step> {
    let folder = match file.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => ".",
    };
    let root = builder.action.root();
    let parts = [("vm.xml", root.child("VM")), ("ds.xml", root.child("DATASTORE"))];
    let store = |(name, element): (&str, Option<&crate::template::xml::Element>)| {
        let stdin = Stdin { source: Source::Data(builder.action.slice(element?)), form: Form::Line };
        let args = ["-c", STORE, "store", folder, name].into_iter().map(text).collect();
        let program = What::Program("/bin/sh");
        let call = Call { label: None, place: place.clone(), program, args, stdin };
        Some(Step::new(Kind::Vmm, format!("store {name}"), vec![call]))
    };
    parts.into_iter().filter_map(store).collect()
}

/// SHUTDOWN and CANCEL. The domain is gone when the network is cleaned, so a failing clean is no failure of the
/// action: `oned` would believe that the VM still runs.
pub(crate) fn stop(builder: &Builder<'_>, script: &'static str) -> Planned {
    let stop = builder.vmm(script, [builder.deploy_id()?, builder.host()]);
    let clean = builder.network("clean", vec![builder.host()])?.no_fail();
    Ok((vec![stop, clean], Info::Output(script)))
}

/// SAVE.
pub(crate) fn save(builder: &Builder<'_>) -> Planned {
    let clean = builder.network("clean", vec![builder.host()])?.no_fail();
    Ok((vec![save_step(builder, builder.deploy_id()?)?, clean], Info::Output("save")))
}

fn save_step(builder: &Builder<'_>, id: Value) -> Result<Step, Refusal> {
    let checkpoint = text(builder.need("CHECKPOINT_FILE")?);
    Ok(builder.vmm("save", [id, checkpoint, builder.host()]))
}

/// RESTORE. When the network can't be completed behind it, the VM goes back into its checkpoint, which the
/// script removed, before the domain is ended.
pub(crate) fn restore(builder: &Builder<'_>) -> Planned {
    let id = builder.deploy_id().unwrap_or_else(|_| text(format!("one-{}", builder.action.id())));
    let checkpoint = text(builder.need("CHECKPOINT_FILE")?);
    let clean = builder.network("clean", vec![builder.host()])?;
    let mut cancel = builder.vmm("cancel", [id.clone(), builder.host()]);
    cancel.needs_previous = true;
    let restore = builder
        .vmm("restore", [checkpoint, builder.host(), id.clone()])
        .undone_by(save_step(builder, id.clone())?)
        .undone_by(cancel);

    let mut steps: Vec<Step> = builder.context()?.into_iter().collect();
    steps.push(builder.network("pre", vec![])?.undone_by(clean));
    steps.push(restore);
    steps.push(builder.network("post", vec![id, builder.host()])?);
    Ok((steps, Info::Output("restore")))
}

/// REBOOT and RESET.
pub(crate) fn press(builder: &Builder<'_>, script: &'static str) -> Planned {
    Ok((vec![builder.vmm(script, [builder.deploy_id()?, builder.host()])], Info::Output(script)))
}

/// POLL, which cores up to 5.10 send.
pub(crate) fn poll(builder: &Builder<'_>) -> Planned {
    let args = builder.with_tail([builder.deploy_id()?, builder.host()]);
    Ok((vec![builder.direct("poll", args)], Info::Output("poll")))
}
