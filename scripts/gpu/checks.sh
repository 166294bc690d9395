#!/bin/sh
# All that a card shows, within a time, one section after the other: each is packed as it ends, so that a run which is
# cut off leaves its results. The table at the end has for each goal the measurement, the verdict and the command that
# repeats it.
#
# usage: checks.sh BUILD [RESULTS]      BUILD: a build with the plugin; RESULTS: a folder, $OUT or ./results without it
#   SECONDS_IN_ALL=480: its time limit; SECTIONS="smoke gpt2": those only; SPECS="PATH...": those specs only
#   SIMULATED=1: with the simulated GPU in the card's place and tiny sizes; PYTHON=python3: the one that has PyTorch
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$1
results=${2:-${OUT:-results}}
all=${SECONDS_IN_ALL:-480}
began=$(date +%s)
mkdir -p "$results/logs"
results=$(cd "$results" && pwd)
logs=$results/logs
goals=$results/goals.txt
host=$build/accelhost
python=${PYTHON:-python3}
simulated=${SIMULATED:-}
smoke=
if [ -n "$simulated" ]; then
    export ACCELHOST_CUDA=sim ACCELHOST_SIM_DELAY=0
    smoke=smoke
fi

left() { echo $((all - ($(date +%s) - began))); }
# room SECONDS: as many of the 480 that a whole run has, of the time there is, and no more than the rest
room() {
    part=$(($1 * all / 480))
    rest=$(left)
    [ "$part" -le "$rest" ] || part=$rest
    [ "$part" -ge 1 ] || part=1
    echo "$part"
}
pack() {
    tar -C "$results" -czf "$results/logs.tar.gz.new" logs && mv -f "$results/logs.tar.gz.new" "$results/logs.tar.gz"
}
# section NAME TITLE: false where it was not asked for, or its time has run out
section() {
    [ -z "${SECTIONS:-}" ] || case " $SECTIONS " in *" $1 "*) ;; *) return 1 ;; esac
    pack
    printf '\n== %s (%d s left)\n' "$2" "$(left)"
    [ "$(left)" -gt 3 ] || { echo "no time left"; return 1; }
}
# goal TEXT MEASURED VERDICT COMMAND
goal() { echo "$1|$(echo "$2" | tr '|\r' '/ ')|$3|$4" >>"$goals"; }
# judge CODE: the verdict of an exit status
judge() {
    case $1 in
    0) echo met ;;
    124 | 137) echo open ;;
    *) echo missed ;;
    esac
}

table() {
    printf '\n== goals (%d s left)\n' "$(left)"
    awk -F'|' '
        {
            line[NR] = $0
            for (i = 1; i < 4; i++) if (length($i) > width[i] && length($i) < 130) width[i] = length($i)
        }
        END {
            for (n = 1; n <= NR; n++) {
                split(line[n], field, "|")
                printf "%-*s  %-7s  %s\n%*s  %s\n", width[1], field[1], field[3], field[2], width[1] + 9, "", field[4]
            }
        }' "$goals"
    echo "everything is in $results"
}
finish() {
    trap '' TERM INT
    table | tee "$results/table.txt"
    pack && rm -rf "$logs"
    exit "$1"
}
# end_tree PID: end a process and its descendants
# shellcheck disable=SC2013,SC2317
end_tree() {
    for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do end_tree "$child"; done
    kill "$1" 2>/dev/null
}
# The sections are run by a second shell: a shell that waits for a command in the foreground would handle a signal only
# when that has ended.
if [ -z "${CHECKS_SECTIONS:-}" ]; then
    : >"$goals"
    CHECKS_SECTIONS=1 scripts/gpu/checks.sh "$build" "$results" &
    sections=$!
    trap 'echo "ended by a signal"; end_tree $sections; finish 143' TERM INT
    wait $sections
    exit $?
fi

# NVIDIA's libraries: the toolkit's, and those of Python's packages. Not the toolkit's folder compat, whose
# older libcuda would be found before the driver's own.
nvidia_folders() {
    [ ! -d /usr/local/cuda/lib64 ] || echo /usr/local/cuda/lib64
    "$python" -c 'import glob, nvidia
for root in nvidia.__path__: print("\n".join(glob.glob(root + "/*/lib")))' 2>/dev/null
}
for folder in $(nvidia_folders); do LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"

