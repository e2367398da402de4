#include "ops/cases/problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tensor/quantised.h"

namespace lathe::ops::cases {
namespace {

constexpr int64_t kGuard = 64;             // bytes on each side, a cache line
constexpr uint32_t kPoison = 0x7FB5A5C3u;  // NaN as f32, a large number as i32; its halves are a NaN and a number as bf16
constexpr int64_t kPattern = 65521;        // random elements before they repeat: benchmarks fill gigabytes

void poison(std::vector<std::byte>& bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(kPoison >> (8 * (i % 4)));
}

/// Elements of I8 take what is nearest, and the code −128 that only files hold.
void store(DType dtype, void* data, int64_t index, double value) {
  if (dtype != DType::kI8) return tensor::store_from_float(dtype, data, index, static_cast<float>(value));
  static_cast<int8_t*>(data)[index] = static_cast<int8_t>(std::clamp(std::nearbyint(value), -128.0, 127.0));
}

uint64_t hash_bytes(const std::vector<std::byte>& bytes) {
  uint64_t hash = bytes.size();
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001B3ull;
  return hash;
}

double draw(const Fill& fill, uint64_t bits) {
  const auto unit = [](uint64_t sixteen) { return (static_cast<double>(sixteen & 0xFFFF) + 0.5) / 65536.0; };
  switch (fill.kind) {
    case Fill::Kind::kConstant: return fill.a;
    case Fill::Kind::kUniform: return fill.a + (fill.b - fill.a) * ((static_cast<double>(bits >> 11) + 0.5) * 0x1p-53);
    case Fill::Kind::kNormal: break;
  }
  const double sum = unit(bits) + unit(bits >> 16) + unit(bits >> 32) + unit(bits >> 48);  // four uniforms: near enough to a bell
  return fill.a + fill.b * (sum - 2.0) * std::sqrt(3.0);
}

}  // namespace

uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

int64_t Batch::tokens() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }

void each_element(const View& view, const std::function<void(int64_t)>& f) {
  if (view.elements() == 0) return;
  std::array<int64_t, tensor::kMaxRank> at{};
  for (;;) {
    int64_t offset = 0;
    for (int axis = 0; axis < view.rank; ++axis) offset += at[static_cast<size_t>(axis)] * view.step(axis);
    f(offset);
    int axis = view.rank - 1;
    while (axis >= 0 && ++at[static_cast<size_t>(axis)] == view.dim(axis)) at[static_cast<size_t>(axis--)] = 0;
    if (axis < 0) return;
  }
}

View Problem::add(const Buffer& buffer) {
  const auto& [dtype, shape, fill, pad, writable] = buffer;
  View view;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (i == 0 && shape.size() > 1) stride += pad;
    view.shape[i] = shape[i];
    view.stride[i] = stride;
    stride *= shape[i];
  }
  Block& block = blocks_.emplace_back();
  // The allocator aligns to 16 bytes: step to 64, as device memory is.
  block.bytes.resize(static_cast<size_t>(3 * kGuard + view.extent_bytes()));
  poison(block.bytes);
  auto* const first = block.bytes.data();
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(first) % kGuard);
  view.data = first + 2 * kGuard - misaligned;
  block.view = view;
  block.writable = writable;
  if (fill != nullptr) {
    const uint64_t base = mix(seed_ + 0x1000 * blocks_.size());
    const auto put = [&](int64_t offset, int64_t index) { store(dtype, view.data, offset, draw(*fill, mix(base + static_cast<uint64_t>(index)))); };
    if (view.contiguous()) {
      const int64_t count = view.elements();
      const auto size = static_cast<int64_t>(tensor::dtype_bytes(dtype));
      for (int64_t i = 0; i < std::min(count, kPattern); ++i) put(i, i);
      for (int64_t i = kPattern; i < count; i += kPattern) {
        std::memcpy(static_cast<std::byte*>(view.data) + i * size, view.data, static_cast<size_t>(std::min(kPattern, count - i) * size));
      }
    } else {
      int64_t index = 0;
      each_element(view, [&](int64_t offset) { put(offset, index++); });
    }
  }
  return view;
}

View Problem::indices(const std::vector<int32_t>& values, std::vector<int64_t> shape) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  const View view = add({.dtype = DType::kI32, .shape = shape});
  LATHE_CHECK(view.elements() == static_cast<int64_t>(values.size()), "{} values for {}", values.size(), describe(view));
  std::copy(values.begin(), values.end(), view.i32());
  return view;
}

