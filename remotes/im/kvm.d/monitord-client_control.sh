#!/bin/bash
# monitord-client_control.sh [stop] HYPERVISOR HOSTID HOST: starts or ends the monitoring agent of this host.
set -euo pipefail

main() {
    local here action=start helper

    here=$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd)
    helper=${here%/im}/kvmad/$(uname -m)/kvmad-node
    if [[ ${1:-} == stop ]]; then
        action=stop
        shift
    fi
    if [[ ! -x $helper ]]; then
        printf 'there is no %s: install kvmad for this CPU on the front-end and push the remotes anew\n' "$helper" >&2
        exit 1
    fi
    exec "$helper" monitor "$action" --remotes "${here%/im}" -- "$@"
}

main "$@"
