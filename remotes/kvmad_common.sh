#!/bin/bash
# What kvmad's scripts on a host have in common. Each script sources it first:
#
#   . "${BASH_SOURCE[0]%/*}/../../kvmad_common.sh" || exit 1
#   set -euo pipefail
#
# It loads etc/vmm/kvm/kvmrc as shell, every variable exported, then fills in what is not set.
#
# Messages go to stderr. A line "ERROR: script: text" (or INFO, DEBUG) is one for the VM's log; a line without
# such a word is the reason that the user sees. Results, and nothing else, go to stdout.

REMOTE=$(cd -- "${BASH_SOURCE[0]%/*}" && pwd) || exit 1
SCRIPT=${0##*/}
PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin

if [[ -e $REMOTE/etc/vmm/kvm/kvmrc ]]; then
    set -a
    # shellcheck source=/dev/null
    . "$REMOTE/etc/vmm/kvm/kvmrc" >&2 </dev/null || bash -n "$REMOTE/etc/vmm/kvm/kvmrc" || exit 1
    set +a
fi

: "${LIBVIRT_URI:=qemu:///system}"
: "${VIRSH_TIMEOUT:=60}"        # seconds for a call that only asks or is done at once
: "${VIRSH_JOB_TIMEOUT:=21600}" # seconds for one that works on memory or disks: create, save, restore
: "${VIRSH_RETRIES:=3}"
: "${SHUTDOWN_TIMEOUT:=180}"
: "${CANCEL_TIMEOUT:=60}"
: "${EVENT_POLL:=1}" # seconds between two looks while an event is awaited
: "${DETACH_TIMEOUT:=30}"
: "${AGENT_TIMEOUT:=10}"
: "${EXEC_FOLDER:=/var/run/one}" # where the monitoring looks for the processes in guests
: "${OVMF_NVRAM:=/usr/share/OVMF/OVMF_VARS.fd}"

HOST=${HOST:-$HOSTNAME} # as oned calls it, once a script knows
OUT='' WHY='' SILENT=0    # of the last call: its stdout, the reason when it failed, whether libvirt did not answer
STATE=''                  # of the domain, as last seen
DOCUMENT=''               # the action, once read
UNDO=()                   # functions that take back what was done so far, the latest first
CHILD='' EVENTS='' LISTENER=''
MARK=$'\x1e' # what no XML holds

# log LEVEL TEXT: a line for the VM's log.
log() { printf '%s: %s: %s\n' "$1" "$SCRIPT" "${2//$'\n'/; }" >&2 || :; }

# fail TEXT: ends the script; TEXT is what the user sees.
fail() {
    log ERROR "$1"
    printf '%s\n' "${1//$'\n'/; }" >&2 || :
    exit 1
}

is_yes() { [[ ${1,,} == yes ]]; }

# ---------------------------------------------------------------------------------------------- the end

# undo_with FUNCTION: to be run when the script fails or is ended from now on.
undo_with() { UNDO=("$1" "${UNDO[@]}"); }

# kept: what was done so far stays.
kept() { UNDO=(); }

at_end() {
    local status=$? step
    trap - EXIT
    trap '' TERM INT HUP
    set +e
    for step in "${UNDO[@]}"; do "$step"; done
    stop_child "$LISTENER"
    exit "$status"
}

# The driver is gone, has cancelled the action or its time is over. What is undone then must be done soon: the
# process group is killed half a minute later.
ended() {
    trap '' TERM INT HUP
    stop_child "$CHILD"
    log ERROR "ended by the driver before it was done"
    exit 143
}

stop_child() { if [[ -n $1 ]]; then kill -TERM "$1" 2>/dev/null || :; fi; }

trap at_end EXIT
trap ended TERM INT HUP
trap : PIPE # whoever listens may be gone; what must be undone is undone all the same

# ---------------------------------------------------------------------------------------------- calls

# The errors of a call are kept in a file without a name; it is opened anew, and so emptied, for each.
open_errors() {
    local file=${TMPDIR:-/tmp}/kvmad.$BASHPID.$RANDOM$RANDOM
    # noclobber: only a file that was not there
    if ! (umask 077 && set -C && : >"$file") || ! exec {ERRORS}<>"$file"; then
        fail "Can't make a temporary file in ${TMPDIR:-/tmp} on host $HOST"
    fi
    rm -f -- "$file"
}
open_errors

# ask ARGUMENT...: one call of virsh within VIRSH_TIMEOUT. Its stdout is in OUT; when it fails, the reason in WHY.
ask() { give '' "$@"; }

# give TEXT ARGUMENT...: as ask, with TEXT to be read from /dev/stdin.
give() {
    local status=0
    OUT=$(timeout --foreground --kill-after=5 "$VIRSH_TIMEOUT" \
        virsh --quiet --connect "$LIBVIRT_URI" "${@:2}" 2>"/dev/fd/$ERRORS" <<<"$1") || status=$?
    reason "$status" "$VIRSH_TIMEOUT" "$2"
}

# work ARGUMENT...: as ask, for what takes long: within VIRSH_JOB_TIMEOUT, and the end of the driver interrupts it.
work() {
    local status=0
    timeout --foreground --kill-after=5 "$VIRSH_JOB_TIMEOUT" \
        virsh --quiet --connect "$LIBVIRT_URI" "$@" >/dev/null 2>"/dev/fd/$ERRORS" </dev/null &
    CHILD=$!
    wait "$CHILD" || status=$?
    CHILD=
    OUT=
    reason "$status" "$VIRSH_JOB_TIMEOUT" "$1"
}

# patiently ARGUMENT...: as work; tried again when it failed while a disk of domain ID was being copied.
patiently() {
    local tries=1 why
    until work "$@"; do
        why=$WHY
        if ((tries++ >= VIRSH_RETRIES)) || ! block_job "$ID"; then
            WHY=$why
            return 1
        fi
        log INFO "a disk of domain $ID is being copied; virsh $1 is tried again when that is done"
        await_block_jobs "$ID"
    done
}

# reason STATUS LIMIT CALL: sets WHY; fails unless STATUS is 0.
reason() {
    WHY='' SILENT=0
    (($1 != 0)) || return 0
    WHY=$(<"/dev/fd/$ERRORS")
    WHY=${WHY//$'\n'/; }
    case $1 in
        124 | 137) SILENT=1 WHY="libvirt on host $HOST did not answer virsh ${3%% *} within $2 s${WHY:+; $WHY}" ;;
        126 | 127) WHY="virsh can't be run on host $HOST; $WHY" ;;
        *) WHY=${WHY:-virsh ${3%% *} failed with status $1} ;;
    esac
    return 1
}

