#pragma once
// The levels as types, for kernels that are templates over them. Internal linkage.

#include "kernels/cpu/panel.h"

namespace lathe::kernels::cpu {
namespace {

struct ScalarLevel {
  static Level level() { return {&kMatmulScalar, nullptr, &kCodesScalar}; }
};
struct Avx2Level {
  static Level level() { return {&kMatmulAvx2, nullptr, &kCodesAvx2}; }
};
struct Avx512Level {
  static Level level() { return {&kMatmulAvx512, nullptr, &kCodesAvx512}; }
};
struct Avx512VnniLevel {
  static Level level() { return {&kMatmulAvx512, nullptr, &kCodesAvx512Vnni}; }
};
struct Avx512Bf16Level {
  static Level level() { return {&kMatmulAvx512, &kPairsAvx512Bf16, &kCodesAvx512Vnni}; }
};

}  // namespace
}  // namespace lathe::kernels::cpu
