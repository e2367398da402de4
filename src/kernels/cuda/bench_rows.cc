// cuda_bench: norms, hyper-connections and sparse latent attention at the published sizes. Their floor is bytes that must move over bandwidth: copy for what is
// read and written, read for the attention.

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/args.h"
#include "kernels/cuda/bench.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int64_t kHidden = 4096;
constexpr int kStreams = 4;
constexpr int64_t kPoolFloats = int64_t{96} << 20;  // of inputs that launches go through: six times the L2

/// Launches that go through `floats_each` of the pool each.
int sets_of(int64_t floats_each) { return static_cast<int>(std::clamp<int64_t>(kPoolFloats / floats_each, 1, 48)); }

void line(const char* name, int tokens, double us, double bytes, double gbs) {
  report(fmt::format("rows/{}", name), fmt::format("T={}", tokens), us, bytes, gbs);
  std::printf("%-12s T=%-4d %8.1f us, %3.0f%% of the floor\n", name, tokens, us, bytes / us / 10 / gbs);
}

void norm_rows(const float* pool, float* out, int tokens) {
  const Memory weight = floats(kHidden, 0.5f, 1.5f);
  const int64_t each = tokens * kHidden;
  const double us = measure(sets_of(each), [&](int i) {
    launch_rms_norm({.x = {const_cast<float*>(pool) + i * each, kHidden},
                     .weight = {weight.as<void>(), Type::kF32},
                     .bias = {nullptr, Type::kF32},
                     .eps = 1e-5f,
                     .out = {out, kHidden},
                     .tokens = tokens,
                     .width = static_cast<int>(kHidden)},
                    bench.stream);
  });
  line("rms_norm", tokens, us, static_cast<double>(each) * 8, bench.copy_gbs);
}

void hyper_connections(float* pool, float* out, int tokens) {
  constexpr int kOutputs = 2 * kStreams + kStreams * kStreams;
  constexpr int64_t kWide = kStreams * kHidden;
  const Memory fn(kOutputs * kWide * 2);
  launch_fill(fn.as<void>(), Content::kBF16, -0.02f, 0.02f, kOutputs * kWide, bench.seed++, bench.stream);
  const Memory base = floats(kOutputs, -0.1f, 0.1f), scale = floats(3, 0.1f, 0.2f);
  const Memory x(tokens * kHidden * 4), post(tokens * kStreams * 4), comb(tokens * kStreams * kStreams * 4);
  const int64_t each = tokens * kWide;
  const auto streams_of = [&](int i) { return Planes{pool + i * each, kWide, kHidden}; };
  const Matrix matrix{.values = fn.as<void>(),
                      .stride = kWide,
                      .scales = nullptr,
                      .scale_stride = 0,
                      .rows = kOutputs,
                      .cols = static_cast<int>(kWide),
                      .block_rows = 1,
                      .block_cols = 1,
                      .row_offset = 0,
                      .col_offset = 0,
                      .type = Type::kBF16};
  const auto args_of = [&](int i) {
    return MhcInArgs{.streams = streams_of(i),
                     .fn = matrix,
                     .base = {base.as<void>(), Type::kF32},
                     .scale = {scale.as<void>(), Type::kF32},
                     .eps = 1e-5f,
                     .hc_eps = 1e-6f,
                     .iterations = 20,
                     .x = {x.as(), kHidden},
                     .post = {post.as(), kStreams},
                     .comb = {comb.as(), kStreams * kStreams},
                     .tokens = tokens,
                     .count = kStreams,
                     .width = static_cast<int>(kHidden)};
  };
  const Memory parts(mhc_parts_bytes(args_of(0)));
  const double in = measure(sets_of(each), [&](int i) { launch_mhc_in_parts(args_of(i), parts.as(), bench.stream); });
  line("mhc_in", tokens, in, static_cast<double>(each) * 4 + static_cast<double>(tokens * kHidden) * 4 + kOutputs * kWide * 2, bench.copy_gbs);
  const double back = measure(sets_of(each), [&](int i) {
    launch_mhc_out({.streams = streams_of(i),
                    .y = {x.as(), kHidden},
                    .post = {post.as(), kStreams},
                    .comb = {comb.as(), kStreams * kStreams},
                    .out = {out, kWide, kHidden},
                    .tokens = tokens,
                    .count = kStreams,
                    .width = static_cast<int>(kHidden)},
                   bench.stream);
  });
  line("mhc_out", tokens, back, static_cast<double>(each) * 8 + static_cast<double>(tokens * kHidden) * 4, bench.copy_gbs);
}

