// What the conformance table is too small for: sequences over several chunks and tiles, many pools.

#include <gtest/gtest.h>

#include "kernels/cpu/test_support.h"
#include "kernels/ref/reference.h"
#include "ops/kda.h"
#include "ops/mla.h"

namespace lathe::kernels::cpu {
namespace {

using namespace testing;
using tensor::make_view;

const ops::Variant& reference(ops::OpId op) {
  for (const ops::Variant& variant : ref::reference_variants()) {
    if (variant.op == op) return variant;
  }
  LATHE_CHECK(false, "no reference");
}

View f32(std::vector<float>& data, std::initializer_list<int64_t> shape) { return make_view(data.data(), DType::kF32, shape); }
View i32(std::vector<int32_t>& data, std::initializer_list<int64_t> shape) { return make_view(data.data(), DType::kI32, shape); }

struct Kda {
  static constexpr int64_t kRows = 100, kHeads = 512, kKeys = 16, kValues = 8, kStates = 6;
  std::vector<float> q, k, v, g, beta, states, o, m, h;
  std::vector<int32_t> begin, start, in, out;

  explicit Kda(uint64_t seed) {
    Random random(seed);
    q = random.normals(kRows * kHeads * kKeys), k = random.normals(kRows * kHeads * kKeys), v = random.normals(kRows * kHeads * kValues);
    g.resize(static_cast<size_t>(kRows * kHeads * kKeys)), beta.resize(static_cast<size_t>(kRows * kHeads));
    for (float& x : g) x = -0.3f * std::abs(random.normal());
    for (float& x : beta) x = 0.5f;
    states = random.normals(kStates * kHeads * kKeys * kValues);
    o.assign(static_cast<size_t>(kRows * kHeads * kValues), NAN);
    m.assign(static_cast<size_t>(2 * kHeads * kKeys * kKeys), NAN), h.assign(static_cast<size_t>(2 * kHeads * kKeys * kValues), NAN);
    out.assign(kRows, -1);
  }
  /// Rows [first, last) as sequences that begin at the given rows.
  void run(const ops::Variant& variant, int64_t first, int64_t last, std::vector<int32_t> begins, std::vector<int32_t> entering, bool pair,
           int threads) {
    const int64_t rows = last - first, sequences = static_cast<int64_t>(entering.size());
    begin = std::move(begins), in = std::move(entering), start.assign(static_cast<size_t>(sequences), 0);
    ops::KdaRecurrenceParams p;
    p.q = f32(q, {kRows, kHeads, kKeys}).rows(first, last), p.k = f32(k, {kRows, kHeads, kKeys}).rows(first, last);
    p.v = f32(v, {kRows, kHeads, kValues}).rows(first, last), p.g = f32(g, {kRows, kHeads * kKeys}).rows(first, last);
    p.beta = f32(beta, {kRows, kHeads}).rows(first, last), p.o = f32(o, {kRows, kHeads, kValues}).rows(first, last);
    p.entering = p.states = f32(states, {kStates, kHeads, kKeys, kValues});
    p.state_in = i32(in, {sequences}), p.state_out = i32(out, {kRows}).rows(first, last);
    p.batch = {};
    p.batch.begin = i32(begin, {sequences + 1}), p.batch.start = i32(start, {sequences}), p.batch.longest = rows;
    if (pair) p.pair_m = f32(m, {sequences, kHeads, kKeys, kKeys}), p.pair_h = f32(h, {sequences, kHeads, kKeys, kValues});
    TestContext context(threads);
    variant.run(&p, context.context());
  }
};

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (1.0 + std::abs(static_cast<double>(want[i])))) << what << " " << i;
}

