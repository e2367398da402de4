#include "backend/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/memory_pool.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/recorder.h"
#include "kernels/cuda/cuda_variants.h"

namespace lathe::backend {
namespace {

#define LATHE_CUDA_CALL(call)                                                                          \
  do {                                                                                                 \
    const cudaError_t lathe_error = (call);                                                            \
    LATHE_CHECK(lathe_error == cudaSuccess, "CUDA: {} in {}", cudaGetErrorString(lathe_error), #call); \
  } while (false)

/// Scratch of launches: one piece of device memory that grows. Growing waits for the launches that still use the old one.
class CudaScratch final : public ops::Scratch {
 public:
  explicit CudaScratch(cudaStream_t stream) : stream_(stream) {}
  ~CudaScratch() override { cudaFree(data_); }
  void* shared(int64_t bytes) override {
    if (bytes <= bytes_) return data_;
    LATHE_CUDA_CALL(cudaStreamSynchronize(stream_));
    LATHE_CUDA_CALL(cudaFree(data_));
    bytes_ = bytes + bytes / 2;
    LATHE_CUDA_CALL(cudaMalloc(&data_, static_cast<size_t>(bytes_)));
    return data_;
  }
  void* local(int /*worker*/, int64_t /*bytes*/) override {
    LATHE_CHECK(false, "a CUDA kernel has no workers");
    return nullptr;
  }

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, const cudaDeviceProp& properties, cudaStream_t stream)
      : ordinal_(ordinal), properties_(properties), stream_(stream), scratch_(stream), pool_([this](int64_t bytes) { return grow(bytes); }) {}
  ~CudaDevice() override {
    cudaStreamSynchronize(stream_);
    for (void* const block : pool_.blocks()) cudaFree(block);
    cudaStreamDestroy(stream_);
  }

  const char* name() const override { return "cuda"; }
  bool host_visible() const override { return false; }

  Result<void*> allocate(int64_t bytes) override {
    LATHE_TRY(void* const memory, pool_.allocate(bytes));
    fill_zero(memory, bytes);
    return memory;
  }
  void release(void* memory, int64_t bytes) override { pool_.release(memory, bytes); }

  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    copy(device, host, bytes, cudaMemcpyHostToDevice);
    if (bytes > 0) synchronise();
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    copy(host, device, bytes, cudaMemcpyDeviceToHost);
    if (bytes > 0) synchronise();
  }
  void copy_on_device(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes, cudaMemcpyDeviceToDevice); }
  void fill_zero(void* device, int64_t bytes) override {
    if (bytes > 0) LATHE_CUDA_CALL(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), stream_));
  }

  std::span<const ops::Variant> table() const override { return kernels::cuda::cuda_variants(); }

  void launch(const ops::Variant& variant, const void* params, ops::OpCounters* counters) override {
    LATHE_CHECK(counters == nullptr, "{} has no counting twin", variant.name);
    const ops::LaunchContext context{.pool = nullptr, .scratch = &scratch_, .counters = nullptr, .stream = stream_};
    const int64_t start = recorder_ != nullptr ? base::now_ns() : 0;
    variant.run(params, context);
    const cudaError_t error = cudaPeekAtLastError();
    LATHE_CHECK(error == cudaSuccess, "CUDA: {} at the launch of {} of {}", cudaGetErrorString(error), variant.name, ops::op_info(variant.op).name);
    if (recorder_ == nullptr) return;
    synchronise();  // a span is the time of the kernel, not of its launch
    recorder_->span({.name = ops::op_info(variant.op).name,
                     .category = "op",
                     .detail = variant.name,
                     .ready_ns = start,
                     .start_ns = start,
                     .end_ns = base::now_ns(),
                     .layer = note_.layer,
                     .rank = note_.rank,
                     .tokens = note_.tokens});
  }
  void synchronise() override { LATHE_CUDA_CALL(cudaStreamSynchronize(stream_)); }

  void set_recorder(base::Recorder* recorder) override { recorder_ = recorder, note_ = {}; }
  void annotate(const LaunchNote& note) override { note_ = note; }
  std::string describe() const override {
    return fmt::format("cuda {}: {}, sm_{}{}, {} multiprocessors, {} MiB, {} kernels", ordinal_, properties_.name, properties_.major,
                       properties_.minor, properties_.multiProcessorCount, properties_.totalGlobalMem >> 20, table().size());
  }

 private:
  Result<void*> grow(int64_t bytes) {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
    if (error == cudaSuccess) return memory;
    cudaGetLastError();  // not sticky: clear it
    size_t free_bytes = 0;
    size_t total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    return err(Code::kResourceExhausted, "cannot allocate {} bytes on cuda {}: {} of {} bytes are free ({})", bytes, ordinal_, free_bytes, total,
               cudaGetErrorString(error));
  }
  void copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0) LATHE_CUDA_CALL(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_));
  }

  int ordinal_;
  cudaDeviceProp properties_;
  cudaStream_t stream_;
  CudaScratch scratch_;
  MemoryPool pool_;
  base::Recorder* recorder_ = nullptr;
  LaunchNote note_;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    return err(Code::kUnavailable, "no CUDA device: {}", error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none");
  }
  if (options.ordinal < 0 || options.ordinal >= count)
    return err(Code::kInvalidArgument, "no CUDA device {}: this machine has {}", options.ordinal, count);
  cudaDeviceProp properties{};
  LATHE_CUDA_CALL(cudaGetDeviceProperties(&properties, options.ordinal));
  if (properties.major != 9 || properties.minor != 0) {
    return err(Code::kUnavailable, "{} is sm_{}{}, but this build has code for sm_90a only", properties.name, properties.major, properties.minor);
  }
  LATHE_CUDA_CALL(cudaSetDevice(options.ordinal));
  cudaStream_t stream = nullptr;
  LATHE_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(options.ordinal, properties, stream));
}

}  // namespace lathe::backend
