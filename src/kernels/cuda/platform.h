#pragma once
// What every kernel file includes first: CUDA, or its emulation on the host (emulation.h).

#ifdef LATHE_CUDA_EMULATED
#include "kernels/cuda/emulation.h"

namespace lathe::kernels::cuda {
inline int multiprocessors() { return 3; }  // few, so that blocks go over several pieces of work
}  // namespace lathe::kernels::cuda
#else
#include <cuda_runtime.h>

#include <cstdint>

namespace lathe::kernels::cuda {
/// Of the current device; all devices of a process are alike.
inline int multiprocessors() {
  static const int count = [] {
    int device = 0;
    int found = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device);
    return found > 0 ? found : 1;
  }();
  return count;
}
}  // namespace lathe::kernels::cuda

#define LATHE_DYNAMIC_SHARED(T, name)                             \
  extern __shared__ __align__(128) unsigned char lathe_dynamic[]; \
  T* const name = reinterpret_cast<T*>(lathe_dynamic)
/// Dynamic shared memory beyond 48 KiB has to be asked for.
#define LATHE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                  \
  do {                                                                                                                \
    const auto lathe_kernel = kernel;                                                                                 \
    if ((shared_bytes) > 48 * 1024)                                                                                   \
      cudaFuncSetAttribute(reinterpret_cast<const void*>(lathe_kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,  \
                           static_cast<int>(shared_bytes));                                                           \
    lathe_kernel<<<grid, block, static_cast<size_t>(shared_bytes), static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__); \
  } while (false)
/// Clusters of `cluster` blocks. The kernel may begin before the launches ahead of it have ended, and waits for them itself (wait_for_inputs).
#define LATHE_LAUNCH_CLUSTER(kernel, cluster, grid, block, shared_bytes, stream, ...)                                                               \
  do {                                                                                                                                              \
    const auto lathe_kernel = kernel;                                                                                                               \
    cudaFuncSetAttribute(reinterpret_cast<const void*>(lathe_kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)); \
    cudaLaunchAttribute lathe_attributes[2] = {};                                                                                                   \
    lathe_attributes[0].id = cudaLaunchAttributeClusterDimension;                                                                                   \
    lathe_attributes[0].val.clusterDim.x = static_cast<unsigned>(cluster);                                                                          \
    lathe_attributes[0].val.clusterDim.y = lathe_attributes[0].val.clusterDim.z = 1;                                                                \
    lathe_attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;                                                                    \
    lathe_attributes[1].val.programmaticStreamSerializationAllowed = 1;                                                                             \
    cudaLaunchConfig_t lathe_config = {};                                                                                                           \
    lathe_config.gridDim = grid, lathe_config.blockDim = block;                                                                                     \
    lathe_config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);                                                                              \
    lathe_config.stream = static_cast<cudaStream_t>(stream);                                                                                        \
    lathe_config.attrs = lathe_attributes, lathe_config.numAttrs = 2;                                                                               \
    cudaLaunchKernelEx(&lathe_config, lathe_kernel, __VA_ARGS__);                                                                                   \
  } while (false)
#endif