// 512 heads of 16 keys make chunks of 42 rows: the second sequence goes on through three of them.
TEST(CpuLong, RecurrenceOverChunks) {
  Kda want(3);
  want.out[29] = 2, want.out[99] = 3, want.out[60] = 4;
  want.run(reference(ops::OpId::kKdaRecurrence), 0, 100, {0, 30, 100}, {0, -1}, true, 2);
  ops::KdaRecurrenceParams none;
  for (const ops::Variant* variant : usable(ops::OpId::kKdaRecurrence, &none)) {
    SCOPED_TRACE(variant->name);
    Kda whole(3), pieces(3);
    whole.out = pieces.out = want.out;
    pieces.out[42] = 5, pieces.out[83] = 5;
    whole.run(*variant, 0, 100, {0, 30, 100}, {0, -1}, true, 2);
    expect_near(whole.o, want.o, 2e-5, "o");
    expect_near(whole.states, want.states, 2e-5, "states");
    expect_near(whole.m, want.m, 2e-5, "m");
    expect_near(whole.h, want.h, 2e-5, "h");
    pieces.run(*variant, 0, 43, {0, 30, 43}, {0, -1}, false, 1);
    pieces.run(*variant, 43, 84, {0, 41}, {5}, false, 2);
    pieces.run(*variant, 84, 100, {0, 16}, {5}, false, 2);
    EXPECT_EQ(whole.o, pieces.o);
    for (const int64_t row : {2, 3, 4}) {
      const int64_t size = Kda::kHeads * Kda::kKeys * Kda::kValues;
      for (int64_t i = row * size; i < (row + 1) * size; ++i)
        ASSERT_EQ(whole.states[static_cast<size_t>(i)], pieces.states[static_cast<size_t>(i)]) << i;
    }
  }
}

// In the middle chunks one sequence ends while the next one begins and goes on, and they share heads and columns: what waits for a chunk is read while
// what waits for the one after is written. Values seldom show a mix-up, ThreadSanitizer always does.
TEST(CpuLong, SequencesMeetInChunks) {
  const std::vector<int32_t> begins = {0, 60, 100}, entering = {0, -1};
  Kda want(5);
  want.out[59] = 2, want.out[99] = 3, want.out[70] = 4;
  want.run(reference(ops::OpId::kKdaRecurrence), 0, 100, begins, entering, true, 2);
  ops::KdaRecurrenceParams none;
  for (const ops::Variant* variant : usable(ops::OpId::kKdaRecurrence, &none)) {
    SCOPED_TRACE(variant->name);
    Kda one(5);
    one.out = want.out;
    one.run(*variant, 0, 100, begins, entering, true, 1);
    expect_near(one.o, want.o, 2e-5, "o");
    expect_near(one.states, want.states, 2e-5, "states");
    for (const bool pair : {false, true}) {
      Kda many(5);
      many.out = want.out;
      many.run(*variant, 0, 100, begins, entering, pair, pair ? 4 : 3);
      EXPECT_TRUE(many.o == one.o && many.states == one.states);
      EXPECT_TRUE(!pair || (many.m == one.m && many.h == one.h));
    }
  }
}

struct Paged {
  std::vector<float> rows;
  std::vector<int32_t> table;
  ops::Paged paged;
  Paged(Random& random, int64_t blocks, int64_t block_rows, int64_t width) : rows(random.normals(blocks * block_rows * width)) {
    for (int64_t i = 0; i < blocks; ++i) table.push_back(static_cast<int32_t>((i * 7 + 3) % blocks));
    paged = {.pool = f32(rows, {blocks * block_rows, width}), .table = i32(table, {1, blocks}), .block_rows = block_rows};
  }
};

struct OneSequence {
  std::vector<int32_t> begin, start;
  ops::Ragged batch;
  OneSequence(int64_t first, int64_t rows) : begin{0, static_cast<int32_t>(rows)}, start{static_cast<int32_t>(first)} {
    batch.begin = i32(begin, {2}), batch.start = i32(start, {1}), batch.longest = rows;
  }
};

