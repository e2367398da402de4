#pragma once
// An NVIDIA GPU as a device: memory from a pool, one stream, the kernels of kernels/cuda. No CUDA type is seen here, and without CUDA in the build the factory
// only says so.

#include <memory>
#include <string>

#include "backend/device.h"

namespace lathe::backend {

struct CudaOptions {
  int ordinal = 0;  ///< number of the GPU
};

/// Errors: unimplemented (this build has no CUDA); unavailable (no driver, no GPU, the GPU is older than sm_90a code needs); invalid_argument (no GPU of that number).
///
/// Memory   allocate: zeroed, 256-byte aligned, carved from blocks that stay with the device; a release makes the memory free for the next allocation.
///          A release waits for nothing: what was enqueued before runs before what is enqueued afterwards.
/// Order    one stream: launches and copies happen in the order of the calls. Copies from and to the host are done when they return.
/// Errors   of CUDA after start are sticky: the process ends with a CHECK that says which call and why.
Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options);

}  // namespace lathe::backend
