// Goal: the trained model computes what its makers computed: FP8 weights, pictures, greedy texts and three draft steps.

#include <gtest/gtest.h>

#include "tiny_golden.h"

namespace lathe::models::golden {
namespace {

constexpr int kPrompts = 17;

RigOptions tiny(const std::string& directory) { return {.directory = directory, .isa = "", .blocks = 256, .slots = 2, .dispatch = {}}; }

TEST(GoldenTiny, BuiltinFp8) {
  GoldenFile gold(data_path("golden/tiny/golden_fp8.safetensors"));
  Rig rig(tiny(data_path("builtin")));
  for (int number = 0; number < kPrompts; ++number) TinyPrompt(gold, rig, number).check();
}

}  // namespace
}  // namespace lathe::models::golden
