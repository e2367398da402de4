// The reference against a second writing of the formulas: KDA in chunk form, latent attention in dense form, index keys and the choice of pools.

#include <gtest/gtest.h>

#include <algorithm>

#include "oracle.h"

namespace lathe::conformance {
namespace {

using namespace lathe::ops;  // NOLINT(google-build-using-namespace): a test of that namespace

size_t size(int64_t n) { return static_cast<size_t>(n); }

/// One sequence and head in chunk form: everything as matrices, differences of cumulative decays only. Returns {o, S'}.
std::pair<Values, Values> chunk_form(const Values& q, const Values& k, const Values& v, const Values& g, const Values& beta, const Values& s0,
                                     size_t keys, size_t width) {
  const size_t c = beta.size();
  Values sum(c * keys);  // G, inclusive
  for (size_t i = 0; i < c; ++i) {
    for (size_t j = 0; j < keys; ++j) sum[i * keys + j] = g[i * keys + j] + (i > 0 ? sum[(i - 1) * keys + j] : 0);
  }
  const auto decayed = [&](const Values& a, size_t i, size_t j) {  // Σ a_i k_j e^{G_i − G_j}
    double total = 0;
    for (size_t x = 0; x < keys; ++x) total += a[i * keys + x] * k[j * keys + x] * std::exp(sum[i * keys + x] - sum[j * keys + x]);
    return total;
  };
  // New values by forward substitution of (I + A) Vn = β (v − (k e^G) S).
  Values fresh(c * width);
  for (size_t i = 0; i < c; ++i) {
    for (size_t j = 0; j < width; ++j) {
      double value = v[i * width + j];
      for (size_t x = 0; x < keys; ++x) value -= k[i * keys + x] * std::exp(sum[i * keys + x]) * s0[x * width + j];
      value *= beta[i];
      for (size_t m = 0; m < i; ++m) value -= beta[i] * decayed(k, i, m) * fresh[m * width + j];
      fresh[i * width + j] = value;
    }
  }
  Values o(c * width), s = s0;
  for (size_t i = 0; i < c; ++i) {
    for (size_t j = 0; j < width; ++j) {
      for (size_t x = 0; x < keys; ++x) o[i * width + j] += q[i * keys + x] * std::exp(sum[i * keys + x]) * s0[x * width + j];
      for (size_t m = 0; m <= i; ++m) o[i * width + j] += decayed(q, i, m) * fresh[m * width + j];
    }
  }
  for (size_t x = 0; x < keys; ++x) {
    for (size_t j = 0; j < width; ++j) {
      s[x * width + j] *= std::exp(sum[(c - 1) * keys + x]);
      for (size_t m = 0; m < c; ++m)
        s[x * width + j] += k[m * keys + x] * std::exp(sum[(c - 1) * keys + x] - sum[m * keys + x]) * fresh[m * width + j];
    }
  }
  return {o, s};
}

/// Rows [r0, r1) of head h of a [T, H, n] view, L2-normalised if scale > 0.
Values head_rows(const View& view, int64_t r0, int64_t r1, int64_t h, double scale = 0) {
  Values out;
  for (int64_t t = r0; t < r1; ++t) {
    double square = 1e-6;
    for (int64_t i = 0; i < view.dim(2); ++i)
      out.push_back(static_cast<double>(view.f32()[t * view.step(0) + h * view.step(1) + i])), square += out.back() * out.back();
    for (auto it = out.end() - view.dim(2); scale > 0 && it != out.end(); ++it) *it *= scale / std::sqrt(square);
  }
  return out;
}

TEST(Oracle, RecurrenceIsTheChunkForm) {
  for (const char* name : {"h2_16x16", "h1_5x7", "h3_24x40_every", "slow_decay", "pair_64x24"}) {
    const auto b = named(OpId::kKdaRecurrence, name);
    auto& p = b->get<KdaRecurrenceParams>();
    const int64_t heads = p.q.dim(1), keys = p.q.dim(2), width = p.v.dim(2);
    const std::vector<float> before(p.entering.f32(), p.entering.f32() + p.entering.extent_bytes() / 4);
    run_reference(*b);
    for (int64_t s = 0; s < p.batch.sequences(); ++s) {
      const int64_t r0 = p.batch.begin.i32()[s], r1 = p.batch.begin.i32()[s + 1];
      if (r0 == r1) continue;
      for (int64_t h = 0; h < heads; ++h) {
        Values s0(size(keys * width));
        const int32_t in = p.state_in.i32()[s];
        for (size_t i = 0; in >= 0 && i < s0.size(); ++i)
          s0[i] = static_cast<double>(before[size(in * p.entering.step(0) + h * p.entering.step(1)) + i]);
        Values g, beta;
        for (int64_t t = r0; t < r1; ++t) {
          for (int64_t c = 0; c < keys; ++c) g.push_back(static_cast<double>(p.g.f32()[t * p.g.step(0) + h * keys + c]));
          beta.push_back(static_cast<double>(p.beta.f32()[t * p.beta.step(0) + h]));
        }
        const auto [o, state] = chunk_form(head_rows(p.q, r0, r1, h, 1 / std::sqrt(static_cast<double>(keys))), head_rows(p.k, r0, r1, h, 1),
                                           head_rows(p.v, r0, r1, h), g, beta, s0, size(keys), size(width));
        EXPECT_LT(distance(head_rows(p.o, r0, r1, h), o), 1e-6) << name;
        const int32_t kept = p.state_out.i32()[r1 - 1];
        EXPECT_LT(distance(values(p.states.at(kept).at(h)), state), 1e-6) << name;
      }
    }
  }
}

TEST(Oracle, AffinePairCarriesAnyState) {
  const auto b = named(OpId::kKdaRecurrence, "pair_16x16");
  auto& p = b->get<KdaRecurrenceParams>();
  run_reference(*b);
  for (int64_t s : {0, 2}) {
    for (int64_t h = 0; h < 2; ++h) {
      const int32_t in = p.state_in.i32()[s];
      ASSERT_GE(in, 0);
      Values end = multiply(values(p.pair_m.at(s).at(h)), values(p.entering.at(in).at(h)), 16, 16, 16);
      const Values rest = values(p.pair_h.at(s).at(h));
      for (size_t i = 0; i < end.size(); ++i) end[i] += rest[i];
      EXPECT_LT(distance(end, values(p.states.at(p.state_out.i32()[p.batch.begin.i32()[s + 1] - 1]).at(h))), 1e-6);
    }
  }
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(p.pair_m.at(1).at(0).f32()[i * 17], 1.0f) << "an empty sequence changes nothing";
}

TEST(Oracle, SlowDecayIsNotRoundedAway) {
  // 2,000 tokens that only decay, by 1e-6 each. float(exp(-1e-6)) is 1.3e-8 too small, so exp(g)·S would lose 2.7e-5 of every state; S + expm1(g)·S must not.
  constexpr int32_t kTokens = 2000;
  constexpr int64_t kWidth = 512;
  Problem b;
  auto& p = b.make<KdaRecurrenceParams>();
  p.q = p.k = b.in(DType::kF32, {kTokens, 1, 1}), p.v = b.in(DType::kF32, {kTokens, 1, kWidth});
  p.g = b.in(DType::kF32, {kTokens, 1}, cases::constant(-1e-6)), p.beta = b.in(DType::kF32, {kTokens, 1}, cases::constant(0));
  p.entering = b.in(DType::kF32, {1, 1, 1, kWidth}, cases::uniform(0.3, 3)), p.states = b.inout(DType::kF32, {1, 1, 1, kWidth});
  p.state_in = b.indices({0});
  std::vector<int32_t> out(kTokens, -1);
  out.back() = 0;
  p.state_out = b.indices(out);
  p.batch = b.ragged({{kTokens}, {0}});
  p.o = b.out(DType::kF32, {kTokens, 1, kWidth});
  run_reference(b);
  const double g = static_cast<double>(-1e-6f);
  double bias = 0;
  for (int64_t j = 0; j < kWidth; ++j) {
    const double true_end = static_cast<double>(p.entering.f32()[j]) * std::exp(g * kTokens);
    bias += (static_cast<double>(p.states.f32()[j]) / true_end - 1) / kWidth;
  }
  EXPECT_LT(std::abs(bias), 5e-6);
  EXPECT_GT(std::abs(static_cast<double>(std::exp(-1e-6f)) - std::exp(g)) * kTokens, 2.5e-5) << "the form that the contract forbids";
}

TEST(Oracle, ConvolutionOverAWholeHistory) {
  // Prompt in one step, then single tokens: equal to a plain convolution over everything.
  constexpr int64_t kChannels = 6;
  Problem b;
  const View x = b.in(DType::kF32, {12, kChannels}), w = b.in(DType::kF32, {4, kChannels}), ring = b.inout(DType::kF32, {1, 3, kChannels});
  const View slot = b.indices({0}), out = b.out(DType::kF32, {12, kChannels});
  for (const auto& [c0, c1] : std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {2, 9}, {9, 10}, {10, 11}, {11, 12}}) {
    auto& p = b.make<ShortConvParams>();
    p.x = x.rows(c0, c1), p.weight = w, p.ring = ring, p.slot = slot, p.out = out.rows(c0, c1);
    p.batch = b.ragged({{static_cast<int32_t>(c1 - c0)}, {static_cast<int32_t>(c0)}});
    run_reference(b);
  }
  for (int64_t t = 0; t < 12; ++t) {
    for (int64_t c = 0; c < kChannels; ++c) {
      double z = 0;
      for (int64_t j = std::max<int64_t>(0, 3 - t); j < 4; ++j)
        z += static_cast<double>(w.f32()[j * kChannels + c]) * static_cast<double>(x.f32()[(t - 3 + j) * kChannels + c]);
      EXPECT_NEAR(static_cast<double>(out.f32()[t * kChannels + c]), z * logistic(z), 1e-6);
    }
  }
}

TEST(Oracle, Gates) {
  for (const char* name : {"bounded_h2_16", "unbounded_h2_31", "unbounded_far"}) {
    const auto b = named(OpId::kKdaGate, name);
    auto& p = b->get<KdaGateParams>();
    run_reference(*b);
    const Values a = values(p.a), rate = values(p.a_log), bias = values(p.dt_bias), g = values(p.g), strength = values(p.b), beta = values(p.beta);
    const size_t heads = rate.size(), all = bias.size();
    for (size_t i = 0; i < a.size(); ++i) {
      const double x = a[i] + bias[i % all], r = std::exp(rate[i % all / (all / heads)]);
      const double want = p.bounded ? -5 * logistic(r * x) : -r * (x > 20 ? x : std::log(1 + std::exp(x)));
      EXPECT_NEAR(g[i], want, 1e-6 * (1 + std::abs(want))) << name;
    }
    for (size_t i = 0; i < beta.size(); ++i) EXPECT_NEAR(beta[i], logistic(strength[i]), 1e-7);
  }
}

/// Dense attention of one row and head in double over the expanded keys and values of the given positions.
Values dense_attention(const MlaExpandedParams& p, int64_t s, int64_t t, int64_t h, const std::vector<int64_t>& keys) {
  const size_t nope = size(p.kv_b.nope), value = size(p.kv_b.value), latent = size(p.kv_b.matrix.cols());
  const Values matrix = dense(p.kv_b.matrix);
  Values out(value);
  double sum = 0;
  for (const int64_t position : keys) {
    const int32_t block = p.latents.table.i32()[s * p.latents.table.dim(1) + position / p.latents.block_rows];
    const Values c = values(p.latents.pool.rows(block * p.latents.block_rows + position % p.latents.block_rows,
                                                block * p.latents.block_rows + position % p.latents.block_rows + 1));
    const Values kv = multiply(Values(matrix.begin() + h * static_cast<int64_t>((nope + value) * latent),
                                      matrix.begin() + (h + 1) * static_cast<int64_t>((nope + value) * latent)),
                               c, nope + value, latent, 1);
    double score = 0;
    for (size_t i = 0; i < nope; ++i) score += kv[i] * static_cast<double>(p.q.f32()[size(t * p.q.step(0) + h * p.q.step(1)) + i]);
    const double weight = std::exp(score * static_cast<double>(p.scale));
    sum += weight;
    for (size_t i = 0; i < value; ++i) out[i] += weight * kv[nope + i];
  }
  for (double& o : out) o /= sum;
  return out;
}

/// absorb, attend, unabsorb of the same problem; the attention in two halves of the keys, merged by max and sum, if split.
Values absorbed(const MlaExpandedParams& p, int64_t heads, bool split) {
  const int64_t tokens = p.q.dim(0), latent = p.kv_b.matrix.cols();
  Problem a, u;
  auto& absorb = a.make<MlaAbsorbParams>();
  absorb.q = p.q, absorb.kv_b = p.kv_b, absorb.out = a.out(DType::kF32, {tokens, heads, latent});
  run_reference(a);
  const auto attend = [&](Problem& b, const View& pools, const View& tails) {
    auto& m = b.make<MlaAttendParams>();
    m.q = absorb.out, m.latents = p.latents, m.selection = {pools, tails, p.selection.kpool}, m.batch = p.batch, m.scale = p.scale;
    m.out = b.out(DType::kF32, {tokens, heads, latent}), m.row_max = b.out(DType::kF32, {tokens, heads}),
    m.row_sum = b.out(DType::kF32, {tokens, heads});
    run_reference(b);
    return m;
  };
  Problem first, second;
  const int64_t half = split ? p.selection.pools.dim(1) / 2 : p.selection.pools.dim(1);
  View no_tail;
  if (split) {  // the first half takes no tail: it begins behind the row
    std::vector<int32_t> behind;
    for (int64_t s = 0; s < p.batch.sequences(); ++s) {
      for (int32_t t = p.batch.host_begin[s]; t < p.batch.host_begin[s + 1]; ++t)
        behind.push_back(p.batch.host_start[s] + t - p.batch.host_begin[s] + 1);
    }
    no_tail = first.indices(behind);
  }
  const MlaAttendParams one = attend(first, p.selection.pools.slice(1, 0, half), split ? no_tail : p.selection.tail_begin);
  if (split) {
    const MlaAttendParams two = attend(second, p.selection.pools.slice(1, half, p.selection.pools.dim(1)), p.selection.tail_begin);
    for (int64_t i = 0; i < tokens * heads; ++i) {
      const double most = std::max(one.row_max.f32()[i], two.row_max.f32()[i]);
      const double wa = std::exp(one.row_max.f32()[i] - most) * one.row_sum.f32()[i],
                   wb = std::exp(two.row_max.f32()[i] - most) * two.row_sum.f32()[i];
      for (int64_t c = i * latent; c < (i + 1) * latent; ++c)
        one.out.f32()[c] = static_cast<float>((wa * one.out.f32()[c] + wb * two.out.f32()[c]) / (wa + wb));
    }
  }
  auto& un = u.make<MlaUnabsorbParams>();
  un.z = one.out, un.kv_b = p.kv_b, un.out = u.out(DType::kF32, {tokens, heads, p.kv_b.value});
  run_reference(u);
  return values(un.out);
}

TEST(Oracle, ExpandedAbsorbedAndDenseAttentionAgree) {
  for (const char* name : {"dense_h2", "sparse_h4_128", "sparse_h3_odd_f32", "fp8_bf16_cache", "p1"}) {
    const auto b = named(OpId::kMlaExpanded, name);
    auto& p = b->get<MlaExpandedParams>();
    run_reference(*b);
    const int64_t heads = p.q.dim(1), kpool = p.selection.kpool;
    Values want;
    for (int64_t s = 0; s < p.batch.sequences(); ++s) {
      for (int64_t t = p.batch.host_begin[s]; t < p.batch.host_begin[s + 1]; ++t) {
        const int64_t position = p.batch.host_start[s] + t - p.batch.host_begin[s];
        const int64_t tail = p.selection.tail_begin.present() ? p.selection.tail_begin.i32()[t] : (position + 1) / kpool * kpool;
        std::vector<int64_t> keys;
        const int32_t* const pools = p.selection.pools.i32() + t * p.selection.pools.dim(1);
        for (int64_t key = 0; key <= position; ++key) {
          const int64_t times = std::count(pools, pools + p.selection.pools.dim(1), key / kpool) + (key >= tail ? 1 : 0);
          for (int64_t i = 0; i < times; ++i) keys.push_back(key);
        }
        for (int64_t h = 0; h < heads; ++h) {
          const Values row = dense_attention(p, s, t, h, keys);
          want.insert(want.end(), row.begin(), row.end());
        }
      }
    }
    EXPECT_LT(distance(values(p.out), want), 1e-6) << name;
    EXPECT_LT(distance(absorbed(p, heads, false), want), 2e-6) << name;
    EXPECT_LT(distance(absorbed(p, heads, true), want), 2e-6) << name << ", keys in two ranges";
  }
}

TEST(Oracle, PooledKeysOfAWholeSequence) {
  // 14 tokens in steps of 5, 1, 8: pools of the whole sequence, written with plain arrays.
  constexpr int64_t kWidth = 8;
  Problem b;
  const View k = b.in(DType::kF32, {14, kWidth}, cases::normal(1, 2)), gate = b.in(DType::kF32, {14, kWidth}), w = b.in(DType::kF32, {kWidth}),
             bias = b.in(DType::kF32, {kWidth}), ape = b.in(DType::kF32, {4, kWidth}), ring = b.inout(DType::kF32, {1, 3, 2, kWidth}),
             slot = b.indices({0});
  const Paged keys = b.paged({.dtype = DType::kF32, .width = kWidth, .sequences = 1, .rows = 4, .block_rows = 2, .written = true});
  for (const auto& [c0, c1] : std::vector<std::pair<int64_t, int64_t>>{{0, 5}, {5, 6}, {6, 14}}) {
    auto& p = b.make<IndexKeysParams>();
    p.k = k.rows(c0, c1), p.gate = gate.rows(c0, c1), p.norm_weight = w, p.norm_bias = bias, p.eps = 1e-6f, p.ape = ape, p.ring = ring, p.slot = slot,
    p.keys = keys;
    p.batch = b.ragged({{static_cast<int32_t>(c1 - c0)}, {static_cast<int32_t>(c0)}});
    run_reference(b);
  }
  const Values kv = values(k), g = values(gate), a = values(ape), wv = values(w), bv = values(bias);
  for (size_t pool = 0; pool < 3; ++pool) {
    for (size_t c = 0; c < kWidth; ++c) {
      double sum = 0, key = 0;
      for (size_t j = 0; j < 4; ++j) {
        const size_t t = 4 * pool + j;
        double mean = 0, square = 0;
        for (size_t i = 0; i < kWidth; ++i) mean += kv[t * kWidth + i] / kWidth;
        for (size_t i = 0; i < kWidth; ++i) square += (kv[t * kWidth + i] - mean) * (kv[t * kWidth + i] - mean) / kWidth;
        const double weight = std::exp(g[t * kWidth + c] + a[j * kWidth + c]);
        sum += weight, key += weight * ((kv[t * kWidth + c] - mean) / std::sqrt(square + 1e-6) * wv[c] + bv[c]);
      }
      const int64_t row = keys.table.i32()[pool / 2] * 2 + static_cast<int64_t>(pool % 2);
      EXPECT_NEAR(static_cast<double>(keys.pool.f32()[row * kWidth + static_cast<int64_t>(c)]), key / sum, 1e-6);
    }
  }
}

TEST(Oracle, ChoiceByCountingBetterPools) {
  const auto b = named(OpId::kIndexSelect, "ties");
  auto& p = b->get<IndexSelectParams>();
  run_reference(*b);
  const int64_t most = p.selection.dim(1);
  int64_t ties = 0;
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t t = p.batch.host_begin[s]; t < p.batch.host_begin[s + 1]; ++t) {
      const int64_t pools = (p.batch.host_start[s] + t - p.batch.host_begin[s] + 1) / p.kpool;
      Values score;
      for (int64_t pool = 0; pool < pools; ++pool) {
        double sum = 0;
        for (int64_t h = 0; h < 4; ++h) {
          const int64_t row = p.keys.table.i32()[s * p.keys.table.dim(1) + pool / 4] * 4 + pool % 4;
          double product = 0;
          for (int64_t c = 0; c < 4; ++c)
            product += static_cast<double>(p.q.f32()[t * p.q.step(0) + h * 4 + c]) * static_cast<double>(p.keys.pool.f32()[row * 4 + c]);
          sum += 0.5 * static_cast<double>(p.weights.f32()[t * p.weights.step(0) + h]) * std::max(0.0, 0.5 * product);
        }
        score.push_back(sum);
        EXPECT_EQ(static_cast<double>(p.scores.f32()[t * p.scores.step(0) + pool]), sum);
      }
      std::vector<int32_t> want;
      for (size_t i = 0; i < score.size(); ++i) {
        int64_t better = 0;
        for (size_t j = 0; j < score.size(); ++j)
          better += score[j] > score[i] || (score[j] == score[i] && j < i) ? 1 : 0, ties += j < i && score[j] == score[i] ? 1 : 0;
        if (better < most) want.push_back(static_cast<int32_t>(i));
      }
      const int32_t* const row = p.selection.i32() + t * p.selection.step(0);
      EXPECT_EQ(std::vector<int32_t>(row, row + most), want) << "row " << t;
    }
  }
  EXPECT_GT(ties, 20) << "the case is about ties";
}

}  // namespace
}  // namespace lathe::conformance
