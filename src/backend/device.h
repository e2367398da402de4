#pragma once
// A device as the runtime sees it: memory that only it may look into, copies, and a table of kernels.

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/recorder.h"
#include "base/result.h"
#include "ops/kernel.h"

namespace lathe::backend {

/// Whose launch the next one is: for the spans of a recorder.
struct LaunchNote {
  int32_t layer = -1;
  int32_t rank = 0;
  int64_t tokens = 0;
};

/// One device. Owned by one rank; calls come from that rank's thread.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;
  /// Whether the host may read and write its memory directly, so that mapped weights are used in place.
  virtual bool host_visible() const = 0;
  /// Zeroed memory, 64-byte aligned; physical pages only when touched where the system allows it. bytes >= 0. Errors: resource_exhausted.
  virtual Result<void*> allocate(int64_t bytes) = 0;
  virtual void release(void* memory, int64_t bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;
  virtual void copy_on_device(void* to, const void* from, int64_t bytes) = 0;  ///< ranges must not overlap
  virtual void fill_zero(void* device, int64_t bytes) = 0;
  /// Host memory that kernels will read in place (host_visible), in rows: a device whose memory has near and far parts brings each to its readers.
  virtual void settle(const void* data, int64_t bytes) { (void)data, (void)bytes; }
  /// Variants in order of preference: the first that supports a problem is chosen.
  virtual std::span<const ops::Variant> table() const = 0;
  /// Enqueues `variant` (in order). `counters` non-null: run the counting twin.
  virtual void launch(const ops::Variant& variant, const void* params, ops::OpCounters* counters) = 0;
  /// Waits until everything enqueued is done.
  virtual void synchronise() = 0;
  /// What went wrong with a launch since the last call (resource_exhausted: no scratch). Later launches did nothing; from here on they run again.
  virtual Result<void> take_error() { return {}; }
  /// For the timeline: an "op" span per launch and a "piece" span per worker, detail = variant. Null switches recording off. Not owned.
  virtual void set_recorder(base::Recorder* recorder) { (void)recorder; }
  /// Layer, rank and tokens for the spans of the next launch; only called while a recorder is set.
  virtual void annotate(const LaunchNote& note) { (void)note; }
  /// Instruction set, threads: one line for `inspect`.
  virtual std::string describe() const = 0;
};

/// Owner of device memory.
class Buffer {
 public:
  static Result<Buffer> create(Device& device, int64_t bytes);
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_), std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) device_->release(data_, bytes_);
  }
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace lathe::backend
