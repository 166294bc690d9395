#!/bin/sh
# All that a card shows, within a time: its kernels are built if they have to be, the specs run, compute-sanitizer and
# the benches; everything is logged, and one table at the end tells each goal, what was measured, the verdict and the
# command that shows it again.
#
# usage: checks.sh BUILD [RESULTS]      BUILD: a build with the plugin; RESULTS: a folder, $OUT or ./results without it
#   SECONDS_IN_ALL=480: how long it may take; SIMULATED=1: with the simulated GPU in the card's place and tiny benches;
#   PYTHON=python3: the interpreter that has PyTorch; SPECS="PATH...": those specs only
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
: >"$goals"
host=$build/accelhost
python=${PYTHON:-python3}
simulated=${SIMULATED:-}
smoke=
if [ -n "$simulated" ]; then
    export ACCELHOST_CUDA=sim ACCELHOST_SIM_DELAY=0
    smoke=--smoke
fi

left() { echo $((all - ($(date +%s) - began))); }
section() { printf '\n== %s (%d s left)\n' "$1" "$(left)"; }
# goal TEXT MEASURED VERDICT COMMAND
goal() { echo "$1|$(echo "$2" | tr '|\r' '/ ')|$3|$4" >>"$goals"; }

table() {
    section "goals"
    awk -F'|' '
        { line[NR] = $0; for (i = 1; i < 4; i++) if (length($i) > width[i] && length($i) < 130) width[i] = length($i) }
        END {
            for (n = 1; n <= NR; n++) {
                split(line[n], field, "|")
                printf "%-*s  %-7s  %s\n%*s  %s\n", width[1], field[1], field[3], field[2], width[1] + 9, "", field[4]
            }
        }' "$goals"
    echo "everything is in $results"
}
finish() {
    table | tee "$results/table.txt"
    tar -C "$results" -czf "$results/logs.tar.gz" logs 2>/dev/null && rm -rf "$logs"
    exit "$1"
}

# NVIDIA's libraries: the toolkit's, and those that Python's packages bring.
nvidia_folders() {
    for folder in /usr/local/cuda/lib64 /usr/local/cuda/compat; do [ ! -d "$folder" ] || echo "$folder"; done
    "$python" -c 'import glob, nvidia
for root in nvidia.__path__: print("\n".join(glob.glob(root + "/*/lib")))' 2>/dev/null
}
for folder in $(nvidia_folders); do LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"

section "the card"
{
    date -u
    uname -srm
    nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader 2>&1 | head -n 8
    "${NVCC:-nvcc}" --version 2>/dev/null | tail -n 2
    "$python" -c 'import torch; print("PyTorch", torch.__version__)' 2>/dev/null
    "$host" env
} 2>&1 | tee "$logs/card.log"
told=$("$host" -e 'local C = require("accelhost._C").device
    print(C.missing "cuda" and "none: " .. C.missing "cuda" or C.describe("cuda", 0))' 2>&1)
case $told in
*capability*) goal "the plugin opens the card" "$told" met "$host env" ;;
*)
    echo "$told"
    goal "the plugin opens the card" "$told" missed "$host env"
    finish 1
    ;;
esac
capability=$(echo "$told" | sed -n 's/.*capability \([0-9.]*\).*/\1/p')

section "kernels"
if [ -z "$simulated" ]; then
    timeout 90 scripts/gpu/images.sh "$build" "$capability" 2>&1 | tee "$logs/images.log"
fi

share=$((all * 45 / 100))

# What PyTorch compiles is kept on disk; meanwhile the specs run.
warm=
if [ -z "$simulated" ] && "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    for row in "gpt2 16 bfloat16 compile" "mnist_cnn 64 float32 graph" "resnet18 256 bfloat16 compile" \
        "minilm 32 bfloat16 compile"; do
        # shellcheck disable=SC2086
        WARM=1 PYTHONDONTWRITEBYTECODE=1 timeout -k 5 "$share" "$python" scripts/bench/gpu/train.py $row \
            >>"$logs/warm.log" 2>&1 &
        warm="$warm $!"
    done
fi

