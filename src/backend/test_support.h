#pragma once
// For the tests of this folder: tensors in device memory, and a problem for every op that they use.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/dispatch.h"
#include "base/sync.h"

namespace lathe::backend::testing {

/// Tensors on one device with seeded contents: two of them, filled in the same order, hold the same bits.
class Tensors {
 public:
  explicit Tensors(Device& device) : device_(device) {}

  View floats(std::initializer_list<int64_t> shape) {
    std::vector<float> values(count(shape));
    for (float& value : values) value = normal_(random_);
    return put(values.data(), DType::kF32, shape);
  }
  View bf16(std::initializer_list<int64_t> shape) {
    std::vector<uint16_t> values(count(shape));
    for (uint16_t& value : values) value = tensor::float_to_bf16(normal_(random_));
    return put(values.data(), DType::kBF16, shape);
  }
  View f8(std::initializer_list<int64_t> shape) {
    std::vector<uint8_t> values(count(shape));
    for (uint8_t& value : values) value = tensor::float_to_f8e4m3(normal_(random_));
    return put(values.data(), DType::kF8E4M3, shape);
  }
  View ints(std::initializer_list<int64_t> shape, std::vector<int32_t> values) {
    EXPECT_EQ(values.size(), count(shape));
    return put(values.data(), DType::kI32, shape);
  }
  View zeros(std::initializer_list<int64_t> shape) {
    const std::vector<float> values(count(shape), 0.0f);
    return put(values.data(), DType::kF32, shape);
  }
  View put(const void* values, DType dtype, std::initializer_list<int64_t> shape) {
    const auto bytes = static_cast<int64_t>(count(shape) * tensor::dtype_bytes(dtype));
    Result<Buffer> buffer = Buffer::create(device_, bytes);
    EXPECT_TRUE(buffer.has_value());
    device_.copy_to_device(buffer->data(), values, bytes);
    buffers_.push_back(std::move(*buffer));
    return tensor::make_view(buffers_.back().data(), dtype, shape);
  }
  /// Bytes of everything that was put, in order.
  std::vector<char> all() {
    std::vector<char> bytes;
    device_.synchronise();
    for (const Buffer& buffer : buffers_) {
      const size_t at = bytes.size();
      bytes.resize(at + static_cast<size_t>(buffer.bytes()));
      device_.copy_to_host(bytes.data() + at, buffer.data(), buffer.bytes());
    }
    return bytes;
  }
  std::vector<float> get(const View& view) {
    EXPECT_TRUE(view.contiguous());
    std::vector<float> values(static_cast<size_t>(view.elements()));
    device_.synchronise();
    device_.copy_to_host(values.data(), view.data, view.extent_bytes());
    return values;
  }
  /// Outlives the params that point to it.
  std::vector<MatrixView>& stack() { return stacks_.emplace_back(std::make_unique<std::vector<MatrixView>>()).operator*(); }

 private:
  static size_t count(std::initializer_list<int64_t> shape) {
    size_t product = 1;
    for (const int64_t size : shape) product *= static_cast<size_t>(size);
    return product;
  }
  Device& device_;
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_{0.0f, 0.5f};
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<std::vector<MatrixView>>> stacks_;
};

/// One call of an op: makes its tensors and runs it.
struct Problem {
  ops::OpId op;
  const char* name;
  std::function<void(Tensors&, Dispatch&, OpSite&)> run;
};
std::vector<Problem> problems();

/// Keeps every span.
class KeptSpans final : public base::Recorder {
 public:
  void span(const base::Span& span) override {
    const base::Lock lock(mutex);
    spans.push_back(span);
  }
  base::Mutex mutex{"keep"};
  std::vector<base::Span> spans;
};

inline std::unique_ptr<Device> reference_device(int threads = 1) {
  return std::move(*make_cpu_device({.threads = threads, .isa = "", .reference = true}));
}

inline std::unique_ptr<Dispatch> dispatch_on(Device& device, DispatchOptions options = {}) {
  Result<std::unique_ptr<Dispatch>> dispatch = Dispatch::create(device, std::move(options));
  EXPECT_TRUE(dispatch.has_value()) << dispatch.error().message;
  return std::move(*dispatch);
}

}  // namespace lathe::backend::testing
