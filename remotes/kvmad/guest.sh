#!/bin/bash
# The agent and the processes in a guest. Sourced behind kvmad_common.sh.

# agent REQUEST: asks the agent in the guest of domain ID; its answer is in OUT, the reason of a failure in WHY.
agent() { ask qemu-agent-command "$ID" "$1" --timeout "$AGENT_TIMEOUT"; }

# locked_exec COMMAND...: runs it while nothing else, the monitoring included, looks at the processes in guests.
locked_exec() {
    local lock status=0
    { exec {lock}>>"$EXEC_FOLDER/.exec-lock"; } 2>/dev/null || fail "Can't open $EXEC_FOLDER/.exec-lock on host $HOST"
    flock -w "$VIRSH_TIMEOUT" "$lock" || fail "Another program holds $EXEC_FOLDER/.exec-lock on host $HOST for $VIRSH_TIMEOUT s"
    "$@" || status=$?
    exec {lock}>&-
    return "$status"
}
