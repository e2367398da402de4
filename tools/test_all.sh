#!/usr/bin/env bash
# Everything that can be checked, for hours; prints each part's time and verdict at the end. Parts can be named: tools/test_all.sh asan tsan
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=/dev/null
. tools/node_path.sh
jobs=$(nproc)

build_preset() { cmake --preset "$1" >/dev/null && cmake --build --preset "$1" -j "$jobs"; }

part_release() { build_preset release && ctest --preset all; }
part_check() { build_preset release && ./tools/check.py --tidy-budget 0; }
part_headers() { build_preset release && ./tools/check_headers.py; }
part_clang() { build_preset clang && ctest --preset clang && ./tools/check_isa.py build/clang; }
part_asan() { build_preset asan-ubsan && ctest --preset asan-ubsan; }
part_tsan() { build_preset tsan && ctest --preset tsan; }
part_planted() { build_preset planted && ctest --preset planted; }
part_minimal() { build_preset minimal && ctest --preset minimal; }
part_cuda() {
  if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then echo "cuda: skipped, no nvcc"; return 0; fi
  build_preset cuda
}
part_fuzz() { ./tools/fuzz.sh 60; }

parts=("$@")
if [ ${#parts[@]} = 0 ]; then parts=(check headers release clang asan tsan planted minimal cuda fuzz); fi
summary=()
failed=0
for part in "${parts[@]}"; do
  echo "== $part"
  start=$SECONDS
  if "part_$part"; then verdict=ok; else verdict=FAILED; failed=1; fi
  summary+=("$(printf '%-10s %6d s  %s' "$part" $((SECONDS - start)) "$verdict")")
done
echo "== summary"
printf '%s\n' "${summary[@]}"
exit $failed
