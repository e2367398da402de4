#!/usr/bin/env bash
# Checks and times the CUDA backend on a machine with a GPU, from a kit (kit.sh): conformance, models, kernels, memory checker. A short table last.
#   tools/gpu/run.sh KIT OUT        from the root of the project; OUT gets logs and results.jsonl
# Environment: STEPS (default: all of conformance golden bench peers memcheck memcheck_products racecheck racecheck_products; counters only if named), BENCH (parts of cuda_bench), SANITIZE (a test filter).
set -uo pipefail
kit=$(cd "$1" && pwd) out=$2
mkdir -p "$out"
(cd "$kit" && python3 -W ignore -m tarfile -e kit.tar.xz)
export LD_LIBRARY_PATH="$kit/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# The tests look for data/ below the folder that they were built in.
source_dir=$(cat "$kit/source_dir")
if [ ! -e "$source_dir" ]; then mkdir -p "$(dirname "$source_dir")" && ln -s "$PWD" "$source_dir"; fi
mkdir -p "$source_dir/data"
cp -rn "$kit/data/." "$source_dir/data/" 2>/dev/null  # a tree that came without its data may still have its folders
summary=()
step() {  # name, seconds, log lines to show, command…
  local name=$1 limit=$2 lines=$3
  [[ " ${STEPS:-$name} " == *" $name "* ]] || return 0
  shift 3
  local begin=$SECONDS
  timeout "$limit" "$@" >"$out/$name.log" 2>&1
  local code=$?
  echo "== $name: exit $code, $((SECONDS - begin)) s"
  grep -E "$lines" "$out/$name.log" | cut -c1-220 | head -"${HEAD:-40}"
  summary+=("$name $([ $code = 0 ] && echo ok || echo "FAILED ($code)")")
}
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader
HEAD=25 step conformance 60 'FAILED|Failure|on [a-z0-9_]*:|PASSED|skipped|CHECK|CUDA' "$kit/bin/cuda_conformance_test" --gtest_brief=1
HEAD=25 step golden 120 'FAILED|Failure|prompt|PASSED|SKIPPED|fallback|worst|picture|built-in|fast against|CHECK|CUDA' "$kit/bin/cuda_golden_test" --gtest_brief=1
# shellcheck disable=SC2086
HEAD=90 step bench ${BENCH_SECONDS:-150} '.' "$kit/bin/cuda_bench" "$out/results.jsonl" ${BENCH:-}
[ -e tools/gpu/peers.py ] && HEAD=14 step peers 45 '.' python3 tools/gpu/peers.py
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    lines='ERROR SUMMARY|RACECHECK|Race|Invalid|FAILED|PASSED|WRONG'
    HEAD=8 step $tool 60 "$lines" compute-sanitizer --error-exitcode 9 --tool $tool "$kit/bin/cuda_conformance_test" --gtest_brief=1 --gtest_filter="${SANITIZE:-*tiles128:*stream128:*head128:*mma:*radix:*moe*plain:*index_keys*}"
    HEAD=8 step ${tool}_products 60 "$lines" compute-sanitizer --error-exitcode 9 --tool $tool "$kit/bin/cuda_bench" /dev/null small
  done
fi
if command -v ncu >/dev/null && [[ " ${STEPS:-} " == *" counters "* ]]; then
  HEAD=60 step counters 90 'product<|experts<|Duration|Executed Ipc Active|Issue Slots Busy|DRAM Throughput|L2 Cache Thr|No Eligible' \
    ncu --clock-control none -k 'regex:product|experts' --section SpeedOfLight --section SchedulerStats --section WarpStateStats --section ComputeWorkloadAnalysis \
    --metrics regex:smsp__average_warps_issue_stalled.*_per_issue_active,regex:sm__inst_executed_pipe_.*pct "$kit/bin/cuda_bench" /dev/null counters
fi
printf '%s; ' "${summary[@]}"
echo
