// cuda_bench: the recurrence of KDA and its whole step.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda/args.h"
#include "kernels/cuda/bench.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int64_t kHeads = 64;
constexpr int64_t kWidth = 128;
/// Of a channel in the whole step, beside the state: raw, ring (three rows read, one written), a, gate and the output.
constexpr int kStepFloats = 3 + 9 + 3 + 3;
constexpr int64_t kStateFloats = kHeads * kWidth * kWidth;

/// Everything that a decode step of a KDA layer needs for up to `batch` sequences.
struct KdaData {
  explicit KdaData(int64_t batch, int64_t heads = kHeads)
      : q(floats(batch * heads * kWidth, -1, 1)),
        k(floats(batch * heads * kWidth, -1, 1)),
        v(floats(batch * heads * kWidth, -1, 1)),
        g(floats(batch * heads * kWidth, -1, 0)),
        beta(floats(batch * heads, 0, 1)),
        o(batch * heads * kWidth * 4),
        raw(floats(batch * 3 * heads * kWidth, -1, 1)),
        conv(floats(3 * heads * kWidth * 4, -0.5f, 0.5f)),
        ring(floats((batch + 1) * 3 * 3 * heads * kWidth, -1, 1)),
        a(floats(batch * heads * kWidth, -2, 2)),
        b(floats(batch * heads, -2, 2)),
        a_log(floats(heads, -1, 1)),
        dt_bias(floats(heads * kWidth, -1, 1)),
        gate(floats(batch * heads * kWidth, -2, 2)),
        norm(floats(kWidth, 0.5f, 1.5f)),
        out(batch * heads * kWidth * 4) {}
  Memory q, k, v, g, beta, o, raw, conv, ring, a, b, a_log, dt_bias, gate, norm, out;
};

/// For each launch of a graph: which rows of the pool its sequences have.
struct Launches {
  Launches(int64_t batch, int64_t slots) : count(static_cast<int>(std::clamp<int64_t>(slots / batch, 2, 64))) {
    std::vector<int32_t> rows, begins, zeros;
    for (int64_t i = 0; i < count * batch; ++i) rows.push_back(static_cast<int32_t>(i * 7919 % slots));  // a prime: all different, not in order
    for (int64_t s = 0; s <= batch; ++s) begins.push_back(static_cast<int32_t>(s)), zeros.push_back(static_cast<int32_t>(s < batch ? s : 0));
    rows_memory = integers(rows), begin = integers(begins), slot = integers(zeros);
    std::vector<int32_t> starts(static_cast<size_t>(batch), 1000);
    start = integers(starts);
  }
  int count;
  Memory rows_memory{4}, begin{4}, start{4}, slot{4};
};

