#!/bin/bash
# Settings and helpers that up, down, on, selftest, build-guest and mkdom share. Sourced, never run.
#
# shellcheck disable=SC2034 # used by those who source this
# Settings (environment):
#   TB=/srv/kvmad-testbed    where everything of the test bed lies
#   BED=tb                   prefix of its namespaces and cgroups: with TB, BED and SHARED of its own a second bed stands beside
#   FLAVOUR=cloud|gen        guest kernel: cloud (virtio only, ready in ~5 s) or gen (also LSI, e1000, rtl8139; ~12 s)
#   SHARED=/srv/shared       directories (blank-separated) that are one and the same on all hosts, the "NFS"
#   SAFE_SHARED=1            show them on the hosts as fuse.glusterfs, which libvirt takes for shared storage
#   PRIVATE="..."            directories that are each host's own, on disk
#   WRAP=auto|1|0            run type='kvm' domains by TCG; auto: when the CPU has no vmx or svm of its own
export TB=${TB:-/srv/kvmad-testbed}
export BED=${BED:-tb}
export SHARED=${SHARED:-/srv/shared} SAFE_SHARED=${SAFE_SHARED:-1}
export PRIVATE=${PRIVATE:-/var/lib/one /var/lib/libvirt /var/tmp}
export FLAVOUR=${FLAVOUR:-cloud} WRAP=${WRAP:-auto}
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8

# node3 is the difficult host: stock sshd_config with MaxSessions 1, a banner, a MOTD, shells that print, fish.
NODES=(node1 node2 node3)
HOSTS=(fe "${NODES[@]}")
DIFFICULT=node3
NET=10.77.0
declare -A IP=([fe]=1 [node1]=11 [node2]=12 [node3]=13)
# The memory controller is left alone: the machine itself may depend on it.
CGROUPS=(cpu cpuacct cpuset devices blkio freezer pids)
CHANGES=$TB/changes

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

need_root() { [ "$(id -u)" = 0 ] || die "must run as root"; }

# One `up` or `down` at a time. The descriptor must not leak into what is started for good (9>&-).
lock_bed() {
  mkdir -p "$TB"
  exec 9>"$TB/lock"
  flock -w 300 9 || die "another up or down has held $TB/lock for 300 s"
}

# alive HOST: is the first process of this host there?
alive() {
  local pid
  pid=$(cat "$TB/nodes/$1/pid" 2>/dev/null) || return 1
  [ "$(tr -d '\0' 2>/dev/null <"/proc/$pid/cmdline")" = "init-$1" ]
}

# Kills the first process of a host; all that runs in its pid namespace dies with it, guests too.
end_host() {
  local dir=$1 name pid holder i
  name=$(basename "$dir")
  pid=$(cat "$dir/pid" 2>/dev/null) || pid=
  holder=$(cat "$dir/holder" 2>/dev/null) || holder=
  if alive "$name"; then kill -9 "$pid" 2>/dev/null || true; fi
  if [ -n "$holder" ] && tr '\0' ' ' 2>/dev/null <"/proc/$holder/cmdline" | grep -qF "nodes/init $name"; then
    kill -9 "$holder" 2>/dev/null || true
  fi
  for ((i = 0; i < 200; i++)); do
    [ -n "$pid" ] && [ -d "/proc/$pid" ] || return 0
    sleep 0.05
  done
  die "host $name (pid $pid) does not end"
}

# Takes hosts and network down. Packages, guests, keys and the shared directories stay.
take_down() {
  local dir cg ns i
  for dir in "$TB"/nodes/*/; do
    if [ -d "$dir" ]; then end_host "${dir%/}"; fi
  done
  for cg in /sys/fs/cgroup/*/"$BED"-*; do
    [ -d "$cg" ] || continue
    for ((i = 0; i < 40; i++)); do
      find "$cg" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ -d "$cg" ] || break
      sleep 0.05
    done
  done
  if command -v ip >/dev/null; then
    while read -r ns; do ip netns del "$ns"; done < <(ip netns list 2>/dev/null | awk -v bed="$BED-" 'index($1, bed) == 1 {print $1}')
  fi
  rm -rf --one-file-system "$TB/nodes" "$TB/on"
}

# shellcheck disable=SC2016 # dpkg-query's own variables
installed() {
  dpkg-query -W -f '${db:Status-Abbrev}\t${Package}\t${Version}\n' | awk -F '\t' '$1 ~ /^i/{print $2 "=" $3}' | sort
}

# Since packages.before was written: keeps what is new (to be purged) and what had a newer version (to be put back).
record_packages() {
  local before=$CHANGES/packages.before after name old new
  [ -f "$before" ] || return 0
  after=$(installed)
  comm -13 <(cut -d= -f1 "$before" | sort) <(cut -d= -f1 <<<"$after" | sort) >>"$CHANGES/packages.new"
  while IFS='=' read -r name old; do
    new=$(sed -n "s/^$name=//p" <<<"$after")
    if [ -n "$new" ] && dpkg --compare-versions "$new" lt "$old"; then printf '%s=%s\n' "$name" "$old"; fi
  done < <(comm -23 "$before" <(printf '%s\n' "$after")) >>"$CHANGES/packages.old"
  rm -f "$before"
}
