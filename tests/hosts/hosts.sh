#!/bin/bash
# hosts.sh: run a command on a small cluster of this machine's own: N hosts (network namespaces, host names cb1..cbN,
# addresses 10.78.K.1..N) on one bridge, each host's link shaped to RATE in both directions. Ranks on different hosts
# can talk over that link alone, so its rate is the known truth for what crosses hosts. Several may run at once: K is
# the first free slot. The payload rate of RATE is RATE x 1448/1514 (TCP timestamps, Ethernet header; MTU 1500).
#
#   hosts.sh N RATE[,RATE...] CMD [ARG...]   e.g. hosts.sh 2 1gbit mpirun ...      (needs root, iproute2)
#       Host i gets the i-th rate, the last one given from there on. CB_BURST_US: how many microseconds' worth of data the shaper
#       lets pass at once after a pause (500; 64 KiB at least). CB_FAIR=1: the connections on a link share it evenly, as a NIC
#       serves its queue pairs in turn; else who has more in the queue has more of the link.
#       In CMD's environment: CB_HOSTS (addresses, comma-separated), CB_AGENT (stands in for ssh in both launchers), CB_BRIDGE,
#       and CB_MPICH and CB_OPENMPI: what the two libraries' mpirun needs, for one rank a host and unbound, e.g.
#           hosts.sh 2 1gbit sh -c 'collbench launch bandwidth -n 2 --launcher-args "$CB_MPICH"'
#   MPICH:    mpirun -launcher ssh -launcher-exec $CB_AGENT -iface $CB_BRIDGE -genv MPIR_CVAR_NOLOCAL 1 -genv UCX_TLS tcp
#                    -genv UCX_NET_DEVICES eth0 -hosts $CB_HOSTS -ppn 1 -n 2 PROG       (without NOLOCAL and UCX_TLS it takes shared memory)
#   Open MPI: mpirun --prtemca plm_ssh_agent $CB_AGENT --bind-to none --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0 --host $CB_HOSTS -n 2 PROG
set -euo pipefail
if [ "${CB_AS_AGENT:-}" = 1 ]; then                       # called as ssh: [options] HOST COMMAND...
    while [[ $1 == -* ]]; do shift; done
    IFS=. read -r _ _ k i <<<"$1"; shift
    exec ip netns exec "cb$k-$i" unshare --uts bash -c "hostname cb$i; $*"
fi
[ $# -ge 3 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
n=$1; IFS=, read -ra rates <<<"$2"; shift 2
bits() {                                                  # "1.5gbit" -> bits per second
    awk -v r="$1" 'BEGIN { f["kbit"] = 1e3; f["mbit"] = 1e6; f["gbit"] = 1e9
        if (!match(r, /(k|m|g)bit$/)) exit 1; printf "%.0f", substr(r, 1, RSTART - 1) * f[substr(r, RSTART)] }'
}
for r in "${rates[@]}"; do bits "$r" >/dev/null || { echo "hosts.sh: rate $r: expected kbit, mbit or gbit" >&2; exit 2; }; done
k=1
until ip link add "cbbr$k" type bridge 2>/dev/null; do    # creating the bridge takes the slot
    k=$((k + 1)); [ $k -le 250 ] || { echo "hosts.sh: no free slot, or not root" >&2; exit 1; }
done
work=$(mktemp -d)
down() {
    for i in $(seq "$n"); do ip netns del "cb$k-$i" 2>/dev/null || :; ip link del "cbv$k-$i" 2>/dev/null || :; done
    ip link del "cbbr$k" 2>/dev/null || :; rm -rf "$work"
}
fair() {                                                  # DEVICE RATE BURST TC...: 32 classes by port, each may have what the others leave
    local dev=$1 rate=$2 burst=$3 c; shift 3
    { echo "qdisc add dev $dev root handle 1: htb"
      echo "class add dev $dev parent 1: classid 1:fff htb rate $rate burst $burst cburst $burst quantum 3000"
      for c in $(seq 0 31); do
          printf 'class add dev %s parent 1:fff classid 1:1%02x htb rate %sbit ceil %s burst 16k cburst %s quantum 3000\n' \
              "$dev" "$c" $(($(bits "$rate") / 32)) "$rate" "$burst"
          printf 'filter add dev %s parent 1: protocol ip prio 1 u32 match ip dport %s 0x001f flowid 1:1%02x\n' "$dev" "$c" "$c"
      done; } | "$@" -batch -
}
trap down EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
ip link set "cbbr$k" up; ip addr add "10.78.$k.254/24" dev "cbbr$k"
list=
for i in $(seq "$n"); do
    rate=${rates[i - 1]:-${rates[-1]}}
    # A larger one lets messages after a pause pass above the rate; a smaller one loses rate where busy cores look after the shaper late.
    burst=$(($(bits "$rate") / 8 * ${CB_BURST_US:-500} / 1000000)); [ $burst -ge 65536 ] || burst=65536
    ip netns add "cb$k-$i"
    ip link add "cbv$k-$i" type veth peer name eth0 netns "cb$k-$i"
    ip link set "cbv$k-$i" master "cbbr$k" up
    ip -n "cb$k-$i" addr add "10.78.$k.$i/24" dev eth0
    ip -n "cb$k-$i" link set eth0 up; ip -n "cb$k-$i" link set lo up
    if [ -n "${CB_FAIR:-}" ]; then
        fair eth0 "$rate" $burst tc -n "cb$k-$i"
        fair "cbv$k-$i" "$rate" $burst tc
    else
        tc -n "cb$k-$i" qdisc add dev eth0 root tbf rate "$rate" burst $burst latency 50ms
        tc qdisc add dev "cbv$k-$i" root tbf rate "$rate" burst $burst latency 50ms
    fi
    list+=${list:+,}10.78.$k.$i
done
printf '#!/bin/bash\nCB_AS_AGENT=1 exec %q "$@"\n' "$(realpath "$0")" >"$work/agent"; chmod 755 "$work/agent"
export CB_HOSTS=$list CB_AGENT=$work/agent CB_BRIDGE=cbbr$k
export CB_MPICH="-launcher ssh -launcher-exec $CB_AGENT -iface $CB_BRIDGE -genv MPIR_CVAR_NOLOCAL 1 -genv UCX_TLS tcp"
CB_MPICH+=" -genv UCX_NET_DEVICES eth0 -hosts $CB_HOSTS -ppn 1"
export CB_OPENMPI="--prtemca plm_ssh_agent $CB_AGENT --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0 --host $CB_HOSTS"
"$@"