# Each of compute-sanitizer's tools in a process of its own, beside the specs: nothing is timed yet.
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
tools="memcheck racecheck synccheck initcheck"
watched="scripts/gpu/one_of_each.lua"
pids=
if [ -n "$sanitizer" ]; then
    for tool in $tools; do
        quiet=
        [ "$tool" != memcheck ] || quiet="--report-api-errors no"
        # Each allocation is the driver's own, so that the tool sees its bounds.
        # shellcheck disable=SC2086
        ACCELHOST_CUDA_ALLOCATOR=driver timeout -k 5 "$share" "$sanitizer" --tool "$tool" --error-exitcode 99 \
            --print-limit 20 $quiet "$host" "$watched" >"$logs/$tool.log" 2>&1 &
        pids="$pids $!"
    done
fi

section "specs"
# shellcheck disable=SC2086
scripts/gpu/specs.sh "$build" "$share" "$logs/specs" ${SPECS:-} >"$logs/specs.log" 2>&1
cat "$logs/specs.log"
said=$(tail -n 1 "$logs/specs.log")
command="make test-gpu (here: scripts/gpu/specs.sh $build 600 FOLDER)"
verdict=missed
case $said in
"0 passed"*) ;;
*", 0 failed,"*" 0 files not ended") verdict=met ;;
*", 0 failed,"*) verdict=part ;;
esac
goal "the specs of tensors, ops and modules pass on the card" "$said" "$verdict" "$command"
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

section "compute-sanitizer"
number=0
for tool in $tools; do
    number=$((number + 1))
    command="compute-sanitizer --tool $tool $host $watched"
    if [ -z "$sanitizer" ]; then
        goal "$tool finds nothing in the kernels" "compute-sanitizer is not here" open "$command"
        continue
    fi
    # shellcheck disable=SC2086
    wait "$(echo $pids | cut -d ' ' -f $number)"
    code=$?
    said=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$logs/$tool.log" | tail -n 1 | sed 's/^=* *//')
    case $code in
    0 | 1) verdict=met ;;
    124 | 137) verdict=open said="did not end in its time; ${said:-nothing found until then}" ;;
    *) verdict=missed ;;
    esac
    # Places in kernels, those of NVIDIA's libraries aside.
    ours=$(grep -E '^=+ .*\b(at|in) [a-z]' "$logs/$tool.log" |
        grep -cvE 'cutlass|cublas|cudnn|xmma|nvjet|nccl|sm[0-9]+_|::|_Z')
    case $said in
    "") verdict=open said="no summary: $(head -n 1 "$logs/$tool.log")" ;;
    *"SUMMARY: 0 "*) ;;
    *)
        [ $verdict = open ] || verdict=missed
        if [ $verdict = missed ] && [ "$ours" = 0 ]; then
            verdict=told said="$said, all in kernels of NVIDIA's libraries"
        fi
        ;;
    esac
    # A load of 16 bytes may reach past what was written, within its block.
    [ "$tool" != initcheck ] || [ $verdict = open ] || verdict=told
    goal "$tool finds nothing in the kernels" "$said; $(grep ' calls, ' "$logs/$tool.log" | tail -n 1)" $verdict \
        "$command"
    echo "$tool: $said"
done

# shellcheck disable=SC2086
[ -z "$warm" ] || wait $warm
section "benches"
"$host" scripts/bench/gpu/run.lua --seconds "$(($(left) - 25))" --host "$host" --python "$python" $smoke \
    --json "$results/bench.json" --goals "$goals" 2>"$logs/bench.err" | tee "$results/bench.txt"
tr '\r' '\n' <"$logs/bench.err" | grep failed

if [ "$(left)" -gt 10 ]; then
    section "MNIST"
    words="examples/mnist.lua --epochs 1"
    [ -z "$simulated" ] || words="examples/mnist_mlp.lua --smoke"
    # shellcheck disable=SC2086
    timeout "$(left)" "$host" $words >"$logs/mnist.log" 2>&1
    code=$?
    said=$(tr '\r' '\n' <"$logs/mnist.log" | tail -n 1)
    case $code in
    0) verdict=met ;;
    124) verdict=open said="its time was up" ;;
    *) verdict=missed ;;
    esac
    echo "$said"
    goal "the MNIST example trains on the card, unchanged" "$said" $verdict "$host $words"
fi
code=0
! grep -q '|missed|' "$goals" || code=1
finish $code
