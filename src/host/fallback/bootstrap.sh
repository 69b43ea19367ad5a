{
# Fed to `bash -s` on a host without helper. Everything behind the closing brace is data, read from descriptor 9:
# nonce, arguments, environment, limit, grace, silence, length of stdin, each closed by a NUL; then stdin itself.
# What comes after that is the life line: its end, or silence for so many seconds, means that the driver is gone
# and the command is to be ended.
exec 9<&0 8>&1 7>&2 </dev/null >/dev/null 2>/dev/null
trap : HUP TERM INT
kvmad_nonce='' kvmad_limit='' kvmad_grace='' kvmad_silence='' kvmad_length=''

kvmad_get() { IFS= read -r -d '' -u 9 "$1" || exit 1; }

kvmad_get_list() {
    local n word
    kvmad_list=()
    kvmad_get n
    while [ "$n" -gt 0 ]; do
        kvmad_get word
        kvmad_list+=("$word")
        n=$((n - 1))
    done
}

kvmad_end() {
    printf '%s:end\n' "$kvmad_nonce" >&8
    printf '%s:end %s\n' "$kvmad_nonce" "$1" >&7
    exit 0
}

kvmad_get kvmad_nonce
printf '%s:begin\n' "$kvmad_nonce" >&8
printf '%s:begin\n' "$kvmad_nonce" >&7
kvmad_get_list
kvmad_argv=("${kvmad_list[@]}")
kvmad_get_list
kvmad_env=("${kvmad_list[@]}")
kvmad_get kvmad_limit
kvmad_get kvmad_grace
kvmad_get kvmad_silence
kvmad_get kvmad_length

# Its stdin goes through a nameless file: so the life line is free while the command runs.
exec 5</dev/null
if [ "$kvmad_length" -gt 0 ]; then
    kvmad_file=$(umask 077 && mktemp "${TMPDIR:-/tmp}/kvmad.XXXXXXXXXX") || kvmad_end 'failed no file can be made for its stdin'
    head -c "$kvmad_length" <&9 >"$kvmad_file"
    kvmad_got=$(wc -c <"$kvmad_file")
    exec 5<"$kvmad_file"
    rm -f -- "$kvmad_file"
    [ "$kvmad_got" -eq "$kvmad_length" ] || kvmad_end 'failed its stdin could not be stored'
fi

case ${kvmad_argv[0]} in
*/*) if [ ! -f "${kvmad_argv[0]}" ] || [ ! -x "${kvmad_argv[0]}" ]; then kvmad_end missing; fi ;;
*) type -P -- "${kvmad_argv[0]}" || kvmad_end missing ;;
esac

# A pipe that is read and written here: the watcher says by it that it is ending the group.
exec 6<> <(:)
set -m
(
    exec <&5 >&8 2>&7 5<&- 6>&- 7>&- 8>&- 9<&-
    trap - HUP TERM INT
    set -- "${kvmad_argv[@]}"
    [ "${#kvmad_env[@]}" -eq 0 ] || export -- "${kvmad_env[@]}"
    exec -- "$@"
) &
kvmad_child=$!
(
    exec 5<&- 7>&- 8>&-
    SECONDS=0
    while IFS= read -r -n 1 -t "$kvmad_silence" -u 9; do
        [ "$kvmad_limit" = none ] || [ "$SECONDS" -lt "$kvmad_limit" ] || break
    done
    # Before anything else: so it is told before the command can end by it. (A signal would make the wait of the shell
    # lose the status of a command that ends just then.)
    printf '.' >&6
    exec 9<&-
    kill -TERM -- "-$kvmad_child"
    kill -CONT -- "-$kvmad_child"
    while [ "$kvmad_grace" -gt 0 ] && kill -0 -- "-$kvmad_child"; do
        sleep 0.1
        kvmad_grace=$((kvmad_grace - 1))
    done
    kill -KILL -- "-$kvmad_child"
    kvmad_grace=50
    while [ "$kvmad_grace" -gt 0 ] && kill -0 -- "-$kvmad_child"; do
        sleep 0.1
        kvmad_grace=$((kvmad_grace - 1))
    done
) &
kvmad_watch=$!
exec 5<&- 9<&-

# A signal to us ends a wait early.
while :; do
    wait "$kvmad_child"
    kvmad_status=$?
    kill -0 "$kvmad_child" || break
done
# The watcher is waited for while it is ending the group. Else it is killed: any other signal may come while it still
# has our traps, or be ignored here from the start.
read -r -t 0 -u 6 || kill -KILL "$kvmad_watch"
wait "$kvmad_watch"
kvmad_end "exit $kvmad_status"
}
