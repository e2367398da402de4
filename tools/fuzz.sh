#!/usr/bin/env bash
# Runs every fuzz target over its committed corpus. Usage: tools/fuzz.sh [SECONDS_PER_TARGET [SECONDS_IN_ALL]]
# New inputs stay in build/fuzz-corpus; a crash leaves its input in build/fuzz-crashes and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
budget=${2:-0}

if [ ! -f fuzz/CMakeLists.txt ]; then echo "fuzz: no targets"; exit 0; fi
if ! command -v clang++-19 >/dev/null; then echo "fuzz: skipped, no clang++-19"; exit 0; fi
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzz_all -j "$(nproc)" >/dev/null

mapfile -t targets < <(find build/fuzz/fuzz -maxdepth 1 -type f -perm -u+x | sort)
if [ ${#targets[@]} = 0 ]; then echo "fuzz: the preset built no targets" >&2; exit 1; fi
if [ "$budget" -gt 0 ] && [ $((seconds * ${#targets[@]})) -gt "$budget" ]; then seconds=$((budget / ${#targets[@]})); fi

mkdir -p build/fuzz-crashes
failed=()
for target in "${targets[@]}"; do
  name=$(basename "$target")
  short=${name#fuzz_}
  mkdir -p "build/fuzz-corpus/$name"
  corpus=()
  for folder in "fuzz/corpus/$name" "fuzz/corpus/$short"; do if [ -d "$folder" ]; then corpus+=("$folder"); fi; done
  if [ ${#corpus[@]} = 0 ]; then echo "fuzz: $name has no corpus under fuzz/corpus" >&2; failed+=("$name"); continue; fi
  if "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -print_final_stats=0 -verbosity=0 \
      -artifact_prefix="build/fuzz-crashes/$name-" "build/fuzz-corpus/$name" "${corpus[@]}" >"build/fuzz-crashes/$name.log" 2>&1; then
    echo "fuzz: $name ok, $seconds s"
  else
    echo "fuzz: $name FAILED, see build/fuzz-crashes/$name.log"
    tail -n 30 "build/fuzz-crashes/$name.log"
    failed+=("$name ($(grep -m1 -E 'does not hold|runtime error|ERROR:' "build/fuzz-crashes/$name.log" || echo 'no reason given'))")
  fi
done
if [ ${#failed[@]} -gt 0 ]; then echo "fuzz: failed: ${failed[*]}" >&2; exit 1; fi
