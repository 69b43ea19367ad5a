//! MIGRATE, from one host to another or, on one host, from one datastore to another.

use crate::host::job::{HostName, Place};

use super::build::{Builder, Planned, text};
use super::transfer::Command;
use super::{Form, Info, Settle, Step, UndoWhen, Value};

/// MIGRATE. Once the domain runs on the target nothing can take it back, so what follows may fail.
pub(crate) fn migrate(builder: &Builder<'_>) -> Planned {
    let target = builder.action.migr_host().ok_or_else(|| builder.expecting("MIGR_HOST"))?;
    let command = builder.command()?;
    let id = builder.deploy_id()?;
    let moves = target != builder.action.host();

    let mut steps = vec![premigrate(builder, &command)];
    if moves {
        let clean = builder.network_at(target, "clean", vec![text(target.as_str())])?;
        steps.push(builder.network_at(target, "pre", vec![])?.undone_by(clean));
    }
    let mut main = builder.vmm("migrate", [id.clone(), text(target.as_str()), builder.host()]);
    main.commits = true;
    main.settle = Some(if moves { settle(builder, target, &id) } else { Settle::Unknowable });
    steps.push(main);
    if moves {
        steps.push(builder.network("clean", vec![builder.host()])?.no_fail());
        steps.push(builder.network_at(target, "post", vec![id, text(target.as_str())])?.no_fail());
    }
    steps.push(around(builder, &command, "POSTMIGRATE").no_fail());
    Ok((steps, Info::Output("migrate")))
}

fn premigrate(builder: &Builder<'_>, command: &Command) -> Step {
    around(builder, command, "PREMIGRATE")
        .undone_by(around(builder, command, "FAILMIGRATE"))
        .undone(UndoWhen::Failed)
}

/// A transfer step beside the migration; it reads the VM. Scripts of cores up to 4.14 take the VM as a last
/// argument instead.
fn around(builder: &Builder<'_>, command: &Command, verb: &str) -> Step {
    let name = format!("tm_{}", verb.to_lowercase());
    let mut step = command.as_verb(verb).step_reading(&name, builder.vm_stdin(Form::Base64Bare));
    if builder.action.names_net_drv() {
        use base64::Engine;
        let vm = builder.action.slice(builder.action.vm());
        let vm = base64::engine::general_purpose::STANDARD.encode(vm);
        step.calls[0].args.push(Value::Fitting(vm));
    }
    step
}

/// Who has the VM is asked by `poll` on both hosts.
fn settle(builder: &Builder<'_>, target: &HostName, id: &Value) -> Settle {
    let ask = |host: &HostName| {
        let mut step = builder.vmm_at(host, "poll", [id.clone(), text(host.as_str())]);
        step.calls[0].place = Place::Host { name: host.clone(), agent: false };
        Box::new(step)
    };
    Settle::Ask { after: ask(target), before: ask(builder.action.host()) }
}
