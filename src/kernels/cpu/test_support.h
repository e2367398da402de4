#pragma once
// Helpers of the tests beside the CPU kernels: scratch, contexts, random data, the variants that this machine can run.

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_variants.h"
#include "ops/kernel.h"

namespace lathe::kernels::cpu::testing {

class TestScratch final : public ops::Scratch {
 public:
  explicit TestScratch(int workers) : local_(static_cast<size_t>(workers)) {}
  void* shared(int64_t bytes) override { return ensure(shared_, bytes); }
  void* local(int worker, int64_t bytes) override { return ensure(local_[static_cast<size_t>(worker)], bytes); }

 private:
  struct alignas(64) Block {
    std::vector<char> data;
  };
  static void* ensure(Block& block, int64_t bytes) {
    if (block.data.size() < static_cast<size_t>(bytes) + 64) block.data.assign(static_cast<size_t>(bytes) + 64, static_cast<char>(0xA5));
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(block.data.data()) + 63) / 64 * 64);
  }
  Block shared_;
  std::vector<Block> local_;
};

class TestContext {
 public:
  explicit TestContext(int threads) : pool_(threads), scratch_(threads) {}
  ops::LaunchContext context(ops::OpCounters* counters = nullptr) { return {.pool = &pool_, .scratch = &scratch_, .counters = counters}; }

 private:
  base::ThreadPool pool_;
  TestScratch scratch_;
};

/// Every variant of `op` that this machine runs and that supports the problem.
inline std::vector<const ops::Variant*> usable(ops::OpId op, const void* params) {
  std::vector<const ops::Variant*> out;
  const auto add = [&](bool has, std::span<const ops::Variant> variants) {
    for (const ops::Variant& variant : variants) {
      if (has && variant.op == op && variant.supports(params)) out.push_back(&variant);
    }
  };
  add(true, scalar_variants());
  add(has_avx2(), avx2_variants());
  add(has_avx512(), avx512_variants());
  add(has_avx512vnni(), avx512vnni_variants());
  add(has_avx512bf16(), avx512bf16_variants());
  return out;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  float normal() { return distribution_(engine_); }
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  std::vector<float> normals(int64_t n, float scale = 1) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = normal() * scale;
    return out;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> distribution_;
};

/// A weight matrix with storage of its own, with room around it.
struct TestMatrix {
  std::vector<uint8_t> values;
  std::vector<float> scales;
  MatrixView view;
};

inline TestMatrix random_matrix(Random& random, DType type, int64_t rows, int64_t cols, int32_t block = 0, int32_t row_offset = 0,
                                int32_t col_offset = 0) {
  TestMatrix m;
  const int64_t stride = cols + 3;
  m.values.resize(static_cast<size_t>(rows * stride) * tensor::dtype_bytes(type) + 64);
  for (int64_t i = 0; i < rows * stride; ++i) tensor::store_from_float(type, m.values.data(), i, random.normal());
  m.view.values = tensor::make_view(m.values.data(), type, {rows, cols});
  m.view.values.stride[0] = stride;
  if (block > 0) {
    const int64_t row_blocks = (rows + row_offset + block - 1) / block, col_blocks = (cols + col_offset + block - 1) / block;
    m.scales = random.normals(row_blocks * col_blocks, 0.01f);
    m.view.scales = tensor::make_view(m.scales.data(), DType::kF32, {row_blocks, col_blocks});
    m.view.block_rows = m.view.block_cols = block;
    m.view.row_offset = row_offset, m.view.col_offset = col_offset;
  }
  return m;
}

/// Element (i, j) as the contract dequantises it.
inline float element(const MatrixView& m, int64_t i, int64_t j) {
  const float value = tensor::load_as_float(m.values.dtype, m.values.data, i * m.values.step(0) + j);
  if (!m.scaled()) return value;
  const int64_t r = (i + m.row_offset) / m.block_rows, c = (j + m.col_offset) / m.block_cols;
  return value * m.scales.f32()[r * m.scales.step(0) + c];
}

inline float rounded_bf16(float x) { return tensor::bf16_to_float(tensor::float_to_bf16(x)); }

}  // namespace lathe::kernels::cpu::testing
