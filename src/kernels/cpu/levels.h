#pragma once
// The levels as types, for kernels that are templates over them. Internal linkage.

#include "kernels/cpu/panel.h"

namespace lathe::kernels::cpu {
namespace {

struct ScalarLevel {
  static Level level() { return {&kMatmulScalar, nullptr}; }
};
struct Avx2Level {
  static Level level() { return {&kMatmulAvx2, nullptr}; }
};
struct Avx512Level {
  static Level level() { return {&kMatmulAvx512, nullptr}; }
};
struct Avx512Bf16Level {
  static Level level() { return {&kMatmulAvx512, &kPairsAvx512Bf16}; }
};

}  // namespace
}  // namespace lathe::kernels::cpu
