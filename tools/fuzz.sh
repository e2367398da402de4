#!/usr/bin/env bash
# Runs every fuzz target over its committed corpus, two at a time where there are two processors.
# Usage: tools/fuzz.sh [SECONDS_PER_TARGET [SECONDS_IN_ALL]]    New inputs stay in build/fuzz-corpus; a crash leaves its input in
# build/fuzz-crashes and fails. Without clang++-19 it says so and skips; with LATHE_CI=1, as in the gate, that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
budget=${2:-0}

if [ ! -f fuzz/CMakeLists.txt ]; then echo "fuzz: no targets"; exit 0; fi
if ! command -v clang++-19 >/dev/null; then
  if [ "${LATHE_CI:-}" = 1 ]; then echo "fuzz: there is no clang++-19, the gate must not pass without fuzzing" >&2; exit 1; fi
  echo "fuzz: skipped, no clang++-19"
  exit 0
fi
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzz_all -j "$(nproc)" >/dev/null

mapfile -t targets < <(find build/fuzz/fuzz -maxdepth 1 -type f -perm -u+x | sort)
if [ ${#targets[@]} = 0 ]; then echo "fuzz: the preset built no targets" >&2; exit 1; fi
at_once=$(($(nproc) > 1 ? 2 : 1))
rounds=$(((${#targets[@]} + at_once - 1) / at_once))
if [ "$budget" -gt 0 ] && [ $((seconds * rounds)) -gt "$budget" ]; then seconds=$((budget / rounds)); fi

mkdir -p build/fuzz-crashes

# One target; its verdict is printed, and build/fuzz-crashes/NAME.failed stays unless it is good.
fuzz_target() {
  local target=$1 name short folder corpus=()
  name=$(basename "$target")
  short=${name#fuzz_}
  mkdir -p "build/fuzz-corpus/$name"
  echo "$name (no verdict)" >"build/fuzz-crashes/$name.failed"
  for folder in "fuzz/corpus/$name" "fuzz/corpus/$short"; do if [ -d "$folder" ]; then corpus+=("$folder"); fi; done
  if [ ${#corpus[@]} = 0 ]; then
    echo "fuzz: $name has no corpus under fuzz/corpus" >&2
    echo "$name (no corpus)" >"build/fuzz-crashes/$name.failed"
  elif "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -print_final_stats=0 -verbosity=0 \
      -artifact_prefix="build/fuzz-crashes/$name-" "build/fuzz-corpus/$name" "${corpus[@]}" >"build/fuzz-crashes/$name.log" 2>&1; then
    echo "fuzz: $name ok, $seconds s"
    rm "build/fuzz-crashes/$name.failed"
  else
    echo "fuzz: $name FAILED, see build/fuzz-crashes/$name.log"
    tail -n 30 "build/fuzz-crashes/$name.log"
    echo "$name ($(grep -m1 -E 'does not hold|runtime error|ERROR:' "build/fuzz-crashes/$name.log" || echo 'no reason given'))" \
      >"build/fuzz-crashes/$name.failed"
  fi
}

rm -f build/fuzz-crashes/*.failed
running=0
for target in "${targets[@]}"; do
  if [ "$running" = "$at_once" ]; then wait -n || true; running=$((running - 1)); fi
  fuzz_target "$target" &
  running=$((running + 1))
done
wait

failed=()
for file in build/fuzz-crashes/*.failed; do if [ -f "$file" ]; then failed+=("$(cat "$file")"); fi; done
if [ ${#failed[@]} -gt 0 ]; then echo "fuzz: failed: ${failed[*]}" >&2; exit 1; fi
