#!/bin/bash
# What a VM may need on a host before its domain FILE in FOLDER starts. Sourced behind kvmad_common.sh. Each takes back
# what it made when the script fails.

undo_seed() { rm -f -- "$FOLDER/kvmad-seed.iso"; }
undo_tpm() { rm -rf -- "$FOLDER/tpm.new"; }
undo_nvram() { rm -f -- "$NVRAM" "$NVRAM.new"; }
undo_vgpu() { vgpu DELETE "$FOLDER"; }

# prepare_cloud: disks with CLOUD_IMAGE, and the seed of CLOUD_INIT, which becomes a part of FILE. A disk that holds
# data stays as it is.
prepare_cloud() {
    undo_with undo_seed
    helper cloud deploy "$FOLDER" "$FILE" <"$FOLDER/vm.xml" ||
        fail "Could not prepare the cloud image of domain $NAME on host $HOST"
}

# prepare_nvram FORMAT TEMPLATE: NVRAM, the VM's own copy of the firmware's variables. One that is there holds the guest's
# settings and is never replaced.
prepare_nvram() {
    local format=${1:-raw} template=${2:-$OVMF_NVRAM} error
    [[ ! -e $NVRAM ]] || return 0
    undo_with undo_nvram
    error=$(mkdir -p -- "$(dirname -- "$NVRAM")" 2>&1 && qemu-img convert -O "$format" "$template" "$NVRAM.new" 2>&1 &&
        mv -- "$NVRAM.new" "$NVRAM" 2>&1) ||
        fail "Could not make $NVRAM from $template (OVMF_NVRAM of kvmrc) on host $HOST: $error"
}

# prepare_tpm_state: of an emulated TPM, handed over by oned when the VM's folder was not kept. Plain files only: they
# are copied by root.
prepare_tpm_state() {
    local new=$FOLDER/tpm.new
    [[ ! -e $FOLDER/tpm ]] || return 0
    undo_with undo_tpm
    rm -rf -- "$new" && mkdir -- "$new"
    if ! helper xml get USER_TEMPLATE/TPM_STATE <"$FOLDER/vm.xml" | base64 -di |
        tar -xz --no-same-owner --no-same-permissions -C "$new" tpm ||
        [[ -n $(find "$new" ! -type d ! -type f -print -quit) ]]; then
        fail "Could not create domain $NAME on host $HOST: its TPM_STATE holds no state of a TPM"
    fi
    mv -- "$new/tpm" "$FOLDER/tpm"
    rmdir -- "$new"
}

# prepare_tpm: gives domain ID the state in FOLDER, if there is one.
prepare_tpm() {
    [[ ! -d $FOLDER/tpm ]] || sudo -n "$REMOTE/vtpm_setup" recover "$ID" "$FOLDER" >&2 ||
        fail "Could not give the state of its TPM back to domain $NAME on host $HOST"
}

# prepare_vgpu: virtual GPUs.
prepare_vgpu() {
    undo_with undo_vgpu
    vgpu CREATE "$FOLDER"
}
