#include "backend/cuda/cuda_device.h"

namespace lathe::backend {

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions&) {
  return err(Code::kUnimplemented, "this build has no CUDA: configure with -DLATHE_CUDA=ON where nvcc is installed");
}

}  // namespace lathe::backend
