#pragma once
// Runs kernels of a device with memory of its own on problems that lie in host memory.

#include <cstddef>
#include <vector>

#include "backend/device.h"
#include "harness.h"

namespace lathe::conformance {

/// Copies everything that the views of a call cover to the device, runs, and copies everything back, inputs and gaps between rows included, so that damage shows.
/// On the device each range stands between poisoned guards, at its host address modulo 256; a guard that changed is a CHECK.
/// Kernels that are not the device's (the reference) run on the host.
class DeviceRunner final : public Runner {
 public:
  explicit DeviceRunner(backend::Device& device) : device_(device) {}
  void run(const Variant& variant, const void* params, ops::OpCounters* counters) override;

 private:
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    int64_t offset = 0;
  };
  class Collector;
  class Rebaser;
  void place();

  backend::Device& device_;
  HostRunner host_{1};
  backend::Buffer memory_;
  std::vector<Range> ranges_;
  std::vector<std::byte> staging_;
};

}  // namespace lathe::conformance