printf '== versions (%d s left)\n' "$(left)"
{
    date -u
    uname -srm
    nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader 2>&1 | head -n 8
    "${NVCC:-nvcc}" --version 2>/dev/null | tail -n 2
    nvidia_folders | while read -r folder; do find "$folder" -name 'lib*.so.*'; done |
        grep -E '/lib(cublasLt|cusolver|cudnn|nccl)\.so'
    "$host" env
} 2>&1 | tee "$logs/versions.log"
describe() {
    "$host" -e 'local C = require("accelhost._C").device
        print(C.missing "cuda" and "none: " .. C.missing "cuda" or C.describe("cuda", 0))' 2>&1
}
# Kernels that this driver cannot load, or none for this card, are built here where nvcc is.
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
if [ -z "$simulated" ] && [ -n "$capability" ]; then
    timeout 90 scripts/gpu/images.sh "$build" "$capability" 2>&1 | tee "$logs/images.log"
fi
card_text=$(describe)
case $card_text in
*capability*) goal "the plugin opens the card" "$card_text" met "$host env" ;;
*)
    echo "$card_text"
    goal "the plugin opens the card" "$card_text" missed "$host env"
    finish 1
    ;;
esac

# program SECTION SECONDS GOAL COMMAND...: a script whose last line and exit status are the verdict
program() {
    name=$1 seconds=$2 text=$3
    shift 3
    timeout -k 5 "$seconds" "$@" >"$logs/$name.log" 2>&1
    code=$?
    cat "$logs/$name.log"
    goal "$text" "$(tail -n 1 "$logs/$name.log")" "$(judge $code)" "$*"
}

if section smoke "one of each against float64 on the CPU"; then
    program smoke "$(room 45)" "one op of each kind agrees with float64 on the CPU" "$host" scripts/gpu/smoke.lua
fi
if section captured "captured steps against eager ones"; then
    # shellcheck disable=SC2086
    program captured "$(room 60)" "captured steps give the bits of eager ones" "$host" scripts/gpu/captured.lua $smoke
fi
if section nccl "NCCL of one"; then
    program nccl "$(room 30)" "NCCL makes every kind of call with one card" env ACCELHOST_NCCL_ALONE=1 "$host" \
        scripts/gpu/nccl.lua
fi
if section attention "attention by each way"; then
    program attention "$(room 45)" "attention by cuDNN and by own kernels agrees with float64" "$host" \
        scripts/gpu/attention.lua
fi

# kernels ARGUMENTS: a training step with the times of its kernels
kernels() {
    echo "-- $*"
    # shellcheck disable=SC2086
    KERNELS=1 timeout -k 5 "$(room 45)" "$host" scripts/bench/gpu/train.lua "$@" $smoke 2>&1
}
if section gpt2 "GPT-2 with the times of its kernels"; then
    {
        kernels gpt2 16 bfloat16 eager
        kernels gpt2 16 bfloat16 compile
        echo "-- with attention by cuDNN"
        ACCELHOST_CUDA_ATTENTION=auto kernels gpt2 16 bfloat16 compile
    } | tee "$logs/gpt2.log"
fi
if section nets "other nets with the times of their kernels"; then
    { kernels minilm 32 bfloat16 eager; kernels resnet18 256 bfloat16 eager; kernels mnist_cnn 64 float32 eager; } |
        tee "$logs/nets.log"
fi

ncu=$(command -v ncu || ls /usr/local/cuda/bin/ncu 2>/dev/null)
if [ -n "$ncu" ] && section ncu "counters of attention, loss and copies"; then
    timeout -k 5 "$(room 40)" "$ncu" --set basic --clock-control none --launch-skip 60 --launch-count 24 --kill yes \
        -k 'regex:attention|entropy|move|fold|norm' "$host" scripts/bench/gpu/train.lua gpt2 4 bfloat16 eager \
        >"$logs/ncu.log" 2>&1
    grep -cE '^ +[a-z_0-9]+ \(' "$logs/ncu.log" | sed 's/$/ kernels in ncu.log/'
fi