MatrixView Problem::matrix(const Weights& kind, int64_t rows, int64_t cols) {
  MatrixView m;
  const int64_t all_rows = rows + kind.row_offset;
  const int64_t all_cols = cols + kind.col_offset;
  const double deviation = kind.deviation / std::sqrt(static_cast<double>(std::max<int64_t>(cols, 1)));
  // Stored codes use the whole range of their format; the scales bring them back.
  const double spread = kind.dtype == DType::kI8 ? 50.0 : kind.scaled ? 100.0 : deviation;
  m.values = in(kind.dtype, {all_rows, all_cols}, normal(spread));
  if (kind.scaled) {
    m.block_rows = kind.dtype == DType::kI8 ? 1 : kind.block;
    m.block_cols = kind.dtype == DType::kI8 ? static_cast<int32_t>(std::max<int64_t>(all_cols, 1)) : kind.block;
    const double scale = deviation / spread;
    m.scales = in(DType::kF32, {(all_rows + m.block_rows - 1) / m.block_rows, (all_cols + m.block_cols - 1) / m.block_cols},
                  uniform(0.5 * scale, 1.5 * scale));
  }
  return tensor::slice_matrix(m, {kind.row_offset, all_rows}, {kind.col_offset, all_cols});
}

MatrixStack Problem::mixed_stack(const EvenOdd& kinds, int32_t count, int64_t rows, int64_t cols) {
  const auto& [even, odd] = kinds;
  std::vector<MatrixView>& items = stacks_.emplace_back();
  for (int32_t i = 0; i < count; ++i) items.push_back(matrix(i % 2 == 0 ? even : odd, rows, cols));
  return {.items = items.data(), .count = count};
}

Ragged Problem::ragged(const Batch& batch) {
  std::vector<int32_t>& begin = host_.emplace_back(std::vector<int32_t>{0});
  std::vector<int32_t>& start = host_.emplace_back(batch.start);
  int64_t longest = 0;
  for (const int32_t rows : batch.rows) {
    begin.push_back(begin.back() + rows);
    longest = std::max<int64_t>(longest, rows);
  }
  return {.begin = indices(begin),
          .start = indices(start, {static_cast<int64_t>(start.size())}),
          .longest = longest,
          .host_begin = begin.data(),
          .host_start = start.data()};
}

Paged Problem::paged(const Pool& pool) {
  const auto& [dtype, width, sequences, rows, block_rows, written] = pool;
  const int64_t blocks = (rows + block_rows - 1) / block_rows;
  std::vector<int32_t> order(static_cast<size_t>(sequences * blocks));
  std::iota(order.begin(), order.end(), 1);  // block 0 belongs to nobody
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[mix(seed_ + i) % i]);
  const std::vector<int64_t> shape = {(sequences * blocks + 1) * block_rows, width};
  const bool codes = tensor::is_code(dtype);
  const Fill fill = codes ? normal(40) : normal();
  Paged out{
      .pool = written ? inout(dtype, shape, fill) : in(dtype, shape, fill), .table = indices(order, {sequences, blocks}), .block_rows = block_rows};
  const std::vector<int64_t> runs = {shape[0], tensor::runs_of(width)};
  if (codes) out.scales = written ? inout(DType::kF32, runs, uniform(0.01, 0.04), 1) : in(DType::kF32, runs, uniform(0.01, 0.04), 1);
  return out;
}

std::string Problem::damage() const {
  for (size_t index = 0; index < blocks_.size(); ++index) {
    const Block& block = blocks_[index];
    std::vector<bool> used(block.bytes.size());
    const int64_t base = static_cast<std::byte*>(block.view.data) - block.bytes.data();
    const auto size = static_cast<int64_t>(tensor::dtype_bytes(block.view.dtype));
    each_element(block.view, [&](int64_t offset) {
      for (int64_t i = 0; i < size; ++i) used[static_cast<size_t>(base + offset * size + i)] = true;
    });
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] || block.bytes[i] == static_cast<std::byte>(kPoison >> (8 * (i % 4)))) continue;
      return "byte " + std::to_string(static_cast<int64_t>(i) - base) + " outside the elements of buffer " + std::to_string(index) + ", " +
             describe(block.view) + ", was written";
    }
    if (!block.writable && block.hash != 0 && hash_bytes(block.bytes) != block.hash) {
      return "input buffer " + std::to_string(index) + ", " + describe(block.view) + ", was changed";
    }
  }
  return "";
}

void Problem::seal() {
  for (Block& block : blocks_) {
    if (!block.writable) block.hash = hash_bytes(block.bytes);
  }
}

}  // namespace lathe::ops::cases
