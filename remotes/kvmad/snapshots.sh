#!/bin/bash
# Snapshots, which libvirt forgets when their domain ends. Sourced behind kvmad_common.sh.

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