if section specs "specs"; then
    # shellcheck disable=SC2086
    scripts/gpu/specs.sh "$build" "$(room 150)" "$logs/specs" ${SPECS:-} >"$logs/specs.log" 2>&1
    cat "$logs/specs.log"
    said=$(tail -n 1 "$logs/specs.log")
    verdict=missed
    case $said in
    "0 passed"*) ;;
    *", 0 failed,"*" 0 files not ended") verdict=met ;;
    *", 0 failed,"*) verdict=part ;;
    esac
    goal "the specs of tensors, ops and modules pass on the card" "$said" "$verdict" \
        "make test-gpu (here: scripts/gpu/specs.sh $build 600 FOLDER)"
    # card_goal GOAL PART: by the sentence of card_spec with this part
    card=$logs/specs/spec-device-card
    card_goal() {
        command="scripts/gpu/specs.sh $build 100 FOLDER spec/device/card_spec.lua"
        if ! grep -qs passed "$card.tally"; then
            goal "$1" "not run to its end" open "$command"
        elif grep -q "^FAILED.*$2" "$card.log"; then
            goal "$1" "$(grep -A 2 "^FAILED.*$2" "$card.log" | tail -n 1)" missed "$command"
        else
            goal "$1" "so it is" met "$command"
        fi
    }
    card_goal "BasicNet in float64: 20 losses as the CPU's to 1e-9" "trains BasicNet"
    card_goal "two ranks train as one process, on their own cards or on one" "trains in two ranks"
fi

# sanitize TOOL: one of compute-sanitizer's tools over one of each op
sanitize() {
    command="compute-sanitizer --tool $1 $host scripts/gpu/one_of_each.lua"
    quiet=
    [ "$1" != memcheck ] || quiet="--report-api-errors no"
    # Each allocation is the driver's own, so that the tool sees its bounds.
    # shellcheck disable=SC2086
    ACCELHOST_CUDA_ALLOCATOR=driver timeout -k 5 "$(room 45)" "$sanitizer" --tool "$1" --error-exitcode 99 \
        --print-limit 20 $quiet "$host" scripts/gpu/one_of_each.lua >"$logs/$1.log" 2>&1
    code=$?
    verdict=$(judge $code)
    said=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$logs/$1.log" | tail -n 1 | sed 's/^=* *//')
    # Places in kernels, those of NVIDIA's libraries aside.
    ours=$(grep -E '^=+ .*\b(at|in) [a-z]' "$logs/$1.log" |
        grep -cvE 'cutlass|cublas|cudnn|xmma|nvjet|nccl|sm[0-9]+_|::|_Z')
    case $said in
    "")
        said="no summary: $(head -n 1 "$logs/$1.log")"
        verdict=open
        ;;
    *"SUMMARY: 0 "*) ;;
    *)
        if [ "$verdict" = missed ] && [ "$ours" = 0 ]; then
            verdict=told said="$said, all in kernels of NVIDIA's libraries"
        fi
        ;;
    esac
    [ "$verdict" != open ] || said="did not end in its time; $said"
    # A load of 16 bytes may reach past the written part, within its block.
    [ "$1" != initcheck ] || [ "$verdict" != missed ] || verdict=told
    said="$said; $(grep ' calls, ' "$logs/$1.log" | tail -n 1)"
    goal "$1 finds nothing in the kernels" "$said" "$verdict" "$command"
    echo "$1: $said"
}
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if section sanitizer "compute-sanitizer"; then
    for tool in memcheck racecheck synccheck initcheck; do
        if [ -n "$sanitizer" ]; then
            sanitize $tool
        else
            goal "$tool finds nothing in the kernels" "compute-sanitizer is not here" open "compute-sanitizer"
        fi
    done
fi

if section benches "rates of kernels and training steps, beside PyTorch"; then
    # shellcheck disable=SC2086
    TORCHINDUCTOR_COMPILE_THREADS=4 "$host" scripts/bench/gpu/run.lua --seconds "$(($(left) - 10))" --host "$host" \
        --python "$python" ${smoke:+--smoke} ${ROWS:+--rows "$ROWS"} --json "$results/bench.json" --goals "$goals" \
        2>"$logs/bench.err" | tee "$results/bench.txt"
    tr '\r' '\n' <"$logs/bench.err" | grep failed
fi

if section mnist "MNIST"; then
    words="examples/mnist.lua --epochs 1"
    [ -z "$simulated" ] || words="examples/mnist_mlp.lua --smoke"
    # shellcheck disable=SC2086
    timeout "$(left)" "$host" $words >"$logs/mnist.log" 2>&1
    code=$?
    said=$(tr '\r' '\n' <"$logs/mnist.log" | tail -n 1)
    echo "$said"
    goal "the MNIST example trains on the card, unchanged" "$said" "$(judge $code)" "$host $words"
fi
code=0
! grep -q '|missed|' "$goals" || code=1
finish $code
