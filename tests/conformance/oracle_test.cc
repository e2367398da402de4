// The reference against a second writing of the formulas: products, norms, hyper-connections, experts, vision.

#include <gtest/gtest.h>

#include "oracle.h"
#include "tensor/shard.h"

namespace lathe::conformance {
namespace {

using namespace lathe::ops;  // NOLINT(google-build-using-namespace): a test of that namespace

size_t size(int64_t n) { return static_cast<size_t>(n); }

TEST(Oracle, ProductOfASliceThatBeginsInsideAScaleBlock) {
  Problem b;
  auto& p = b.make<MatmulParams>();
  MatrixView parent = b.matrix({.dtype = DType::kF8E4M3, .scaled = true}, 200, 300);
  const Values whole = dense(parent);
  p.x = b.in(DType::kF32, {3, 150});
  p.parts[0].weight = tensor::slice_matrix(parent, {70, 190}, {100, 250});
  p.parts[0].y = b.out(DType::kF32, {3, 120});
  p.part_count = 1;
  run_reference(b);
  const Values x = values(p.x);
  Values want(3 * 120);
  for (size_t t = 0; t < 3; ++t) {
    for (size_t n = 0; n < 120; ++n) {
      for (size_t c = 0; c < 150; ++c) want[t * 120 + n] += x[t * 150 + c] * whole[(70 + n) * 300 + 100 + c];
    }
  }
  EXPECT_LT(distance(values(p.parts[0].y), want), 1e-7);
}

/// One shard of a product with 7 leaves of 32 channels: partial rows of its cover.
View shard_partials(Problem& b, const View& x, const MatrixView& weight, int64_t lo, int64_t hi) {
  auto& p = b.make<MatmulParams>();
  p.x = x.slice(1, lo * 32, std::min<int64_t>(hi * 32, 210));
  MatmulPart& part = p.parts[0];
  part.weight = tensor::slice_matrix(weight, {0, 9}, {lo * 32, std::min<int64_t>(hi * 32, 210)});
  part.leaf_channels = 32, part.leaf_begin = lo, part.leaf_total = 7;
  part.y = b.out(DType::kF32, {static_cast<int64_t>(tensor::tree_cover(7, lo, hi).size()), 4, 9});
  p.part_count = 1;
  EXPECT_TRUE(validate(p).has_value());
  run_reference(b);
  return part.y;
}

TEST(Oracle, ShardsOfAProductCombineToTheBitsOfTheWhole) {
  Problem whole;
  auto& p = whole.make<MatmulParams>();
  p.x = whole.in(DType::kF32, {4, 210});
  p.parts[0].weight = whole.matrix({.dtype = DType::kBF16}, 9, 210);
  p.parts[0].leaf_channels = 32, p.parts[0].leaf_total = 7;
  p.parts[0].y = whole.out(DType::kF32, {4, 9});
  p.part_count = 1;
  run_reference(whole);
  for (const std::vector<int64_t>& cut : {std::vector<int64_t>{0, 4, 7}, {0, 2, 3, 7}, {0, 1, 1, 5, 6, 7}}) {
    std::vector<std::unique_ptr<Problem>> shards;
    std::vector<tensor::TreeNode> nodes;
    std::vector<View> partials;
    for (size_t i = 0; i + 1 < cut.size(); ++i) {
      const View y = shard_partials(*shards.emplace_back(std::make_unique<Problem>()), p.x, p.parts[0].weight, cut[i], cut[i + 1]);
      size_t n = 0;
      for (const tensor::TreeNode& node : tensor::tree_cover(7, cut[i], cut[i + 1]))
        nodes.push_back(node), partials.push_back(y.slice(0, static_cast<int64_t>(n), static_cast<int64_t>(n) + 1)), ++n;
    }
    for (int64_t t = 0; t < 4; ++t) {
      std::vector<const float*> rows;
      for (const View& view : partials) rows.push_back(view.f32() + t * 9);
      std::vector<float> sum(9);
      tensor::tree_combine({7, nodes, rows.data(), 9}, sum.data());
      for (size_t n = 0; n < 9; ++n) EXPECT_EQ(sum[n], p.parts[0].y.f32()[size(t) * 9 + n]);
    }
  }
}

TEST(Oracle, FastModeRoundsActivationsOnly) {
  for (const char* name : {"fast_bf16_5x200x33", "fast_fp8_3x200x130", "fast_fp8_inside"}) {
    const auto b = named(OpId::kMatmul, name);
    auto& p = b->get<MatmulParams>();
    run_reference(*b);
    Values x = values(p.x);
    for (double& v : x) v = static_cast<double>(tensor::bf16_to_float(tensor::float_to_bf16(static_cast<float>(v))));
    const MatmulPart& part = p.parts[0];
    Values want = multiply(x, dense(part.weight), size(p.x.dim(0)), size(p.x.dim(1)), size(part.weight.rows()), true);
    if (part.bias.present()) {
      const Values bias = values(part.bias);
      for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i % bias.size()];
    }
    EXPECT_LT(distance(values(part.y), want), 2e-7) << name;
  }
}

TEST(Oracle, Norms) {
  Problem b;
  auto& p = b.make<RmsNormParams>();
  p.x = b.in(DType::kF32, {1, 2}), p.weight = b.in(DType::kF32, {2}, cases::constant(2)), p.out = b.out(DType::kF32, {1, 2});
  p.x.f32()[0] = 3, p.x.f32()[1] = 4;
  run_reference(b);
  EXPECT_FLOAT_EQ(p.out.f32()[0], static_cast<float>(6 / std::sqrt(12.5)));
  const auto n = named(OpId::kLayerNorm, "far_mean");
  auto& l = n->get<LayerNormParams>();
  run_reference(*n);
  const Values x = values(l.x), w = values(l.weight), bias = values(l.bias), y = values(l.out);
  const size_t d = w.size();
  for (size_t t = 0; t < 3; ++t) {
    double mean = 0, square = 0;
    for (size_t c = 0; c < d; ++c) mean += x[t * d + c] / static_cast<double>(d);
    for (size_t c = 0; c < d; ++c) square += (x[t * d + c] - mean) * (x[t * d + c] - mean) / static_cast<double>(d);
    for (size_t c = 0; c < d; ++c) EXPECT_NEAR(y[t * d + c], (x[t * d + c] - mean) / std::sqrt(square + 1e-5) * w[c] + bias[c], 1e-6);
  }
}

TEST(Oracle, GeluAndSwigluAtKnownPoints) {
  Problem b;
  auto& p = b.make<GeluParams>();
  p.x = b.in(DType::kF32, {1, 3}), p.out = b.out(DType::kF32, {1, 3});
  p.x.f32()[0] = 1, p.x.f32()[1] = -2, p.x.f32()[2] = 0;
  run_reference(b);
  EXPECT_NEAR(static_cast<double>(p.out.f32()[0]), 0.8413447460685429, 1e-7);
  EXPECT_NEAR(static_cast<double>(p.out.f32()[1]), -0.04550026389635842, 1e-8);
  EXPECT_EQ(p.out.f32()[2], 0);
  Problem s;
  auto& q = s.make<SwigluParams>();
  q.gate = s.in(DType::kF32, {1, 4}), q.up = s.in(DType::kF32, {1, 4}), q.out = s.out(DType::kF32, {1, 4}), q.limit = 2;
  const float gate[] = {5, -5, 1, 1}, up[] = {1, 1, -7, 7};
  std::copy_n(gate, 4, q.gate.f32()), std::copy_n(up, 4, q.up.f32());
  run_reference(s);
  EXPECT_NEAR(static_cast<double>(q.out.f32()[0]), 2 * logistic(2), 1e-6) << "the gate is clipped above";
  EXPECT_NEAR(static_cast<double>(q.out.f32()[1]), -5 * logistic(-5), 1e-7) << "and only above";
  EXPECT_NEAR(static_cast<double>(q.out.f32()[2]), -2 * logistic(1), 1e-6);
  EXPECT_NEAR(static_cast<double>(q.out.f32()[3]), 2 * logistic(1), 1e-6);
}

/// Spec §2.2 for one token, written with matrices: returns {x, post, comb}.
std::array<Values, 3> hyper_in(const MhcInParams& p, size_t t) {
  const size_t s = size(p.streams.dim(1)), d = size(p.streams.dim(2)), n = s * d;
  const Values all = values(p.streams), fn = dense(p.fn), base = values(p.base), scale = values(p.scale);
  const Values f(all.begin() + static_cast<int64_t>(t * n), all.begin() + static_cast<int64_t>((t + 1) * n));
  double square = 0;
  for (const double v : f) square += v * v / static_cast<double>(n);
  Values r = f;
  for (double& v : r) v /= std::sqrt(square + static_cast<double>(p.eps));
  const Values m = multiply(fn, r, s * (s + 2), n, 1);
  const double eps = static_cast<double>(p.hc_eps);
  Values pre(s), post(s), comb(s * s);
  for (size_t i = 0; i < s; ++i) pre[i] = logistic(m[i] * scale[0] + base[i]) + eps, post[i] = 2 * logistic(m[s + i] * scale[1] + base[s + i]);
  for (size_t a = 0; a < s; ++a) {
    double sum = 0;
    for (size_t o = 0; o < s; ++o) sum += std::exp(m[2 * s + s * a + o] * scale[2] + base[2 * s + s * a + o]);
    for (size_t o = 0; o < s; ++o) comb[a * s + o] = std::exp(m[2 * s + s * a + o] * scale[2] + base[2 * s + s * a + o]) / sum + eps;
  }
  const auto columns = [&] {
    for (size_t o = 0; o < s; ++o) {
      double sum = eps;
      for (size_t a = 0; a < s; ++a) sum += comb[a * s + o];
      for (size_t a = 0; a < s; ++a) comb[a * s + o] /= sum;
    }
  };
  const auto rows = [&] {
    for (size_t a = 0; a < s; ++a) {
      double sum = eps;
      for (size_t o = 0; o < s; ++o) sum += comb[a * s + o];
      for (size_t o = 0; o < s; ++o) comb[a * s + o] /= sum;
    }
  };
  columns();
  for (int32_t i = 1; i < p.iterations; ++i) rows(), columns();
  return {multiply(pre, f, 1, s, d), post, comb};
}

TEST(Oracle, HyperConnections) {
  for (const char* name : {"s4_width_96", "s2_f32_one_iteration", "s3_odd", "s4_identical"}) {
    const auto b = named(OpId::kMhcIn, name);
    auto& p = b->get<MhcInParams>();
    run_reference(*b);
    for (int64_t t = 0; t < p.x.dim(0); ++t) {
      const auto [x, post, comb] = hyper_in(p, size(t));
      EXPECT_LT(distance(values(p.x.slice(0, t, t + 1)), x), 1e-6) << name;
      EXPECT_LT(distance(values(p.post.slice(0, t, t + 1)), post), 1e-6) << name;
      EXPECT_LT(distance(values(p.comb.slice(0, t, t + 1)), comb), 1e-6) << name;
    }
  }
  const auto b = named(OpId::kMhcOut, "s4_width_100");
  auto& p = b->get<MhcOutParams>();
  run_reference(*b);
  const Values x = values(p.streams), y = values(p.y), post = values(p.post), comb = values(p.comb), got = values(p.out);
  for (size_t t = 0; t < 5; ++t) {
    for (size_t o = 0; o < 4; ++o) {
      for (size_t d = 0; d < 100; ++d) {
        double want = post[t * 4 + o] * y[t * 100 + d];
        for (size_t a = 0; a < 4; ++a) want += comb[t * 16 + a * 4 + o] * x[(t * 4 + a) * 100 + d];
        EXPECT_NEAR(got[(t * 4 + o) * 100 + d], want, 1e-6);
      }
    }
  }
}

TEST(Oracle, RouteByCountingBetterExperts) {
  for (const char* name : {"e8_k2", "e288_k8", "ties", "e13_k13", "unnormalised"}) {
    const auto b = named(OpId::kRoute, name);
    auto& p = b->get<RouteParams>();
    run_reference(*b);
    const size_t experts = size(p.logits.dim(1)), k = size(p.ids.dim(1));
    const Values logits = values(p.logits), bias = values(p.bias);
    for (size_t t = 0; t < size(p.logits.dim(0)); ++t) {
      std::vector<int32_t> chosen;
      double sum = 1e-20;
      for (size_t e = 0; e < experts; ++e) {
        size_t better = 0;
        const double mine = logistic(logits[t * experts + e]) + bias[e];
        for (size_t o = 0; o < experts; ++o) {
          const double other = logistic(logits[t * experts + o]) + bias[o];
          better += other > mine || (other == mine && o < e) ? 1 : 0;
        }
        if (better < k) chosen.push_back(static_cast<int32_t>(e)), sum += logistic(logits[t * experts + e]);
      }
      ASSERT_EQ(chosen.size(), k);
      for (size_t i = 0; i < k; ++i) {
        EXPECT_EQ(p.ids.i32()[size(p.ids.step(0)) * t + i], chosen[i]) << name;
        const double want = 2.5 * logistic(logits[t * experts + size(chosen[i])]) / (p.normalise ? sum : 1);
        EXPECT_NEAR(static_cast<double>(p.weights.f32()[size(p.weights.step(0)) * t + i]), want, 1e-6) << name;
      }
    }
  }
}

/// w · down(swiglu(gate x, up x)) of one row and expert, in double.
Values expert(const MoeParams& p, const Values& x, int32_t e) {
  const size_t width = x.size(), inner = size(p.gate.items[0].rows());
  const Values gate = multiply(dense(p.gate.items[e]), x, inner, width, 1);
  const Values up = multiply(dense(p.up.items[e]), x, inner, width, 1);
  Values hidden(inner);
  const double limit = static_cast<double>(p.limit);
  for (size_t i = 0; i < inner; ++i) {
    const double g = std::min(gate[i], limit);
    hidden[i] = g * logistic(g) * std::clamp(up[i], -limit, limit);
  }
  return multiply(dense(p.down.items[e]), hidden, width, inner, 1);
}

TEST(Oracle, ExpertsAndTheirShards) {
  const auto b = named(OpId::kMoe, "bf16_e8_k2");
  auto& p = b->get<MoeParams>();
  run_reference(*b);
  const size_t width = size(p.x.dim(1));
  Values want;
  for (int64_t t = 0; t < p.x.dim(0); ++t) {
    Values y(width);
    for (int64_t i = 0; i < 2; ++i) {
      const Values part = expert(p, values(p.x.slice(0, t, t + 1)), p.ids.i32()[t * 2 + i]);
      for (size_t d = 0; d < width; ++d) y[d] += static_cast<double>(p.weights.f32()[t * 2 + i]) * part[d];
    }
    want.insert(want.end(), y.begin(), y.end());
  }
  EXPECT_LT(distance(values(p.y), want), 1e-6);
  // Three uneven ranks, one of them empty, give the bits of the root.
  std::vector<tensor::TreeNode> nodes;
  std::vector<View> partials, present;
  Problem memory;
  const std::vector<int32_t> cut = {0, 3, 3, 8};
  for (size_t r = 0; r + 1 < cut.size(); ++r) {
    MoeParams q = p;
    const int32_t count = cut[r + 1] - cut[r];
    q.expert_begin = cut[r];
    for (MatrixStack* stack : {&q.gate, &q.up, &q.down}) stack->items += cut[r], stack->count = count;
    const auto cover = tensor::tree_cover(8, cut[r], cut[r + 1]);
    q.y = memory.out(DType::kF32, {static_cast<int64_t>(cover.size()), p.x.dim(0), p.x.dim(1)});
    q.present = memory.out(DType::kI32, {static_cast<int64_t>(cover.size()), p.x.dim(0)});
    ASSERT_TRUE(validate(q).has_value()) << validate(q).error().message;
    for (const Variant& variant : kernels::ref::reference_variants()) {
      if (variant.op == OpId::kMoe) variant.run(&q, {});
    }
    for (size_t n = 0; n < cover.size(); ++n)
      nodes.push_back(cover[n]), partials.push_back(q.y.at(static_cast<int64_t>(n))), present.push_back(q.present.at(static_cast<int64_t>(n)));
  }
  for (int64_t t = 0; t < p.x.dim(0); ++t) {
    std::vector<tensor::TreeNode> there;
    std::vector<const float*> rows;
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (present[n].i32()[t] != 0) there.push_back(nodes[n]), rows.push_back(partials[n].f32() + t * partials[n].step(0));
    }
    std::vector<float> sum(width);
    tensor::tree_combine({8, there, rows.data(), p.x.dim(1)}, sum.data());
    for (size_t d = 0; d < width; ++d) EXPECT_EQ(sum[d], p.y.f32()[t * p.y.step(0) + static_cast<int64_t>(d)]);
  }
}

