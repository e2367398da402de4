#pragma once
// Device memory of a forward pass: activations that live for a part of a step, buffers that grow, and the integers of a step in one copy.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "tensor/view.h"

namespace lathe::models {

/// Where views point while sizes are measured or kernels chosen: aligned, not null, never looked into.
inline void* nowhere() { return reinterpret_cast<void*>(uintptr_t{4096}); }

/// Bump allocator for activations. Its size is found by running the forward pass once in measuring mode, when views point to nothing.
class Arena {
 public:
  /// Starts measuring: allocations succeed and are only counted.
  void measure();
  /// Ends measuring: reserves the largest sum seen.
  Result<void> reserve(backend::Device& device);
  /// Room for one use of a known size: `floats` in up to `views` views.
  Result<void> reserve(backend::Device& device, int64_t floats, int64_t views);
  void reset() { used_ = 0; }

  View f32(std::initializer_list<int64_t> shape) { return take(DType::kF32, shape); }
  View i32(std::initializer_list<int64_t> shape) { return take(DType::kI32, shape); }

  int64_t bytes() const { return buffer_.bytes(); }

  /// Gives back everything taken since it was made.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), used_(arena.used_) {}
    ~Scope() { arena_.used_ = used_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    int64_t used_;
  };

 private:
  View take(DType dtype, std::initializer_list<int64_t> shape);

  backend::Buffer buffer_;
  bool measuring_ = false;
  int64_t used_ = 0;
  int64_t largest_ = 0;
};

/// A buffer that is replaced by a larger one when it is too small; its content is then lost.
class GrowBuffer {
 public:
  /// Errors: resource_exhausted.
  Result<void> ensure(backend::Device& device, int64_t bytes);
  void* data() const { return buffer_.data(); }
  int64_t bytes() const { return buffer_.bytes(); }

 private:
  backend::Buffer buffer_;
};

enum class Upload : uint8_t {
  kCopy,
  kDry,  ///< a planning pass: nothing is copied
};

/// The i32 arrays of a step, packed on the host and copied to the device at once.
class MetaPack {
 public:
  void clear() { host_.clear(); }
  /// Room for arrays of so many integers in all.
  void reserve(int64_t integers) { host_.reserve(static_cast<size_t>(integers)); }
  /// Appends `count` zeros, 64-byte aligned, and returns where they begin. Pointers from at() die with the next add().
  int64_t add(int64_t count);
  int32_t* at(int64_t offset) { return host_.data() + offset; }
  /// One copy. Views made afterwards point to the device, or nowhere if this failed.
  Result<void> upload(backend::Device& device, Upload upload);
  View view(int64_t offset, std::initializer_list<int64_t> shape) const;

 private:
  std::vector<int32_t> host_;
  GrowBuffer device_;
};

}  // namespace lathe::models
