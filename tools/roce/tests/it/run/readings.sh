# Reads the devices in six ways, each with programs as distributions ship them, and prints what became
# of each. The first argument is a program that loads the names that NCCL loads, the second the interface.
loader=$1 interface=$2
status=0

# reading NAME TEXT COMMAND...: the command succeeds and prints the text.
reading() {
    name=$1 expected=$2
    shift 2
    text=$("$@" 2>&1)
    code=$?
    case $text in
    *"$expected"*) [ $code = 0 ] && echo "$name: yes" && return ;;
    esac
    status=1
    echo "$name: no: $* ended with $code and printed: $text"
}

nccl_loader() {
    "$loader" all-symbols && "$loader" probes && echo loaded
}

# Devices and their interfaces as ibdev2netdev prints them, both ways, and counters that grow.
view() {
    for device in /sys/class/infiniband/*; do
        port=$device/ports/1
        read -r number state <"$port/state"
        read -r netdev <"$port/gid_attrs/ndevs/0"
        echo "${device##*/} port 1 ==> $netdev ($state)"
        for other in "/sys/class/net/$netdev/device/infiniband"/*; do
            [ "${other##*/}" = "${device##*/}" ] || return 1
        done
    done
    # Packets to the host itself are packets of the queue pairs, and none of the interface.
    grows "$port/hw_counters/sent_pkts" && [ -r "$port/counters/port_xmit_data" ]
}

grows() {
    before=$(cat "$1")
    timeout 20 ibv_rc_pingpong -g 1 -n 100 >/dev/null &
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        ibv_rc_pingpong -g 1 -n 100 127.0.0.1 >/dev/null 2>&1 && break
        sleep 0.2
    done
    wait
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        [ "$(cat "$1")" -gt "$before" ] && return
        sleep 0.2
    done
    echo "$1 stays $before"
    return 1
}

reading ibv_devinfo "hca_id:	roce0" ibv_devinfo
reading ucx_info "Device: roce0:1" ucx_info -d
reading "NCCL's loader" loaded nccl_loader
reading hwloc "OpenFabrics \"roce0\"" lstopo-no-graphics
reading ibstat "CA 'roce0'" ibstat
reading "view with live counters" "roce0 port 1 ==> $interface (ACTIVE)" view
exit $status
