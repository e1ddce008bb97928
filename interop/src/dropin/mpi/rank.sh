#!/bin/sh
# One host of an MPI program: rank 0's runs mpirun, the others start what its agent sends them. So no
# ssh is needed, and each daemon has the environment and the network of its host.
#
# Arguments: a folder that all hosts share, rank, number of hosts, own address, then mpirun's
# arguments.
folder=$1 rank=$2 size=$3 address=$4
# Daemons name their files by the host's name, and tell mpirun by it where they run: a name and a folder
# of its own for each host, as real hosts have them.
if [ -z "$ROCE_HOST_NAMED" ]; then
    ROCE_HOST_NAMED=1 TMPDIR=$(mktemp -d /tmp/mpi.XXXXXX)
    export ROCE_HOST_NAMED TMPDIR
    unshare --uts sh -c 'hostname "rank$2" && exec sh "$0" "$@"' "$0" "$@"
    status=$?
    rm -rf "$TMPDIR"
    exit $status
fi
shift 4
if [ "$rank" != 0 ]; then
    mkfifo "$folder/to-$address"
    # Open for writing too: otherwise the end of one line's writer would be the end of the file.
    exec 3<>"$folder/to-$address"
    echo "$address" > "$folder/new-$rank" && mv "$folder/new-$rank" "$folder/host-$rank"
    while read -r line <&3; do
        [ "$line" = end ] && exit 0
        sh -c "$line" 3<&- &
    done
    exit 1
fi
cat > "$folder/agent" <<AGENT
#!/bin/sh
host=\$1
shift
printf '%s\n' "\$*" > "$folder/to-\$host"
AGENT
chmod +x "$folder/agent"
hosts=$address
other=1
while [ "$other" -lt "$size" ]; do
    until [ -e "$folder/host-$other" ]; do sleep 0.02; done
    hosts="$hosts,$(cat "$folder/host-$other")"
    other=$((other + 1))
done
before=$(cat /sys/class/infiniband/roce0/ports/1/counters/port_xmit_data)
mpirun --allow-run-as-root --timeout 100 --bind-to none -H "$hosts" -n "$size" \
    --mca plm_rsh_agent "$folder/agent" --mca plm_rsh_no_tree_spawn 1 \
    --mca mpi_yield_when_idle 1 "$@"
status=$?
sleep 0.5 # until the counters of the view are those of the end
after=$(cat /sys/class/infiniband/roce0/ports/1/counters/port_xmit_data)
echo "carried $(((after - before) * 4)) bytes"
other=1
while [ "$other" -lt "$size" ]; do
    echo end > "$folder/to-$(cat "$folder/host-$other")"
    other=$((other + 1))
done
exit $status