TEST(Oracle, RotaryEmbeddingSeesDifferencesOnly) {
  // Two tokens with the same q and k: the product of rotated vectors depends on the distance alone.
  const auto product = [](int32_t row_q, int32_t col_q, int32_t row_k, int32_t col_k) {
    Problem b;
    auto& p = b.make<VisionRopeParams>();
    p.qkv = b.inout(DType::kF32, {2, 3, 1, 16});
    std::copy_n(p.qkv.f32(), 48, p.qkv.f32() + 48);
    p.q_norm = b.in(DType::kF32, {16}, cases::uniform(0.5, 1.5)), p.k_norm = b.in(DType::kF32, {16}, cases::uniform(0.5, 1.5));
    p.positions = b.indices({row_q, col_q, row_k, col_k}, {2, 2});
    run_reference(b);
    double sum = 0;
    for (int64_t d = 0; d < 16; ++d) sum += static_cast<double>(p.qkv.f32()[d]) * static_cast<double>(p.qkv.f32()[48 + 16 + d]);
    return sum;
  };
  EXPECT_NEAR(product(3, 7, 1, 2), product(13, 10, 11, 5), 1e-5);
  EXPECT_GT(std::abs(product(3, 7, 1, 2) - product(3, 7, 2, 2)), 1e-3) << "rows matter";
  EXPECT_GT(std::abs(product(3, 7, 1, 2) - product(3, 7, 1, 3)), 1e-3) << "columns matter";
}

