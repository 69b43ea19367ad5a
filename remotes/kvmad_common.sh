#!/bin/bash
# What kvmad's scripts on a host have in common. Each script sources it first:
#
#   . "${BASH_SOURCE[0]%/*}/../../kvmad_common.sh" || exit 1
#   set -euo pipefail
#
# It loads etc/vmm/kvm/kvmrc as shell, every variable exported, then fills in what is not set. What only some scripts
# need stands in kvmad/*.sh. Every action waits for what is done here: no process is started that can be done without.
#
# Messages go to stderr. A line "ERROR: script: text" (or INFO, DEBUG) is one for the VM's log; a line without
# such a word is the reason that the user sees. Results, and nothing else, go to stdout.

REMOTE=${BASH_SOURCE[0]%/*/*/../../kvmad_common.sh} # of a script two folders below, as the driver calls it
[[ $REMOTE == /* && $REMOTE != *.sh ]] || REMOTE=$(cd -- "${BASH_SOURCE[0]%/*}" && pwd) || exit 1
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
    stop_child "$CHILD"
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
    # nobody waits for it, and nothing keeps it from being done
    (trap '' TERM INT HUP && exec rm -f -- "$file") </dev/null >/dev/null 2>&1 &
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
    errors
    case $1 in
        124 | 137) SILENT=1 WHY="libvirt on host $HOST did not answer virsh ${3%% *} within $2 s${WHY:+; $WHY}" ;;
        126 | 127) WHY="virsh can't be run on host $HOST; $WHY" ;;
        *) WHY=${WHY:-virsh ${3%% *} failed with status $1} ;;
    esac
    return 1
}

# errors: what the last call wrote to its stderr, in WHY.
errors() {
    WHY=$(<"/dev/fd/$ERRORS")
    WHY=${WHY//$'\n'/; }
}

# A conversation with one virsh, where one call depends on what those before it said: open_virsh, hear, tell.

# open_virsh LIMIT CALLS: starts it, for LIMIT seconds at most. CALLS are separated by "; "; "echo $MARK" is where hear
# stops, and the one behind it reads /dev/stdin.
open_virsh() {
    LIMIT=$1
    : >"/dev/fd/$ERRORS"
    exec {TO_VIRSH}<> <(:) # a pipe
    exec {FROM_VIRSH}< <(
        exec timeout --foreground --kill-after=5 "$1" stdbuf -o0 virsh --quiet --connect "$LIBVIRT_URI" "$2" \
            <"/dev/fd/$TO_VIRSH" {TO_VIRSH}>&- 2>>"/dev/fd/$ERRORS"
    )
    CHILD=$!
}

# hear CALL: what it says up to the mark into OUT, within VIRSH_TIMEOUT, and its errors so far into WHY. Fails (WHY) when
# it ended before.
hear() {
    local status=0
    IFS= read -r -d "$MARK" -t "$VIRSH_TIMEOUT" -u "$FROM_VIRSH" OUT || status=$?
    errors
    ((status != 0)) || return 0
    exec {TO_VIRSH}>&-
    if ((status > 128)); then stop_child "$CHILD" && status=124; else wait "$CHILD" || status=$?; fi
    CHILD=''
    reason "$status" "$VIRSH_TIMEOUT" "$1"
}

# tell TEXT CALL: gives it TEXT to read and awaits its end, which is that of its last call. What it says since the mark
# goes to OUT, its errors to WHY, also when it succeeds.
tell() {
    local status=0
    printf '%s' "$1" >&"$TO_VIRSH" || : # it may have ended
    exec {TO_VIRSH}>&-
    OUT=$(<"/dev/fd/$FROM_VIRSH")
    wait "$CHILD" || status=$?
    CHILD=''
    reason "$status" "$LIMIT" "$2" || return 1
    errors
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

# hook NAME TM_MAD ARGUMENT...: runs NAME.TM_MAD beside the script if there is one, with the document on stdin.
hook() {
    local name=$1 manager=$2
    shift 2
    [[ $manager =~ ^[A-Za-z0-9_-]+$ && -x $REMOTE/vmm/kvm/$name.$manager ]] || return 0
    "$REMOTE/vmm/kvm/$name.$manager" "$@" <<<"$DOCUMENT" >&2
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
