# Run on a host by `bash -c`, with the archive on stdin: lays it beside the remotes and swaps the two in one step.
# Arguments: folder of the remotes, stamp, whether the same stamp is enough (yes or no).
# Prints `same`, or `pushed` and then the manifest of what was there before.
set -euo pipefail

# Taken away at the end: the staged tree, or after the swap the old one.
stage=''
trap 'if [ -n "$stage" ]; then rm -rf -- "$stage"; fi' EXIT
trap 'exit 1' TERM HUP INT

main() {
    local dir=$1 stamp=$2 lazy=$3
    local parent node there
    # A folder that is a link stays one.
    dir=$(readlink -m -- "$dir")
    parent=${dir%/*}
    if [ -z "$parent" ]; then
        echo "$dir can't be the folder of the remotes" >&2
        return 1
    fi
    check_is_remotes "$dir"
    mkdir -p -- "$parent"

    exec 9>>"$parent/.${dir##*/}.kvmad-lock"
    flock 9
    there=''
    if [ -r "$dir/.kvmad/stamp" ]; then
        read -r there <"$dir/.kvmad/stamp" || :
    fi
    if [ "$lazy" = yes ] && [ "$there" = "$stamp" ]; then
        cat >/dev/null
        echo same
        return
    fi

    clear_stages "$parent" "${dir##*/}"
    stage=$(mktemp -d -- "$parent/.${dir##*/}.kvmad-stage.XXXXXXXX")
    tar -x -p -f - -C "$stage" --no-same-owner
    read -r there <"$stage/.kvmad/stamp"
    if [ "$there" != "$stamp" ]; then
        echo "the archive did not come over whole" >&2
        return 1
    fi
    chmod 0755 -- "$stage"

    echo pushed
    if [ -r "$dir/.kvmad/manifest" ]; then
        cat -- "$dir/.kvmad/manifest"
    fi
    node=$stage/kvmad/$(uname -m)/kvmad-node
    if [ -d "$dir" ]; then
        if ! { [ -x "$node" ] && "$node" swap "$stage" "$dir"; }; then
            swap_by_renaming "$dir"
        fi
    else
        mv -T -- "$stage" "$dir"
    fi
}

# What is swapped out is deleted: it must be a tree of remotes (or empty), not a folder that was named by mistake.
check_is_remotes() {
    local dir=$1
    local content
    if [ ! -d "$dir" ] || [ -f "$dir/.kvmad/stamp" ] || { [ -d "$dir/vmm" ] && [ -d "$dir/im" ]; }; then
        return
    fi
    content=$(find "$dir" -mindepth 1 -maxdepth 1 -print -quit)
    if [ -n "$content" ]; then
        echo "$dir holds something else than remotes; nothing was changed" >&2
        return 1
    fi
}

# Without an exchange in one step there is a moment without remotes; should the second step fail, the first is
# undone.
swap_by_renaming() {
    local dir=$1
    local aside=$stage.old
    mv -T -- "$dir" "$aside"
    if ! mv -T -- "$stage" "$dir"; then
        mv -T -- "$aside" "$dir"
        return 1
    fi
    mv -T -- "$aside" "$stage"
}

# What a push of ours that was killed left behind. Nobody else pushes: we hold the lock. What is another user's is not ours to
# take, and keeps nothing up.
clear_stages() {
    local parent=$1 name=$2
    local one
    for one in "$parent/.$name".kvmad-stage.*; do
        if [ ! -O "$one" ]; then
            continue
        elif [ -d "$one" ] && [ ! -d "$parent/$name" ] && [ "${one%.old}" != "$one" ]; then
            # It died between the two renames: these are the remotes.
            mv -T -- "$one" "$parent/$name"
        elif [ -e "$one" ]; then
            rm -rf -- "$one"
        fi
    done
}

main "$@"
