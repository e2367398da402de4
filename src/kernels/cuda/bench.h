#pragma once
// What the parts of cuda_bench share.
//
// Method  Launches are captured into a graph that goes through as many inputs as are needed to exceed the L2 cache twice; the median of 15 replays
//         over its launches. Products and experts on clusters may begin while the launch before them ends.
//         Percentages are of the bandwidth that this run measured: in-place for states, read for weights.
// Threads one; errors of CUDA end the program.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/bench_kernels.h"

namespace lathe::kernels::cuda {

#define BENCH_CUDA(call)                                                                       \
  do {                                                                                         \
    const cudaError_t bench_error = (call);                                                    \
    LATHE_CHECK(bench_error == cudaSuccess, "{}: {}", #call, cudaGetErrorString(bench_error)); \
  } while (false)

struct Bench {
  cudaStream_t stream = nullptr;
  std::FILE* json = nullptr;
  double copy_gbs = 0;
  double in_place_gbs = 0;
  double read_gbs = 0;
  uint64_t seed = 1;
};
extern Bench bench;

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

/// Random numbers in [low, high).
Memory floats(int64_t count, float low, float high);
Memory integers(const std::vector<int32_t>& values);
/// Microseconds a launch: launch(i) for i < count as one graph.
double measure(int count, const std::function<void(int)>& launch);
/// One line of the results.
void report(const std::string& what, const std::string& shape, double us, double bytes, double ceiling_gbs);
/// Measures the ceilings.
void bandwidth();
std::vector<float> on_host(const float* data, int64_t count);
/// ‖a − b‖ / ‖b‖; infinite if something is no number.
double difference(const std::vector<float>& a, const std::vector<float>& b);

// The parts: checks say whether all is well, the others print tables.
bool check_kda_steps();
bool check_products();
bool check_replay();
bool check_codes();
bool check_small_products();
bool check_experts();
void kda_decode();
void replay();
void codes();
void products();
void experts();
void rows();
/// One launch of each kernel that a profiler should look at.
void launch_for_counters();
void replay_for_counters();

}  // namespace lathe::kernels::cuda
