// Times the kernels of this folder on the GPU of this machine and writes one JSON object a line.
//   cuda_bench [results.jsonl [check|products|experts|rows|kda|replay|codes]…]   no names: all
//   cuda_bench FILE counters [replay]      one launch of each kernel for a profiler
//   cuda_bench FILE small                  products of few rows against the plain kernel, for memory and race checkers
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "kernels/cuda/bench.h"

namespace lathe::kernels::cuda {

Bench bench;

namespace {

constexpr int kReplays = 15;

}  // namespace

Memory floats(int64_t count, float low, float high) {
  Memory memory(count * 4);
  launch_fill(memory.as<void>(), Content::kF32, low, high, count, bench.seed += 1'000'003, bench.stream);
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
  BENCH_CUDA(cudaStreamSynchronize(bench.stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  BENCH_CUDA(cudaStreamBeginCapture(bench.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < count; ++i) launch(i);
  BENCH_CUDA(cudaStreamEndCapture(bench.stream, &graph));
  BENCH_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t from = nullptr;
  cudaEvent_t to = nullptr;
  BENCH_CUDA(cudaEventCreate(&from));
  BENCH_CUDA(cudaEventCreate(&to));
  for (int i = 0; i < 3; ++i) BENCH_CUDA(cudaGraphLaunch(exec, bench.stream));
  std::vector<double> times;
  for (int i = 0; i < kReplays; ++i) {
    BENCH_CUDA(cudaEventRecord(from, bench.stream));
    BENCH_CUDA(cudaGraphLaunch(exec, bench.stream));
    BENCH_CUDA(cudaEventRecord(to, bench.stream));
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
  std::fprintf(bench.json, "{\"what\": \"%s\", \"shape\": \"%s\", \"us\": %.3f, \"gb_per_s\": %.1f, \"percent\": %.1f}\n", what.c_str(),
               shape.c_str(), us, gbs, ceiling_gbs > 0 ? 100 * gbs / ceiling_gbs : 0.0);
}

void bandwidth() {
  constexpr int64_t kBytes = int64_t{2} << 30;
  const Memory a = floats(kBytes / 4, 0, 1);
  const Memory b = floats(kBytes / 4, 0, 1);
  const auto run = [&](Traffic traffic, double moved) {
    const double us = measure(
        2, [&](int i) { launch_traffic(traffic, i == 0 ? a.as<void>() : b.as<void>(), i == 0 ? b.as<void>() : a.as<void>(), kBytes, bench.stream); });
    return static_cast<double>(kBytes) * moved / us / 1000;
  };
  bench.copy_gbs = run(Traffic::kCopy, 2);
  bench.in_place_gbs = run(Traffic::kInPlace, 2);
  bench.read_gbs = run(Traffic::kRead, 1);
  std::printf("bandwidth GB/s: copy %.0f, in place %.0f, read %.0f\n", bench.copy_gbs, bench.in_place_gbs, bench.read_gbs);
  std::fprintf(bench.json, "{\"what\": \"bandwidth\", \"copy\": %.1f, \"in_place\": %.1f, \"read\": %.1f}\n", bench.copy_gbs, bench.in_place_gbs,
               bench.read_gbs);
}

std::vector<float> on_host(const float* data, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  BENCH_CUDA(cudaStreamSynchronize(bench.stream));
  BENCH_CUDA(cudaMemcpy(values.data(), data, values.size() * 4, cudaMemcpyDeviceToHost));
  return values;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    if (!(std::abs(d) < 1e30)) return INFINITY;
    error += d * d, norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(error / norm);
}

}  // namespace lathe::kernels::cuda

int main(int argc, char** argv) {
  using namespace lathe::kernels::cuda;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was found before a time limit is kept
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::printf("skipped: no CUDA device\n");
    return 0;
  }
  bench.json = std::fopen(argc > 1 ? argv[1] : "/dev/null", "w");
  LATHE_CHECK(bench.json != nullptr, "cannot write the results");
  cudaDeviceProp properties{};
  BENCH_CUDA(cudaGetDeviceProperties(&properties, 0));
  BENCH_CUDA(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
  std::printf("%s, %d multiprocessors, L2 %d MB\n", properties.name, properties.multiProcessorCount, properties.l2CacheSize >> 20);
  const auto wanted = [&](std::string_view part) {
    return argc <= 2 || std::any_of(argv + 2, argv + argc, [&](const char* name) { return part == name; });
  };
  if (argc > 2 && std::string_view(argv[2]) == "counters") {
    if (argc > 3) {
      replay_for_counters();
    } else {
      launch_for_counters();
    }
    return 0;
  }
  if (argc > 2 && std::string_view(argv[2]) == "small") return check_small_products() ? 0 : 1;
  bool good = true;
  if (wanted("check")) {
    good = check_kda_steps();
    good = check_replay() && good;
    good = check_codes() && good;
    good = check_products() && good;
    good = check_experts() && good;
  }
  bandwidth();
  if (wanted("products")) products();
  if (wanted("experts")) experts();
  if (wanted("rows")) rows();
  if (wanted("kda")) kda_decode();
  if (wanted("replay")) replay();
  if (wanted("codes")) codes();
  std::fclose(bench.json);
  return good ? 0 : 1;
}
