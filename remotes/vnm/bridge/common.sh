#!/bin/bash
# What the scripts of the bridge driver have in common. A script sources it first, with its arguments:
#
#   . "${BASH_SOURCE[0]%/*}/common.sh" || exit 1
#   set -euo pipefail
#
# stdin: the VM in base64, in any number of lines; afterwards the document is in VM, the text as it came in INPUT.
# Nothing is written to stdout. A command that fails ends the script with its status.
set -euo pipefail

SCRIPT=${0##*/}
FOLDER=$(cd -- "${BASH_SOURCE[0]%/*}" && pwd)
REMOTE=${FOLDER%/vnm/*}
PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin
CONF=$REMOTE/etc/vnm/OpenNebulaNetwork.conf
SYSFS=${SYSFS:-/sys}                             # another one for tests
LOCK=${VNM_LOCK:-/tmp/onevnm-vnmmad::novlandriver-lock} # shared with OpenNebula's bridge, fw, elastic, nodeport
LOCK_TIMEOUT=${VNM_LOCK_TIMEOUT:-60}             # seconds

log() { printf '%s: %s: %s\n' "$1" "$SCRIPT" "${2//$'\n'/; }" >&2; }

fail() {
    log ERROR "$1"
    printf '%s\n' "${1//$'\n'/; }" >&2
    exit "${2:-1}"
}

helper() { "$REMOTE/kvmad/$(uname -m)/kvmad-node" "$@"; }

# value PATH: of the VM.
value() { helper xml get "$1" <<<"$VM"; }

# each_nic PATH FUNCTION: calls FUNCTION for each interface at PATH, with its values in BRIDGE, PHYDEV, ID, TAP (the
# name that oned gave), MAC, TRUNK and OVER.
each_nic() {
    local row rows fields=7
    mapfile -d '' -t rows < <(helper xml each -0 "$1" BRIDGE PHYDEV NIC_ID TARGET MAC VLAN_TAGGED_ID CONF <<<"$VM")
    for ((row = 0; row < ${#rows[@]}; row += fields)); do
        # shellcheck disable=SC2034 # read by the functions
        BRIDGE=${rows[row]} PHYDEV=${rows[row + 1]} ID=${rows[row + 2]} TAP=${rows[row + 3]} \
            MAC=${rows[row + 4]} TRUNK=${rows[row + 5]} OVER=${rows[row + 6]}
        device "$BRIDGE"
        [[ -z $PHYDEV ]] || device "$PHYDEV"
        "$2"
    done
}

# device NAME: refuses what is no name of a network device.
device() { [[ $1 =~ ^[A-Za-z0-9_.:][A-Za-z0-9_.:@-]{0,14}$ && $1 != . && $1 != .. ]] || fail "'$1' is no name of a network device"; }

# setting NAME: of the network in OVER, else of the file.
setting() { helper vnm setting --file "$CONF" --over "$OVER" "$1"; }

is_bridge() { [[ -d $SYSFS/class/net/$1/bridge ]]; }
is_port() { [[ -e $SYSFS/class/net/$1/brif/$2 ]]; }

# root COMMAND...: by sudo, which allows exactly these forms; logged. ROOT_OK is a status that counts as done too.
ROOT_OK=0
root() {
    local status=0 error
    error=$(sudo -n "$@" 2>&1 >/dev/null) || status=$?
    if ((status != 0 && status != ROOT_OK)); then
        fail "Command \"$*\" failed on host $(uname -n) with status $status: $error" "$status"
    fi
    log INFO "Executed \"sudo -n $*\"."
}

lock() {
    { exec {LOCKED}>"$LOCK"; } 2>/dev/null || fail "Can't open $LOCK on host $(uname -n): it belongs to another user"
    flock -w "$LOCK_TIMEOUT" "$LOCKED" || fail "Another network action holds $LOCK on host $(uname -n) for $LOCK_TIMEOUT s"
}

unlock() { exec {LOCKED}>&-; }

# hooks ARGUMENT...: the admin's executables in SCRIPT.d, in order of their names, with the same arguments and stdin.
hooks() {
    local hook line status
    for hook in "$FOLDER/$SCRIPT.d"/*; do
        [[ -f $hook && -x $hook ]] || continue
        status=0
        line=$("$hook" "$@" <<<"$INPUT") || status=$?
        [[ -z $line ]] || log INFO "$line"
        ((status == 0)) || fail "The hook $hook failed with status $status"
    done
}

INPUT=$(cat)
VM=$(base64 -di <<<"$INPUT" 2>/dev/null) || fail "The VM on stdin is no base64"
MANAGER=$(value HISTORY_RECORDS/HISTORY/VM_MAD) || fail "The VM on stdin is no XML document"
[[ -n $MANAGER ]] || fail "The VM on stdin does not say which driver runs it (HISTORY_RECORDS/HISTORY/VM_MAD)"

# ---------------------------------------------------------------------------------------------- trunks, functions

# is_trunk IDS: whether IDS is a list of VLAN ids and ranges: 10,20-29
is_trunk() { [[ $1 =~ ^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$ ]]; }

# trunk DEVICE IDS: lets those VLANs through.
trunk() {
    local ids id
    IFS=, read -r -a ids <<<"$2"
    for id in "${ids[@]}"; do ROOT_OK=2 root bridge vlan add dev "$1" vid "$id"; done
}

# tap DEPLOY_ID: prints the device on the host of the interface at hand.
tap() {
    local domain name=''
    if [[ $MANAGER != lxc && $1 != - ]]; then
        domain=$(timeout --foreground "${VIRSH_TIMEOUT:-60}" \
            virsh --quiet --connect "${LIBVIRT_URI:-qemu:///system}" dumpxml -- "$1" </dev/null) ||
            fail "Could not ask libvirt on host $(uname -n) for the interfaces of domain $1"
        name=$(helper xml get "devices/interface[mac/@address=${MAC,,}]/target/@dev" <<<"$domain")
    else
        name=$TAP
    fi
    [[ -n $name ]] || fail "Interface $ID ($MAC) of the VM has no device on host $(uname -n)"
    printf '%s\n' "$name"
}

# virtual_functions: sets address, VLAN and flags of the VM's virtual functions; of the attached one only, if one is.
virtual_functions() {
    local path='TEMPLATE/PCI[VN_MAD=bridge]' rows i
    if [[ -n $(value 'TEMPLATE/PCI[ATTACH=YES]/ATTACH') ]]; then path+='[ATTACH=YES]'; fi
    mapfile -d '' -t rows < <(helper xml each -0 "$path" SHORT_ADDRESS MAC VLAN_ID SPOOFCHK TRUST <<<"$VM")
    for ((i = 0; i < ${#rows[@]}; i += 5)); do
        if [[ -n ${rows[i]} ]]; then virtual_function "${rows[@]:i:5}"; fi
    done
}

# virtual_function ADDRESS MAC VLAN SPOOFCHK TRUST
virtual_function() {
    local link target number='' physical='' switch device flags=()
    for link in "$SYSFS"/bus/pci/devices/*/virtfn*; do
        target=$(readlink -- "$link") || continue
        if [[ ${target##*/} == "$1" || ${target##*/} == ????:"$1" ]]; then
            number=${link##*virtfn}
            break
        fi
    done
    [[ -n $number ]] || return 0 # a whole device
    for device in "${link%/*}"/net/*; do physical=${device##*/}; done
    [[ -n $physical && $physical != '*' ]] ||
        fail "The physical function of $1 has no network device on host $(uname -n)"
    switch=$(cat "$SYSFS/class/net/$physical/phys_switch_id" 2>/dev/null) || switch=''
    if [[ -n $switch ]]; then
        for device in "$SYSFS"/class/net/*; do
            [[ $(cat "$device/phys_switch_id" 2>/dev/null) == "$switch" ]] || continue
            [[ $(cat "$device/phys_port_name" 2>/dev/null) =~ ^(c[0-9]+)?(pf[0-9]+)?vf$number$ ]] || continue
            device=${device##*/}
            root ip link set "$physical" up
            root ip link set "$device" up
            root ethtool -K "$device" hw-tc-offload on
            root ip link set "$physical" vf "$number" mac "$2"
            return 0
        done
    fi
    if [[ -n $4 ]]; then flags+=(spoofchk "$(on_off "$4")"); fi
    if [[ -n $5 ]]; then flags+=(trust "$(on_off "$5")"); fi
    root ip link set "$physical" vf "$number" mac "$2" vlan "${3:-0}" "${flags[@]}"
}

on_off() { case ${1,,} in yes | on | true) printf on ;; *) printf off ;; esac; }
