#!/bin/bash
# Devices that come to a running domain and leave it. Sourced behind kvmad_common.sh.

# device KIND [OPTION...] DOMAIN-XML: prints the XML of the device of the action for that domain.
device() {
    helper xml "${@:1:$#-1}" --running <(printf '%s' "${!#}") --defaults "$REMOTE/etc/vmm/kvm/vmm_exec_kvm.conf" <<<"$DOCUMENT"
}

# has_device DEVICE-XML: whether the domain in OUT has it: 0 yes, 1 no, 3 another is in its place.
has_device() { helper xml has-device --device <(printf '%s' "$1") <<<"$OUT"; }

# A device comes by one virsh: start_plug, await_domain, plug. It shows the domain, waits for the device on its stdin,
# attaches it and shows the domain again.

# start_plug: starts that virsh for domain ID.
start_plug() {
    local id=$ID
    [[ $id =~ ^[A-Za-z0-9._-]+$ ]] || { uuid_of "$id" && id=$OUT; } || fail "$FAILED: $WHY"
    open_virsh "$VIRSH_TIMEOUT" "dumpxml $id; echo $MARK; attach-device $id /dev/stdin --live; dumpxml $id"
}

# await_domain: until the domain is in OUT; fails (WHY) when there is none.
await_domain() { hear dumpxml && [[ -n $OUT ]]; }

# plug DEVICE-XML: gives it to that virsh. The domain as it is then is in OUT, what virsh said in WHY.
plug() { tell "$1" attach-device || :; }

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
