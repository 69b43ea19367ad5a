#!/bin/bash
# Sourced by the scripts of these remotes: somebody else's, which follow OpenNebula's contract for scripts (arguments, stdin,
# exit code, what goes to stdout) and know nothing of kvmad. Each call is written down in calls.
set -euo pipefail
here=$(dirname "$0")
printf '%s %s\n' "${0##*/}" "$*" >>"$here/../../calls"

v() { virsh --quiet --connect qemu:///system "$@"; }

# fail TEXT: the way in which OpenNebula's scripts report
fail() {
  printf 'ERROR: %s: %s\n' "${0##*/}" "$1" >&2
  printf '%s\n' "$1" >&2
  exit 1
}

# whole_document: stdin must be the action document, raw
whole_document() { grep -q '<VMM_DRIVER_ACTION_DATA>' || fail "stdin is no action document"; }

# gone DOMAIN: waits until there is no such domain (60 s)
gone() {
  local i
  for ((i = 0; i < 300; i++)); do
    v list --all --uuid --name | grep -qF -- "$1" || return 0
    sleep 0.2
  done
  return 1
}
