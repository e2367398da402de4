#!/usr/bin/env bash
# Packs what a bare GPU machine needs to check and time the CUDA backend: programs, their libraries and the data of the tests.
#   tools/gpu/kit.sh BUILD KIT      e.g. tools/gpu/kit.sh build/cuda build/cuda-kit
# Environment: KIT_DATA (what of data/ goes along; empty: nothing, enough for conformance and bench)
set -euo pipefail
build=$1 kit=$2
rm -rf "$kit"
mkdir -p "$kit/bin" "$kit/lib" "$kit/data/golden/tiny"
for program in tests/conformance/cuda_conformance_test tests/cuda/cuda_golden_test src/kernels/cuda/cuda_bench; do
  strip -o "$kit/bin/$(basename "$program")" "$build/$program"
done
# Libraries that are not part of every Linux machine.
ldd "$kit"/bin/* | awk '/=> \// {print $3}' | sort -u | grep -vE '/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so' | xargs -r -I{} cp -L {} "$kit/lib/"
for item in ${KIT_DATA-golden/base golden/base.safetensors golden/tiny/golden_fp8.safetensors builtin}; do cp -r "data/$item" "$kit/data/$(dirname "$item")/"; done
pwd >"$kit/source_dir"
# One packed file: the way to the machine may be narrow, weights shrink by a fifth and programs to a third.
(cd "$kit" && tar cf - bin lib data source_dir | xz -2 -T0 >kit.tar.xz && rm -r bin lib data source_dir)
du -sh "$kit"
