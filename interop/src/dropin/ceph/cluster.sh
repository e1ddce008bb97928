# Rank 0 is a cluster of one monitor and one storage daemon, which keeps its objects in memory. It is ended
# with the run. Rank 1 is the client: it makes a pool, and compares what it reads with what it has written.
cluster() {
    pids=
    d=$(mktemp -d)
    trap '[ -z "$pids" ] || kill -KILL $pids; wait $pids; rm -rf $d' EXIT
    trap 'exit 0' TERM
    server=${peer:-$own}
    monitor="[v2:$server:3300,v1:$server:6789]"
    id=4d1bb2a1-6f00-4f3c-9f1d-0a6d1c2f3e4b
    configure "$@" > $d/ceph.conf
    export CEPH_CONF=$d/ceph.conf
    if [ $peer ]; then use; else serve; fi
}

# The messenger registers its buffers when it starts: the defaults are 4 GiB. It connects its queue pairs by TCP,
# and they share a receive queue, or by rdma_cm, which it takes for iWARP and has no shared receive queue with.
configure() {
    case $1 in
    tcp) set -- ib false true ;;
    rdma_cm) set -- iwarp true false ;;
    esac
    echo "[global]
    fsid = $id
    mon_host = $monitor
    mon_initial_members = a
    auth_cluster_required = none
    auth_service_required = none
    auth_client_required = none
    public_addr = $own
    ms_type = async+rdma
    ms_async_rdma_device_name = roce0
    ms_async_rdma_type = $1
    ms_async_rdma_cm = $2
    ms_async_rdma_support_srq = $3
    ms_async_rdma_receive_buffers = 1024
    ms_async_rdma_receive_queue_len = 128
    ms_async_rdma_send_buffers = 256
    osd_pool_default_size = 1
    mon_allow_pool_size_one = true
    osd_objectstore = memstore
    osd_crush_chooseleaf_type = 0
    run_dir = $d
    admin_socket =
    log_file = $d/\$name.log
    mon_data = $d/mon
    osd_data = $d/osd"
}

serve() {
    mkdir $d/mon $d/osd
    monmaptool --create --fsid $id --addv a "$monitor" $d/map
    ceph-mon -i a --mkfs --monmap $d/map || exit 1
    ceph-mon -i a -f &
    pids=$!
    timeout 90 ceph osd new $id || exit 1
    ceph-osd -i 0 --mkfs --osd-uuid $id || exit 1
    ceph-osd -i 0 -f &
    pids="$pids $!"
    wait
}

use() {
    n=0
    until timeout 20 ceph osd stat | grep -q '1 up'; do
        n=$((n + 1))
        [ $n -lt 30 ] || exit 1
        sleep 0.5
    done
    timeout 20 ceph osd pool create pool 8 8 || exit 1
    for size in 1 65536 9000000; do
        head -c $size /dev/urandom > $d/in
        timeout 30 rados -p pool put object $d/in && timeout 30 rados -p pool get object $d/out || exit 1
        cmp $d/in $d/out && echo "$size bytes are the same"
    done
    units=$(cat /sys/class/infiniband/roce0/ports/1/counters/port_xmit_data)
    [ $units -gt 2250000 ] && echo 'the device sent them'
}

own={address}
peer={peer?};