# helper ARGUMENT...: kvmad-node of this CPU.
NODE=$REMOTE/kvmad/$HOSTTYPE/kvmad-node
[[ -x $NODE ]] || NODE=$REMOTE/kvmad/$(uname -m)/kvmad-node
helper() { "$NODE" "$@"; }

# read_document: stdin, the action as XML, into DOCUMENT; empty when there is none.
read_document() {
    DOCUMENT=''
    if [[ ! -t 0 ]]; then DOCUMENT=$(cat); fi
}

# read_payload PAYLOAD: as read_document; without a stdin it is PAYLOAD in base64, unless that is -.
read_payload() {
    read_document
    if [[ -z $DOCUMENT && $1 != - ]]; then DOCUMENT=$(base64 -di <<<"$1"); fi
}

# document PATH: the value there, empty when there is none.
document() {
    [[ -n $DOCUMENT ]] || return 0
    helper xml get "$1" <<<"$DOCUMENT"
}

# ---------------------------------------------------------------------------------------------- domains

# of_domain ID VMID: sets ID, the name or uuid of the domain; without an ID it is one-VMID. A plain number is
# none: libvirt would take it for its own running number.
of_domain() {
    ID=$1
    if [[ -z $ID || $ID == - ]]; then ID=one-$2; fi
    if [[ $ID == -* || $ID =~ ^[0-9]+$ || $ID == *$'\n'* ]]; then fail "'$ID' is no id of a domain"; fi
}

is_uuid() { [[ $1 =~ ^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$ ]]; }

# uuid_of ID: its uuid in OUT. (virsh domuuid takes a name only.)
uuid_of() {
    if is_uuid "$1"; then OUT=${1,,}; else ask domuuid "$1"; fi
}