TEST(Oracle, VisionAttention) {
  const auto b = named(OpId::kVisionAttend, "h3_20_three");
  auto& p = b->get<VisionAttendParams>();
  run_reference(*b);
  const int32_t* const border = p.segment_begin.i32();
  const auto at = [&](int64_t t, int64_t part, int64_t h, int64_t d) {
    return static_cast<double>(p.qkv.f32()[t * p.qkv.step(0) + (part * 3 + h) * 20 + d]);
  };
  for (int64_t s = 0; s < 4; ++s) {
    for (int64_t t = border[s]; t < border[s + 1]; ++t) {
      for (int64_t h = 0; h < 3; ++h) {
        Values o(20);
        double sum = 0;
        for (int64_t j = border[s]; j < border[s + 1]; ++j) {
          double score = 0;
          for (int64_t d = 0; d < 20; ++d) score += at(t, 0, h, d) * at(j, 1, h, d);
          const double weight = std::exp(score / std::sqrt(20.0));
          sum += weight;
          for (int64_t d = 0; d < 20; ++d) o[size(d)] += weight * at(j, 2, h, d);
        }
        for (int64_t d = 0; d < 20; ++d) EXPECT_NEAR(static_cast<double>(p.out.f32()[t * p.out.step(0) + h * 20 + d]), o[size(d)] / sum, 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace lathe::conformance