// Thousands of pools with many equal scores: the same choice as the reference, few rows (pools in pieces) or many.
TEST(CpuLong, SelectionAmongManyPools) {
  Random random(11);
  const int64_t heads = 4, width = 64, pools = 5000, most = 100, kpool = 4;
  Paged keys(random, 40, 128, width);
  for (float& x : keys.rows) x = std::round(x);  // small integers and roots that are whole: scores are exact, ties are real
  for (const int64_t rows : {1, 3, 40}) {
    std::vector<float> q = random.normals(rows * heads * width), weights = random.normals(rows * heads);
    for (float& x : q) x = std::round(x);
    for (float& x : weights) x = std::round(2 * x);
    const OneSequence one(pools * kpool - rows, rows);
    std::vector<int32_t> want(static_cast<size_t>(rows * most));
    ops::IndexSelectParams p;
    p.q = f32(q, {rows, heads, width}), p.weights = f32(weights, {rows, heads}), p.keys = keys.paged, p.batch = one.batch, p.kpool = kpool;
    p.selection = i32(want, {rows, most});
    TestContext context(2);
    reference(ops::OpId::kIndexSelect).run(&p, context.context());
    for (const ops::Variant* variant : usable(ops::OpId::kIndexSelect, &p)) {
      SCOPED_TRACE(std::string(variant->name) + " rows " + std::to_string(rows));
      for (const int threads : {1, 2, 3}) {
        std::vector<int32_t> got(want.size());
        p.selection = i32(got, {rows, most});
        TestContext many(threads);
        variant->run(&p, many.context());
        EXPECT_EQ(got, want) << threads;
      }
    }
  }
}

// A context of three tiles, most of it not chosen; rows alone give the same bits.
TEST(CpuLong, ExpandedAttentionOverTiles) {
  Random random(17);
  const int64_t heads = 2, nope = 24, value = 20, width = 40, kpool = 4, most = 50, first = 690, rows = 9;
  Paged latents(random, 12, 64, width);
  const TestMatrix kv_b = random_matrix(random, DType::kBF16, heads * (nope + value), width);
  std::vector<float> q = random.normals(rows * heads * nope);
  std::vector<int32_t> pools(static_cast<size_t>(rows * most), -1);
  for (int64_t t = 0; t < rows; ++t) {
    int32_t at = 0;
    for (int64_t i = 0; i < most - t; ++i) at += 1 + static_cast<int32_t>(random.below(3)), pools[static_cast<size_t>(t * most + i)] = at;
  }
  for (const ops::Compute compute : {ops::Compute::kF32, ops::Compute::kBF16}) {
    const auto run = [&](const ops::Variant& variant, int64_t begin, int64_t end, int threads) {
      const OneSequence one(first + begin, end - begin);
      std::vector<float> out(static_cast<size_t>((end - begin) * heads * value), NAN);
      ops::MlaExpandedParams p;
      p.q = f32(q, {rows, heads, nope}).rows(begin, end), p.latents = latents.paged, p.batch = one.batch, p.scale = 0.2f, p.compute = compute;
      p.kv_b = {.matrix = kv_b.view, .nope = static_cast<int32_t>(nope), .value = static_cast<int32_t>(value)};
      p.selection = {.pools = i32(pools, {rows, most}).rows(begin, end), .tail_begin = {}, .kpool = static_cast<int32_t>(kpool)};
      p.out = f32(out, {end - begin, heads, value});
      TestContext context(threads);
      variant.run(&p, context.context());
      return out;
    };
    const std::vector<float> want = run(reference(ops::OpId::kMlaExpanded), 0, rows, 2);
    ops::MlaExpandedParams probe;
    probe.compute = compute, probe.kv_b.matrix = kv_b.view;
    for (const ops::Variant* variant : usable(ops::OpId::kMlaExpanded, &probe)) {
      SCOPED_TRACE(variant->name);
      const std::vector<float> got = run(*variant, 0, rows, 2);
      expect_near(got, want, 2e-5, "out");
      for (int64_t t = 0; t < rows; ++t) {
        const std::vector<float> alone = run(*variant, t, t + 1, 1);
        for (size_t i = 0; i < alone.size(); ++i) ASSERT_EQ(alone[i], got[static_cast<size_t>(t * heads * value) + i]) << t << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lathe::kernels::cpu