# listed ID: whether libvirt has such a domain, running or not: 0 yes, 1 no, 2 libvirt did not say (WHY).
listed() {
    local id=$1 form=--name
    if is_uuid "$id"; then id=${id,,} form=--uuid; fi
    ask list --all "$form" || return 2
    [[ $'\n'$OUT$'\n' == *$'\n'"$id"$'\n'* ]]
}

# look ID: sets STATE to libvirt's number (1 running, 2 blocked, 3 paused, 4 in shutdown, 5 off, 6 crashed,
# 7 suspended by the guest) or to "gone". Fails (WHY) when libvirt did not say: that never means that it is gone.
look() {
    local why status=0
    STATE=
    if ask domstats --raw --state "$1"; then
        [[ $OUT =~ $'\n'\ *state\.state=([0-9]+) ]] || { WHY="virsh domstats gave no state"; return 1; }
        STATE=${BASH_REMATCH[1]}
        return 0
    fi
    ((SILENT == 0)) || return 1
    why=$WHY
    listed "$1" || status=$?
    case $status in
        0) WHY=$why && return 1 ;;
        1) STATE=gone ;;
        *) return 1 ;;
    esac
}

is_off() { [[ $STATE == gone || $STATE == 5 ]]; }

# listen ID SECONDS EVENT: events of that kind become readable on EVENTS: each is a reason to look.
listen() {
    exec {EVENTS}< <(exec virsh --quiet --connect "$LIBVIRT_URI" event --domain "$1" --event "$3" --loop \
        --timeout "$(($2 + 5))" 2>/dev/null </dev/null)
    LISTENER=$!
}

# await_event ID SECONDS EVENT: until the next event, but EVENT_POLL seconds at most: events are lost when libvirt is
# restarted.
await_event() {
    local status=0
    read -r -t "$EVENT_POLL" -u "$EVENTS" _ || status=$?
    if ((status == 1)); then
        exec {EVENTS}<&-
        sleep 1 # the listener ended, so libvirt is away
        listen "$@"
    fi
}

# await_off ID SECONDS: waits until the domain is off; fails (WHY, STATE) when it is not by then.
await_off() {
    local until=$((SECONDS + $2))
    while :; do
        if look "$1" && is_off; then return 0; fi
        ((SECONDS < until)) || return 1
        await_event "$1" "$2" lifecycle
    done
}

# destroyed ID SECONDS: no longer runs after this, or it fails (WHY).
destroyed() {
    local until=$((SECONDS + $2)) why=''
    while :; do
        if look "$1"; then
            if is_off; then return 0; fi
            if ! ask destroy "$1"; then why=$WHY; fi
            if look "$1" && is_off; then return 0; fi
        fi
        if ((SECONDS >= until)); then
            WHY=${WHY:-${why:-it still runs}}
            return 1
        fi
        sleep 0.5 # between two tries
    done
}

# block_job ID: whether a disk of the domain is being copied, committed or pulled.
block_job() {
    local disk
    ask dumpxml "$1" || return 1
    while IFS= read -r disk; do
        if ask blockjob "$1" "$disk" --raw && [[ -n $OUT ]]; then return 0; fi
    done < <(helper xml all devices/disk/target/@dev <<<"$OUT")
    return 1
}

# await_block_jobs ID: waits until there is none, at most VIRSH_TIMEOUT seconds.
await_block_jobs() {
    local until=$((SECONDS + VIRSH_TIMEOUT))
    while ((SECONDS < until)) && block_job "$1"; do sleep 0.5; done
}

# ---------------------------------------------------------------------------------------------- devices

# device KIND [OPTION...] DOMAIN-XML: prints the XML of the device of the action for that domain.
device() {
    helper xml "${@:1:$#-1}" --running <(printf '%s' "${!#}") --defaults "$REMOTE/etc/vmm/kvm/vmm_exec_kvm.conf" <<<"$DOCUMENT"
}

# has_device DEVICE-XML: whether the domain in OUT has it: 0 yes, 1 no, 3 another is in its place.
has_device() { helper xml has-device --device <(printf '%s' "$1") <<<"$OUT"; }