void kda_row(int64_t batch, const KdaData& data, float* pool, int64_t slots, std::string& table) {
  const Launches launches(batch, slots);
  const auto args = [&](int i) {
    const int32_t* const rows = launches.rows_memory.as<int32_t>() + i * batch;
    const int64_t stride = kHeads * kWidth;
    return RecurrenceArgs{
        .q = {data.q.as(), stride, kWidth},
        .k = {data.k.as(), stride, kWidth},
        .v = {data.v.as(), stride, kWidth},
        .g = {data.g.as(), stride},
        .beta = {data.beta.as(), kHeads},
        .entering = pool,
        .entering_stride = kStateFloats,
        .state_in = rows,
        .states = pool,
        .states_stride = kStateFloats,
        .state_out = rows,
        .batch = {launches.begin.as<int32_t>(), launches.start.as<int32_t>(), static_cast<int32_t>(batch), static_cast<int32_t>(batch)},
        .o = {data.o.as(), stride, kWidth},
        .pair_m = nullptr,
        .pair_h = nullptr,
        .pair_m_stride = 0,
        .pair_h_stride = 0,
        .heads = kHeads,
        .keys = kWidth,
        .values = kWidth};
  };
  const double state_bytes = static_cast<double>(batch) * kStateFloats * 8;
  const double step_bytes = state_bytes + static_cast<double>(batch * kHeads * kWidth) * kStepFloats * 4;
  table += fmt::format("{:>5}", batch);
  const auto add = [&](const char* name, double bytes, const std::function<void(int)>& launch) {
    const double us = measure(launches.count, launch);
    report(std::string("kda_decode/") + name, fmt::format("B={}", batch), us, bytes, bench.in_place_gbs);
    table += fmt::format("{:>9.1f} {:>3.0f}%", us, bytes / us / 10 / bench.in_place_gbs);
  };
  const std::vector<std::pair<const char*, KdaRung>> rungs = {
      {"columns", KdaRung::kColumns}, {"tiles32_late", KdaRung::kTiles32Late}, {"tiles32", KdaRung::kTiles32}, {"tiles16", KdaRung::kTiles16},
      {"head", KdaRung::kHead},       {"single32", KdaRung::kTiles32Single},   {"stream", KdaRung::kStream}};
  for (const auto& [name, rung] : rungs) add(name, state_bytes, [&, rung = rung](int i) { launch_recurrence_128(args(i), rung, bench.stream); });
  const auto step = [&](int i) {
    const RecurrenceArgs r = args(i);
    const int64_t channels = 3 * kHeads * kWidth;
    return KdaStepArgs{.raw = {data.raw.as(), channels},
                       .conv = data.conv.as(),
                       .ring = data.ring.as(),
                       .ring_slot = 3 * channels,
                       .ring_row = channels,
                       .ring_rows = 3,
                       .slot = launches.slot.as<int32_t>(),
                       .start = launches.start.as<int32_t>(),
                       .a = {data.a.as(), kHeads * kWidth},
                       .b = {data.b.as(), kHeads},
                       .a_log = {data.a_log.as<void>(), Type::kF32},
                       .dt_bias = {data.dt_bias.as<void>(), Type::kF32},
                       .lower_bound = -5,
                       .states = pool,
                       .states_stride = kStateFloats,
                       .state_in = r.state_in,
                       .state_out = r.state_out,
                       .gate = {data.gate.as(), kHeads * kWidth},
                       .norm_weight = {data.norm.as<void>(), Type::kF32},
                       .eps = 1e-5f,
                       .out = {data.out.as(), kHeads * kWidth},
                       .sequences = static_cast<int32_t>(batch),
                       .heads = kHeads};
  };
  add("step", step_bytes, [&](int i) { launch_kda_step(step(i), bench.stream); });
  add("step_stream", step_bytes, [&](int i) { launch_kda_step_stream(step(i), bench.stream); });
  table += "\n";
}

}  // namespace

void kda_decode() {
  constexpr int64_t kSlots = 1031;  // a prime
  const Memory pool = floats(kSlots * kStateFloats, -0.1f, 0.1f);
  const KdaData data(512);
  std::string table;
  for (const int64_t batch : {1, 8, 32, 64, 128, 256, 512}) kda_row(batch, data, pool.as(), kSlots, table);
  std::printf(
      "KDA decode, us and %% of in-place bandwidth (64 heads, FP32 state); step: conv, gates, norms, recurrence, output norm in one, of all its "
      "bytes\n    B      "
      "columns   tiles32late       tiles32       tiles16          head      single32        stream          step   step_stream\n%s",
      table.c_str());
}

