//! Capacity and commands inside the guest: RESIZE, EXEC, EXEC_CANCEL.

use crate::vmm::payload;

use super::build::{Builder, Planned, text};
use super::{Info, Refusal, Value};

/// RESIZE of memory and CPUs.
pub(crate) fn resize(builder: &Builder<'_>) -> Planned {
    let args = builder.with_tail([builder.deploy_id()?]);
    Ok((vec![builder.direct("resize", args)], Info::Output("resize")))
}

/// EXEC. Its arguments are VM id, host, command and stdin in base64, nothing else. A value that does not fit
/// into an argument is `-` there; the document has it.
pub(crate) fn exec(builder: &Builder<'_>) -> Planned {
    let command = builder.need("VM/TEMPLATE/QEMU_GA_EXEC/COMMAND")?;
    let stdin = builder.action.text("VM/TEMPLATE/QEMU_GA_EXEC/STDIN");
    let stdin = stdin.trim();
    let inside = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=') || byte.is_ascii_whitespace()
    };
    if !stdin.is_empty() && (!stdin.bytes().all(inside) || payload::decode(stdin).is_err()) {
        let text = "VM/TEMPLATE/QEMU_GA_EXEC/STDIN is not base64";
        return Err(Refusal::BadValue(text.to_owned()));
    }
    let args = vec![
        text(builder.action.id()),
        builder.host(),
        Value::Fitting(command),
        Value::Fitting(stdin.to_owned()),
    ];
    Ok((vec![builder.direct("exec", args)], Info::Output("exec")))
}

/// EXEC_CANCEL.
pub(crate) fn exec_cancel(builder: &Builder<'_>) -> Planned {
    Ok((vec![builder.direct("exec_cancel", builder.with_tail([]))], Info::Output("exec_cancel")))
}