/// One row a sequence at position 8191 of its own context, 512 pools of four tokens chosen, latents in BF16. Launches go through 64 sequences.
void attention(int tokens) {
  constexpr int kHeads = 64;
  constexpr int kLatent = 512;
  constexpr int kContext = 8192;
  constexpr int kChosen = 512;
  constexpr int kPool = 4;
  constexpr int kBlockRows = 64;
  const Memory q = floats(int64_t{tokens} * kHeads * kLatent, -1, 1), out(int64_t{tokens} * kHeads * kLatent * 4);
  constexpr int kSequences = 64;
  const Memory latents(int64_t{kSequences} * kContext * kLatent * 2);
  launch_fill(latents.as<void>(), Content::kBF16, -1, 1, int64_t{kSequences} * kContext * kLatent, bench.seed++, bench.stream);
  std::vector<int32_t> table, pools, begin, start;
  for (int b = 0; b < kSequences * (kContext / kBlockRows); ++b) table.push_back(b);
  for (int s = 0; s < tokens; ++s) {
    for (int i = 0; i < kChosen; ++i) pools.push_back(i * (kContext / kPool / kChosen) + (i * 7 + s) % 4);
    begin.push_back(s), start.push_back(kContext - 1);
  }
  begin.push_back(tokens);
  const Memory table_memory = integers(table), pools_memory = integers(pools), begin_memory = integers(begin), start_memory = integers(start);
  const AttendArgs args{.q = {q.as(), kHeads * kLatent, kLatent},
                        .latents = {.pool = latents.as<void>(),
                                    .scales = nullptr,
                                    .scale_stride = 0,
                                    .row_stride = kLatent,
                                    .table = table_memory.as<int32_t>(),
                                    .table_stride = kContext / kBlockRows,
                                    .block_rows = kBlockRows,
                                    .type = Type::kBF16},
                        .pools = pools_memory.as<int32_t>(),
                        .pools_stride = kChosen,
                        .pools_max = kChosen,
                        .kpool = kPool,
                        .tail_begin = nullptr,
                        .batch = {begin_memory.as<int32_t>(), start_memory.as<int32_t>(), tokens, tokens},
                        .scale = 0.07f,
                        .out = {out.as(), kHeads * kLatent, kLatent},
                        .row_max = {nullptr, 0},
                        .row_sum = {nullptr, 0},
                        .heads = kHeads,
                        .latent = kLatent,
                        .tail_over = -1};
  const Memory scratch(tokens * attend_row_bytes(args));
  const AttendParts parts = attend_parts(args, scratch.as<void>(), tokens);
  const double bytes = static_cast<double>(tokens) * (kChosen * kPool * kLatent * 2 + 2.0 * kHeads * kLatent * 4);
  launch_mla_attend(args, bench.stream);
  const std::vector<float> expected = on_host(out.as(), int64_t{tokens} * kHeads * kLatent);
  const int sets = kSequences / tokens;
  const auto table_of = [&](int i) { return table_memory.as<int32_t>() + int64_t{i % sets} * tokens * (kContext / kBlockRows); };
  line("attend plain", tokens, measure(2, [&](int) { launch_mla_attend(args, bench.stream); }), bytes, bench.read_gbs);
  for (const auto& [name, rung] :
       {std::pair{"attend parts", AttendRung::kAuto}, std::pair{"  few", AttendRung::kFew}, std::pair{"  many", AttendRung::kMany}}) {
    if (rung == AttendRung::kFew && tokens > 16) continue;
    const double us = measure(std::max(sets, 8), [&](int i) {
      AttendParts one = parts;
      one.attend.latents.table = table_of(i);
      launch_mla_attend_parts(one, rung, bench.stream);
    });
    const double sums = measure(8, [&](int) { launch_attend_sums(parts, rung, bench.stream); });
    line(name, tokens, us, bytes, bench.read_gbs);
    BENCH_CUDA(cudaMemsetAsync(out.as<void>(), 0xFF, static_cast<size_t>(tokens) * kHeads * kLatent * 4, bench.stream));
    launch_mla_attend_parts(parts, rung, bench.stream);
    std::printf("  the second pass alone %.1f us; against plain %.1e\n", sums,
                difference(on_host(out.as(), int64_t{tokens} * kHeads * kLatent), expected));
  }
}

}  // namespace

void rows() {
  const Memory pool = floats(kPoolFloats, -1, 1);
  const Memory out(int64_t{512} * kStreams * kHidden * 4);
  std::printf("norms, hyper-connections (4 streams of 4096), latent attention (64 heads, 2048 of 8192 tokens of 512 in BF16)\n");
  for (const int tokens : {1, 64, 512}) {
    norm_rows(pool.as(), out.as(), tokens);
    hyper_connections(pool.as(), out.as(), tokens);
  }
  for (const int tokens : {1, 16, 64}) attention(tokens);
}

}  // namespace lathe::kernels::cuda