namespace {

/// The step in one launch against the four ops one after the other.
bool check_step(const char* name, void (*launch)(const KdaStepArgs&, void*)) {
  constexpr int64_t kH = 3;
  constexpr int64_t kC = kH * kWidth;
  constexpr int64_t kState = kH * kWidth * kWidth;
  const std::vector<int32_t> starts = {0, 1, 2, 3, 1000};
  const auto batch = static_cast<int64_t>(starts.size());
  const KdaData d(batch, kH);
  const Memory states = floats((2 * batch) * kState, -0.3f, 0.3f);
  const Memory ring_two((batch + 1) * 9 * kC * 4), states_two(2 * batch * kState * 4), mixed(batch * 3 * kC * 4), g(batch * kC * 4),
      beta(batch * kH * 4), o(batch * kC * 4), out(batch * kC * 4);
  BENCH_CUDA(
      cudaMemcpyAsync(ring_two.as<void>(), d.ring.as<void>(), static_cast<size_t>((batch + 1) * 9 * kC * 4), cudaMemcpyDeviceToDevice, bench.stream));
  BENCH_CUDA(
      cudaMemcpyAsync(states_two.as<void>(), states.as<void>(), static_cast<size_t>(2 * batch * kState * 4), cudaMemcpyDeviceToDevice, bench.stream));
  const Memory start = integers(starts), slot = integers({3, 0, 5, 1, 2}), begin = integers({0, 1, 2, 3, 4, 5}), in = integers({0, -1, 2, 3, 4}),
               to = integers({5, 6, 2, -1, 9});
  const auto n = static_cast<int32_t>(batch);
  const Batch ragged{begin.as<int32_t>(), start.as<int32_t>(), n, n};
  const Vector a_log{d.a_log.as<void>(), Type::kF32}, dt_bias{d.dt_bias.as<void>(), Type::kF32}, norm{d.norm.as<void>(), Type::kF32};
  launch({.raw = {d.raw.as(), 3 * kC},
          .conv = d.conv.as(),
          .ring = d.ring.as(),
          .ring_slot = 9 * kC,
          .ring_row = 3 * kC,
          .ring_rows = 3,
          .slot = slot.as<int32_t>(),
          .start = start.as<int32_t>(),
          .a = {d.a.as(), kC},
          .b = {d.b.as(), kH},
          .a_log = a_log,
          .dt_bias = dt_bias,
          .lower_bound = -5,
          .states = states.as(),
          .states_stride = kState,
          .state_in = in.as<int32_t>(),
          .state_out = to.as<int32_t>(),
          .gate = {d.gate.as(), kC},
          .norm_weight = norm,
          .eps = 1e-5f,
          .out = {d.out.as(), kC},
          .sequences = n,
          .heads = kH},
         bench.stream);
  launch_short_conv({.x = {d.raw.as(), 3 * kC},
                     .weight = {d.conv.as<void>(), Type::kF32},
                     .weight_stride = 3 * kC,
                     .ring = ring_two.as<void>(),
                     .ring_type = Type::kF32,
                     .ring_slot = 9 * kC,
                     .ring_row = 3 * kC,
                     .slot = slot.as<int32_t>(),
                     .batch = ragged,
                     .out = {mixed.as(), 3 * kC},
                     .channels = 3 * kC,
                     .taps = 4,
                     .ring_rows = 3},
                    bench.stream);
  launch_kda_gate({.a = {d.a.as(), kC},
                   .b = {d.b.as(), kH},
                   .a_log = a_log,
                   .dt_bias = dt_bias,
                   .bounded = true,
                   .lower_bound = -5,
                   .g = {g.as(), kC},
                   .beta = {beta.as(), kH},
                   .tokens = n,
                   .heads = kH,
                   .keys = kWidth},
                  bench.stream);
  launch_recurrence_128({.q = {mixed.as(), 3 * kC, kWidth},
                         .k = {mixed.as() + kC, 3 * kC, kWidth},
                         .v = {mixed.as() + 2 * kC, 3 * kC, kWidth},
                         .g = {g.as(), kC},
                         .beta = {beta.as(), kH},
                         .entering = states_two.as(),
                         .entering_stride = kState,
                         .state_in = in.as<int32_t>(),
                         .states = states_two.as(),
                         .states_stride = kState,
                         .state_out = to.as<int32_t>(),
                         .batch = ragged,
                         .o = {o.as(), kC, kWidth},
                         .pair_m = nullptr,
                         .pair_h = nullptr,
                         .pair_m_stride = 0,
                         .pair_h_stride = 0,
                         .heads = kH,
                         .keys = kWidth,
                         .values = kWidth},
                        KdaRung::kAuto, bench.stream);
  launch_gated_norm({.o = {o.as(), kC, kWidth},
                     .gate = {d.gate.as(), kC},
                     .weight = norm,
                     .eps = 1e-5f,
                     .out = {out.as(), kC},
                     .tokens = n,
                     .heads = kH,
                     .width = kWidth},
                    bench.stream);
  BENCH_CUDA(cudaGetLastError());
  const double e_out = difference(on_host(d.out.as(), batch * kC), on_host(out.as(), batch * kC));
  const double e_state = difference(on_host(states.as(), 2 * batch * kState), on_host(states_two.as(), 2 * batch * kState));
  const double e_ring = difference(on_host(d.ring.as(), (batch + 1) * 9 * kC), on_host(ring_two.as(), (batch + 1) * 9 * kC));
  const bool good = e_out < 2e-6 && e_state < 2e-6 && e_ring == 0;
  std::printf("kda %s against its four ops: output %.1e, states %.1e, ring %.1e: %s\n", name, e_out, e_state, e_ring, good ? "ok" : "WRONG");
  std::fprintf(bench.json, "{\"what\": \"kda_%s error\", \"output\": %.3e, \"states\": %.3e, \"ring\": %.3e}\n", name, e_out, e_state, e_ring);
  return good;
}

}  // namespace

bool check_kda_steps() {
  const bool step_good = check_step("step", launch_kda_step);
  return check_step("step_stream", launch_kda_step_stream) && step_good;
}

}  // namespace lathe::kernels::cuda