# A device comes by one virsh: start_plug, await_domain, plug. It shows the domain, waits for the device on its stdin, attaches it
# and shows the domain again.

# start_plug: starts that virsh for domain ID.
start_plug() {
    local id=$ID
    [[ $id =~ ^[A-Za-z0-9._-]+$ ]] || { uuid_of "$id" && id=$OUT; } || fail "$FAILED: $WHY"
    exec {TO_PLUG}<> <(:) # a pipe
    exec {FROM_PLUG}< <(
        exec timeout --foreground --kill-after=5 "$VIRSH_TIMEOUT" stdbuf -o0 virsh --quiet --connect "$LIBVIRT_URI" \
            "dumpxml $id; echo $MARK; attach-device $id /dev/stdin --live; dumpxml $id" \
            <"/dev/fd/$TO_PLUG" {TO_PLUG}>&- 2>"/dev/fd/$ERRORS"
    )
    CHILD=$!
}

# await_domain: until the domain is in OUT; fails (WHY) when there is none.
await_domain() {
    local why
    if IFS= read -r -d "$MARK" OUT <&"$FROM_PLUG" && [[ -n $OUT ]]; then return 0; fi
    why=$(<"/dev/fd/$ERRORS")
    plug ''
    if ((SILENT == 0)) && [[ -n $why ]]; then WHY=${why//$'\n'/; }; fi
    return 1
}

# plug DEVICE-XML: gives it to that virsh. The domain as it is then is in OUT, what virsh said in WHY.
plug() {
    local status=0
    printf '%s' "$1" >&"$TO_PLUG" || : # it may have ended
    exec {TO_PLUG}>&-
    OUT=$(<"/dev/fd/$FROM_PLUG")
    wait "$CHILD" || status=$?
    CHILD=
    reason "$status" "$VIRSH_TIMEOUT" attach-device || :
    WHY=${WHY:-$(<"/dev/fd/$ERRORS")}
    WHY=${WHY//$'\n'/; }
}

# unplugged TEST UNPLUG: waits until the guest has let go of a device of domain ID, after DETACH_TIMEOUT it fails
# (WHY). TEST tells whether the domain in OUT has it (0 yes, 1 no), UNPLUG asks for it: once more after half the time.
unplugged() {
    local start=$SECONDS asked=0 refused='' status
    listen "$ID" "$DETACH_TIMEOUT" device-removed
    while :; do
        status=0
        if ask dumpxml "$ID"; then "$1" || status=$?; fi
        if ((status == 1)); then return 0; fi
        if ((asked == 0 || asked == 1 && (SECONDS - start) * 2 >= DETACH_TIMEOUT)); then
            asked=$((asked + 1))
            if "$2"; then refused=''; else refused=$WHY; fi
            continue
        fi
        # What was refused at once is given up soon; it may be on its way all the same.
        if ((SECONDS - start >= DETACH_TIMEOUT)) || { [[ -n $refused ]] && ((SECONDS - start >= 2)); }; then
            WHY=${refused:-${WHY:-the guest has not let go of it within $DETACH_TIMEOUT s}}
            return 1
        fi
        await_event "$ID" "$DETACH_TIMEOUT" device-removed
    done
}

# ---------------------------------------------------------------------------------------------- snapshots

# has_snapshot ID NAME: 0 yes, 1 no, 2 libvirt did not say (WHY).
has_snapshot() {
    ask snapshot-list "$1" --name || return 2
    [[ $'\n'$OUT$'\n' == *$'\n'"$2"$'\n'* ]]
}

# stored FILE TEXT: complete on disk, or the file is as it was (WHY).
stored() {
    if (umask 077 && printf '%s\n' "$2" >"$1.new") && sync -- "$1.new" && mv -f -- "$1.new" "$1" && sync -- "${1%/*}"; then
        return 0
    fi
    rm -f -- "$1.new"
    WHY="can't write $1"
    return 1
}

# keep_snapshot ID NAME FOLDER: what libvirt knows of the snapshot, passwords included, as FOLDER/NAME.xml.
keep_snapshot() {
    ask snapshot-dumpxml "$1" "$2" --security-info || return 1
    stored "$3/$2.xml" "$OUT"
}

# note_current ID FOLDER: which snapshot the next one has as its parent.
note_current() {
    if ask snapshot-current "$1" --name && [[ -n $OUT ]]; then
        stored "$2/snap.current" "$OUT" || log ERROR "$WHY"
    else
        rm -f -- "$2/snap.current"
    fi
}

# ---------------------------------------------------------------------------------------------- around them

# compact WHEN: gives the kernel back its caches and joins free memory, when kvmrc says so (START or STOP).
compact() {
    local setting=CLEANUP_MEMORY_ON_$1
    is_yes "${!setting:-no}" || return 0
    sudo -n sysctl vm.drop_caches=3 vm.compact_memory=1 >/dev/null 2>&1 ||
        log INFO "the memory of host $HOST could not be compacted: sudo does not allow sysctl"
}

# folder_of DOMAIN-XML: the folder of the VM that the domain names in its metadata.
folder_of() { helper xml get metadata/vm/system_datastore <<<"$1"; }

# vgpu VERB FOLDER: makes (CREATE) or removes (DELETE) the virtual GPUs of the VM, when it has any.
vgpu() {
    local error
    if [[ -e $2/vm.xml ]] && helper xml has TEMPLATE/PCI/UUID <"$2/vm.xml" 2>/dev/null; then
        error=$(sudo -n "$REMOTE/vgpu" "$1" "$2/vm.xml" 2>&1 >/dev/null) || log ERROR "vgpu $1: $error"
    fi
}

# keep_tpm DOMAIN-XML: copies the state of the domain's emulated TPM into the VM's folder: libvirt removes it with the domain.
keep_tpm() {
    local values=()
    [[ -z $1 ]] || mapfile -d '' -t values < <(helper xml get -0 devices/tpm/backend/@type uuid metadata/vm/system_datastore <<<"$1")
    [[ ${values[0]:-} == emulator && -n ${values[2]:-} ]] || return 0
    sudo -n "$REMOTE/vtpm_setup" backup "${values[1]}" "${values[2]}" >&2 || log ERROR "the state of the TPM could not be copied"
}

# redefine_snapshots UUID FOLDER: gives libvirt back the snapshots of the VM, which it forgot when the domain ended.
redefine_snapshots() {
    local files=("$2"/snap-*.xml) folder file note
    [[ -e ${files[0]} ]] || return 0
    folder=$(mktemp -d) || { log ERROR "no temporary folder, the snapshots are unknown to libvirt"; return 0; }
    while IFS= read -r note; do log ERROR "$note"; done \
        < <(helper xml snapshots --uuid "$1" --into "$folder" "${files[@]}" 2>&1)
    for file in "$folder"/*.xml; do
        [[ -e $file ]] || continue
        ask snapshot-create "$1" "$file" --redefine || log ERROR "a snapshot is unknown to libvirt: $WHY"
    done
    rm -rf -- "$folder"
    if [[ -s $2/snap.current ]]; then
        ask snapshot-current "$1" "$(<"$2/snap.current")" || log ERROR "the current snapshot is unknown to libvirt: $WHY"
    fi
}

# hook NAME TM_MAD ARGUMENT...: runs NAME.TM_MAD beside the script if there is one, with the document on stdin.
hook() {
    local name=$1 manager=$2
    shift 2
    [[ $manager =~ ^[A-Za-z0-9_-]+$ && -x $REMOTE/vmm/kvm/$name.$manager ]] || return 0
    "$REMOTE/vmm/kvm/$name.$manager" "$@" <<<"$DOCUMENT" >&2
}

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

# sync_time ID: sets the guest's clock, when kvmrc says so. Its agent may need a while to come back: four tries
# behind the back of the script.
sync_time() {
    is_yes "${SYNC_TIME:-no}" || return 0
    # shellcheck disable=SC2016 # expanded by the inner shell
    setsid bash -c 'for try in 1 2 3 4; do
            timeout 15 virsh --connect "$1" domtime --sync "$2" && break
            sleep 5
        done' sync_time "$LIBVIRT_URI" "$1" </dev/null >/dev/null 2>&1 &
}

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
