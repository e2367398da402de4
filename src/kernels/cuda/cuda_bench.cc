// Times the kernels of this folder on the GPU of this machine and writes one JSON object a line. `cuda_bench [results.jsonl]`
//
// Method  Launches are captured into a graph that goes through as many inputs as are needed to exceed the L2 cache twice; the median of 15 replays over its launches.
//         Percentages are of the bandwidth that this run measured: in-place for states, read for weights.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/bench_kernels.h"

namespace lathe::kernels::cuda {
namespace {

#define BENCH_CUDA(call)                                                                       \
  do {                                                                                         \
    const cudaError_t bench_error = (call);                                                    \
    LATHE_CHECK(bench_error == cudaSuccess, "{}: {}", #call, cudaGetErrorString(bench_error)); \
  } while (false)

constexpr int64_t kHeads = 64;
constexpr int64_t kWidth = 128;
constexpr int64_t kStateFloats = kHeads * kWidth * kWidth;
constexpr int kReplays = 15;

cudaStream_t stream = nullptr;
std::FILE* json = nullptr;
double in_place_gbs = 0;
double read_gbs = 0;
uint64_t seed = 1;

/// Device memory that lives as long as its owner.
class Memory {
 public:
  explicit Memory(int64_t bytes) { BENCH_CUDA(cudaMalloc(&data_, static_cast<size_t>(bytes))); }
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Memory() { cudaFree(data_); }
  template <class T = float>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

Memory floats(int64_t count, float low, float high) {
  Memory memory(count * 4);
  launch_fill(memory.as<void>(), Content::kF32, low, high, count, seed += 1'000'003, stream);
  return memory;
}
Memory integers(const std::vector<int32_t>& values) {
  Memory memory(static_cast<int64_t>(values.size()) * 4);
  BENCH_CUDA(cudaMemcpy(memory.as<void>(), values.data(), values.size() * 4, cudaMemcpyHostToDevice));
  return memory;
}

/// Microseconds a launch: launch(i) for i < count as one graph.
double measure(int count, const std::function<void(int)>& launch) {
  for (int i = 0; i < std::min(count, 2); ++i) launch(i);
  BENCH_CUDA(cudaGetLastError());
  BENCH_CUDA(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  BENCH_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < count; ++i) launch(i);
  BENCH_CUDA(cudaStreamEndCapture(stream, &graph));
  BENCH_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t from = nullptr;
  cudaEvent_t to = nullptr;
  BENCH_CUDA(cudaEventCreate(&from));
  BENCH_CUDA(cudaEventCreate(&to));
  for (int i = 0; i < 3; ++i) BENCH_CUDA(cudaGraphLaunch(exec, stream));
  std::vector<double> times;
  for (int i = 0; i < kReplays; ++i) {
    BENCH_CUDA(cudaEventRecord(from, stream));
    BENCH_CUDA(cudaGraphLaunch(exec, stream));
    BENCH_CUDA(cudaEventRecord(to, stream));
    BENCH_CUDA(cudaEventSynchronize(to));
    float ms = 0;
    BENCH_CUDA(cudaEventElapsedTime(&ms, from, to));
    times.push_back(static_cast<double>(ms) * 1000 / count);
  }
  cudaEventDestroy(from), cudaEventDestroy(to), cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return times[kReplays / 2];
}

void report(const std::string& what, const std::string& shape, double us, double bytes, double ceiling_gbs) {
  const double gbs = bytes / us / 1000;
  std::fprintf(json, "{\"what\": \"%s\", \"shape\": \"%s\", \"us\": %.3f, \"gb_per_s\": %.1f, \"percent\": %.1f}\n", what.c_str(), shape.c_str(), us,
               gbs, ceiling_gbs > 0 ? 100 * gbs / ceiling_gbs : 0.0);
}

void bandwidth() {
  constexpr int64_t kBytes = int64_t{2} << 30;
  const Memory a = floats(kBytes / 4, 0, 1);
  const Memory b = floats(kBytes / 4, 0, 1);
  const auto run = [&](Traffic traffic, double moved) {
    const double us = measure(
        2, [&](int i) { launch_traffic(traffic, i == 0 ? a.as<void>() : b.as<void>(), i == 0 ? b.as<void>() : a.as<void>(), kBytes, stream); });
    return static_cast<double>(kBytes) * moved / us / 1000;
  };
  const double copy = run(Traffic::kCopy, 2);
  in_place_gbs = run(Traffic::kInPlace, 2);
  read_gbs = run(Traffic::kRead, 1);
  std::printf("bandwidth GB/s: copy %.0f, in place %.0f, read %.0f\n", copy, in_place_gbs, read_gbs);
  std::fprintf(json, "{\"what\": \"bandwidth\", \"copy\": %.1f, \"in_place\": %.1f, \"read\": %.1f}\n", copy, in_place_gbs, read_gbs);
}

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
  const double bytes = static_cast<double>(batch) * kStateFloats * 8;
  table += fmt::format("{:>5}", batch);
  const auto add = [&](const char* name, const std::function<void(int)>& launch) {
    const double us = measure(launches.count, launch);
    report(std::string("kda_decode/") + name, fmt::format("B={}", batch), us, bytes, in_place_gbs);
    table += fmt::format("{:>9.1f} {:>3.0f}%", us, bytes / us / 10 / in_place_gbs);
  };
  const std::vector<std::pair<const char*, KdaRung>> rungs = {
      {"columns", KdaRung::kColumns}, {"tiles32_late", KdaRung::kTiles32Late}, {"tiles32", KdaRung::kTiles32}, {"tiles16", KdaRung::kTiles16},
      {"head", KdaRung::kHead},       {"single32", KdaRung::kTiles32Single},   {"stream", KdaRung::kStream}};
  for (const auto& [name, rung] : rungs) add(name, [&, rung = rung](int i) { launch_recurrence_128(args(i), rung, stream); });
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
  add("step", [&](int i) { launch_kda_step(step(i), stream); });
  add("step_stream", [&](int i) { launch_kda_step_stream(step(i), stream); });
  table += "\n";
}

void kda_decode() {
  constexpr int64_t kSlots = 1031;  // a prime
  const Memory pool = floats(kSlots * kStateFloats, -0.1f, 0.1f);
  const KdaData data(512);
  std::string table;
  for (const int64_t batch : {1, 8, 32, 64, 128, 256, 512}) kda_row(batch, data, pool.as(), kSlots, table);
  std::printf(
      "KDA decode, us and %% of in-place bandwidth (64 heads, FP32 state); step: conv, gates, norms, recurrence, output norm in one\n    B      "
      "columns   tiles32late       tiles32       tiles16          head      single32        stream          step   step_stream\n%s",
      table.c_str());
}

struct Shape {
  int rows, cols;
};

void products() {
  std::string table;
  for (const Type type : {Type::kBF16, Type::kF8}) {
    for (const Shape shape : {Shape{8192, 4096}, Shape{4096, 8192}, Shape{24576, 4096}}) {
      const int64_t bytes = int64_t{shape.rows} * shape.cols * (type == Type::kF8 ? 1 : 2);
      const int sets = static_cast<int>(std::clamp<int64_t>((int64_t{400} << 20) / bytes, 3, 12));
      Memory weights(bytes * sets);
      launch_fill(weights.as<void>(), type == Type::kF8 ? Content::kF8 : Content::kBF16, -0.05f, 0.05f, int64_t{shape.rows} * shape.cols * sets,
                  seed++, stream);
      const Memory scales = floats(int64_t{shape.rows / 128} * (shape.cols / 128), 0.001f, 0.01f);
      const Memory x = floats(int64_t{2048} * shape.cols, -1, 1);
      const Memory y(int64_t{2048} * shape.rows * 4);
      const char* const name = type == Type::kF8 ? "fp8" : "bf16";
      table += fmt::format("{:>5} {:>6}x{:<5}", name, shape.rows, shape.cols);
      for (const int tokens : {1, 4, 8, 16, 64, 2048}) {
        const double us = measure(tokens > 64 ? 1 : sets, [&](int i) {
          const ProductArgs args{.weight = {.values = weights.as<char>() + i * bytes,
                                            .stride = shape.cols,
                                            .scales = type == Type::kF8 ? scales.as() : nullptr,
                                            .scale_stride = shape.cols / 128,
                                            .rows = shape.rows,
                                            .cols = shape.cols,
                                            .block_rows = 128,
                                            .block_cols = 128,
                                            .row_offset = 0,
                                            .col_offset = 0,
                                            .type = type},
                                 .bias = {nullptr, Type::kF32},
                                 .x = x.as(),
                                 .x_stride = shape.cols,
                                 .x_head = 0,
                                 .y = y.as(),
                                 .y_stride = shape.rows,
                                 .y_head = 0,
                                 .y_node = 0,
                                 .tokens = tokens,
                                 .heads = 1,
                                 .head_rows = shape.rows,
                                 .first_row = 0,
                                 .rows = shape.rows,
                                 .leaf_channels = 0,
                                 .leaf_begin = 0,
                                 .leaf_total = 0,
                                 .partial = false,
                                 .fast = true};
          launch_product_mma(&args, 1, stream);
        });
        report(std::string("product/") + name, fmt::format("{}x{} M={}", shape.rows, shape.cols, tokens), us, static_cast<double>(bytes), read_gbs);
        if (tokens <= 64) {
          table += fmt::format("{:>8.1f} {:>3.0f}%", us, static_cast<double>(bytes) / us / 10 / read_gbs);
        } else {
          table += fmt::format("{:>9.0f} {:>4.0f}T", us, 2.0 * tokens * shape.rows * shape.cols / us / 1e6);
        }
      }
      table += "\n";
    }
  }
  std::printf("products (tensor cores, x in f32), us and %% of read bandwidth for M = 1, 4, 8, 16, 64; M = 2048 in TFLOP/s\n%s", table.c_str());
}

void experts() {
  constexpr int kExperts = 288;
  constexpr int kChosen = 8;
  constexpr int64_t kHidden = 4096;
  constexpr int64_t kInner = 2048;
  constexpr int64_t kBytes = kHidden * kInner;
  const Memory weights(3 * kExperts * kBytes);
  launch_fill(weights.as<void>(), Content::kF8, 0, 0, 3 * kExperts * kBytes, seed++, stream);
  const Memory scales = floats(kBytes / (128 * 128), 0.001f, 0.01f);
  ExpertTable table{};
  for (int i = 0; i < 3; ++i) {
    for (int e = 0; e < kExperts; ++e) {
      table.at[i * kExperts + e] = weights.as<char>() + (int64_t{i} * kExperts + e) * kBytes;
      table.at[(3 + i) * kExperts + e] = scales.as();
    }
  }
  const auto shape = [](int64_t rows, int64_t cols) {
    return Matrix{.values = nullptr,
                  .stride = cols,
                  .scales = nullptr,
                  .scale_stride = cols / 128,
                  .rows = static_cast<int>(rows),
                  .cols = static_cast<int>(cols),
                  .block_rows = 128,
                  .block_cols = 128,
                  .row_offset = 0,
                  .col_offset = 0,
                  .type = Type::kF8};
  };
  for (const int tokens : {1, 16, 64}) {
    std::vector<int32_t> ids;
    std::vector<bool> used(kExperts);
    uint64_t state = 12345;
    for (int t = 0; t < tokens; ++t) {
      std::vector<int32_t> row;
      while (row.size() < kChosen) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const auto e = static_cast<int32_t>((state >> 33) % kExperts);
        if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e), used[static_cast<size_t>(e)] = true;
      }
      std::sort(row.begin(), row.end());
      ids.insert(ids.end(), row.begin(), row.end());
    }
    const Memory ids_memory = integers(ids);
    const Memory x = floats(tokens * kHidden, -1, 1);
    const Memory w = floats(tokens * kChosen, 0.1f, 1);
    const Memory y(tokens * kHidden * 4), list(kExperts * tokens * 4), counts(kExperts * 4), hidden(tokens * kChosen * kInner * 4),
        leaves(tokens * kChosen * kHidden * 4), pointers(6 * kExperts * 8);
    const MoeArgs args{.x = {x.as(), kHidden},
                       .ids = ids_memory.as<int32_t>(),
                       .ids_stride = kChosen,
                       .weights = {w.as(), kChosen},
                       .gate = shape(kInner, kHidden),
                       .up = shape(kInner, kHidden),
                       .down = shape(kHidden, kInner),
                       .experts = kExperts,
                       .expert_begin = 0,
                       .experts_total = kExperts,
                       .limit = 10,
                       .fast = true,
                       .y = y.as(),
                       .y_node = 0,
                       .y_stride = kHidden,
                       .partial = false,
                       .present = nullptr,
                       .present_stride = 0,
                       .tokens = tokens,
                       .chosen = kChosen,
                       .width = kHidden,
                       .inner = kInner,
                       .table = pointers.as<const void*>(),
                       .counts = counts.as<int32_t>(),
                       .lists = list.as<int32_t>(),
                       .hidden = hidden.as(),
                       .leaves = leaves.as()};
    const double bytes = static_cast<double>(std::count(used.begin(), used.end(), true)) * 3 * kBytes;
    const double us = measure(4, [&](int) { launch_moe(args, table, true, stream); });
    report("moe/fp8", fmt::format("288 experts top 8 B={}", tokens), us, bytes, read_gbs);
    std::printf("moe fp8 288 x 4096 x 2048, top 8, B=%d: %.1f us, %.0f%% of read bandwidth%s\n", tokens, us, bytes / us / 10 / read_gbs,
                tokens == 1 ? " (200 MB, the same experts each time)" : "");
  }
}

/// ‖a − b‖ / ‖b‖ of device arrays.
double difference(const float* a, const float* b, int64_t count) {
  std::vector<float> x(static_cast<size_t>(count)), y(x.size());
  BENCH_CUDA(cudaStreamSynchronize(stream));
  BENCH_CUDA(cudaMemcpy(x.data(), a, x.size() * 4, cudaMemcpyDeviceToHost));
  BENCH_CUDA(cudaMemcpy(y.data(), b, y.size() * 4, cudaMemcpyDeviceToHost));
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    if (!(std::abs(d) < 1e30)) return INFINITY;
    error += d * d, norm += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  return std::sqrt(error / norm);
}

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
      cudaMemcpyAsync(ring_two.as<void>(), d.ring.as<void>(), static_cast<size_t>((batch + 1) * 9 * kC * 4), cudaMemcpyDeviceToDevice, stream));
  BENCH_CUDA(
      cudaMemcpyAsync(states_two.as<void>(), states.as<void>(), static_cast<size_t>(2 * batch * kState * 4), cudaMemcpyDeviceToDevice, stream));
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
         stream);
  launch_short_conv({.x = {d.raw.as(), 3 * kC},
                     .weight = {d.conv.as<void>(), Type::kF32},
                     .weight_stride = 4,
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
                    stream);
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
                  stream);
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
                        KdaRung::kAuto, stream);
  launch_gated_norm({.o = {o.as(), kC, kWidth},
                     .gate = {d.gate.as(), kC},
                     .weight = norm,
                     .eps = 1e-5f,
                     .out = {out.as(), kC},
                     .tokens = n,
                     .heads = kH,
                     .width = kWidth},
                    stream);
  BENCH_CUDA(cudaGetLastError());
  const double e_out = difference(d.out.as(), out.as(), batch * kC);
  const double e_state = difference(states.as(), states_two.as(), 2 * batch * kState);
  const double e_ring = difference(d.ring.as(), ring_two.as(), (batch + 1) * 9 * kC);
  const bool good = e_out < 2e-6 && e_state < 2e-6 && e_ring == 0;
  std::printf("kda %s against its four ops: output %.1e, states %.1e, ring %.1e: %s\n", name, e_out, e_state, e_ring, good ? "ok" : "WRONG");
  std::fprintf(json, "{\"what\": \"kda_%s error\", \"output\": %.3e, \"states\": %.3e, \"ring\": %.3e}\n", name, e_out, e_state, e_ring);
  return good;
}

}  // namespace
}  // namespace lathe::kernels::cuda

int main(int argc, char** argv) {
  using namespace lathe::kernels::cuda;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::printf("skipped: no CUDA device\n");
    return 0;
  }
  json = std::fopen(argc > 1 ? argv[1] : "/dev/null", "w");
  LATHE_CHECK(json != nullptr, "cannot write the results");
  cudaDeviceProp properties{};
  BENCH_CUDA(cudaGetDeviceProperties(&properties, 0));
  BENCH_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::printf("%s, %d multiprocessors, L2 %d MB\n", properties.name, properties.multiProcessorCount, properties.l2CacheSize >> 20);
  const bool step_good = check_step("step", launch_kda_step);
  const bool good = check_step("step_stream", launch_kda_step_stream) && step_good;
  bandwidth();
  kda_decode();
  products();
  experts();
  std::fclose(json);
  return good ? 0 : 1;
}
