#!/bin/sh
# A float32 all-reduce over two hosts by size: ours, the same over MPI's wire, Open MPI over TCP and gloo, in turn, on
# test hosts (scripts/testhosts).
#
# usage: hosts.sh [RANKS_A_HOST [ROUNDS]]       PYTHON: an interpreter with torch, for gloo (else left out)
#
# A line for each size: the median over the rounds of the mean time of a call in microseconds, calls one behind the
# other. Open MPI polls without yielding, its usual setting, unless there are more ranks than processors. Needs root,
# mpicc and mpirun.
set -u
here=$(cd "$(dirname "$0")" && pwd)
local=${1:-1} rounds=${2:-3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mpicc -O2 -o "$scratch/mpi" "$here/peers/allreduce_row.c" || exit 2
export PATH="$here/..:$PATH" ACCELHOST_SECRET="${ACCELHOST_SECRET:-a secret of this bench}" OMP_NUM_THREADS=1
binary=${ACCELHOST_BINARY:-$here/../../build/accelhost}

cat >"$scratch/ranks" <<'END'
#!/bin/sh
# On a host: LOCAL ranks of a command, with torchrun's environment variables.
node=$(hostname | tr -dc 0-9) i=0
while [ $i -lt "$LOCAL" ]; do
    RANK=$(((node - 1) * LOCAL + i)) LOCAL_RANK=$i WORLD_SIZE=$((2 * LOCAL)) LOCAL_WORLD_SIZE=$LOCAL \
        GROUP_RANK=$((node - 1)) MASTER_ADDR=10.77.0.1 MASTER_PORT=29577 GLOO_SOCKET_IFNAME=eth0 "$@" &
    i=$((i + 1))
done
wait
END
cat >"$scratch/agent" <<'END'
#!/bin/sh
# mpirun's replacement of ssh.
while [ "${1#-}" != "$1" ]; do shift; done
node=$1
shift
exec testhosts on "${node#node}" sh -c "$*"
END
cat >"$scratch/mpirun" <<'END'
#!/bin/sh
# Between the hosts.
[ $((2 * LOCAL)) -gt "$(nproc)" ] && yield=--oversubscribe || yield=
exec mpirun --allow-run-as-root --bind-to none $yield -x ACCELHOST_SECRET \
    --mca plm_rsh_agent "$AGENT" --mca plm_rsh_no_tree_spawn 1 \
    --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca btl tcp,vader,self --mca pml ob1 \
    --host "node1:$LOCAL,node2:$LOCAL" "$@"
END
chmod +x "$scratch/ranks" "$scratch/agent" "$scratch/mpirun"
export LOCAL=$local AGENT=$scratch/agent

median() { # NAME
    grep "^$1 ." "$scratch/times" | cut -d' ' -f2 | sort -n |
        awk '{v[NR] = $1} END {print NR ? v[int((NR + 1) / 2)] : "-"}'
}

row() { # COUNT TURNS
    round=0
    while [ $round -lt "$rounds" ]; do
        round=$((round + 1))
        echo "ours $(testhosts 2 testhosts all "$scratch/ranks" "$binary" run "$here/ours/allreduce_row.lua" "$1" "$2" |
            sed -n 's/^call_us //p')"
        echo "ours_mpi $(testhosts 2 "$scratch/mpirun" -x ACCELHOST_WIRE=mpi "$binary" run \
            "$here/ours/allreduce_row.lua" "$1" "$2" | sed -n 's/^call_us //p')"
        echo "mpi $(testhosts 2 "$scratch/mpirun" "$scratch/mpi" "$1" "$2" 2>/dev/null | sed -n 's/^call_us //p')"
        [ -z "${PYTHON:-}" ] ||
            echo "gloo $(testhosts 2 testhosts all "$scratch/ranks" "$PYTHON" "$here/peers/allreduce_row.py" "$1" "$2" \
                2>/dev/null | sed -n 's/^call_us //p')"
    done >"$scratch/times"
    printf '%10s bytes  ours %10s us  by mpi %10s us  mpi %10s us  gloo %10s us\n' $((4 * $1)) "$(median ours)" \
        "$(median ours_mpi)" "$(median mpi)" "$(median gloo)"
}

for size in 1:3000 1024:3000 16384:1000 65536:500 262144:200 1048576:80 4194304:30 16777216:12; do
    row "${size%:*}" "${size#*:}"
done
