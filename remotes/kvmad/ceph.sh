#!/bin/bash
# Checkpoints in a Ceph pool. Sourced behind kvmad_common.sh.

# ceph_settings: from the datastore in DOCUMENT, else from etc/datastore/ceph/ceph.conf: IMAGE of the checkpoint of
# VMID, RBD_FORMAT, and rbd with the datastore's user and configuration.
ceph_settings() {
    local values
    if [[ -e $REMOTE/etc/datastore/ceph/ceph.conf ]]; then
        # shellcheck source=/dev/null
        . "$REMOTE/etc/datastore/ceph/ceph.conf" >&2 </dev/null
    fi
    mapfile -d '' -t values < <(helper xml each -0 DATASTORE/TEMPLATE POOL_NAME RBD_FORMAT CEPH_USER CEPH_CONF <<<"$DOCUMENT")
    POOL_NAME=${values[0]:-${POOL_NAME:-one}} RBD_FORMAT=${values[1]:-${RBD_FORMAT:-}}
    CEPH_OPTIONS=()
    values[2]=${values[2]:-${CEPH_USER:-}} values[3]=${values[3]:-${CEPH_CONF:-}}
    [[ -z ${values[2]} ]] || CEPH_OPTIONS+=(--id "${values[2]}")
    [[ -z ${values[3]} ]] || CEPH_OPTIONS+=(--conf "${values[3]}")
    [[ $POOL_NAME != -* ]] || fail "'$POOL_NAME' is no name of a Ceph pool"
    # shellcheck disable=SC2034 # read by the hooks
    IMAGE=$POOL_NAME/one-sys-$VMID-checkpoint
}

rbd() { command rbd "${CEPH_OPTIONS[@]}" "$@"; }
