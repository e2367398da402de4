#include "models/arena.h"

#include <algorithm>

#include "base/check.h"

namespace lathe::models {
namespace {

constexpr int64_t kAlignBytes = 64;

int64_t align_up(int64_t bytes) { return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

}  // namespace

void Arena::measure() {
  measuring_ = true;
  used_ = largest_ = 0;
}

Result<void> Arena::reserve(backend::Device& device) {
  measuring_ = false;
  used_ = 0;
  auto buffer = backend::Buffer::create(device, std::max(largest_, kAlignBytes));
  if (!buffer) return base::forward_error(buffer, "activations");
  buffer_ = std::move(*buffer);
  return {};
}

Result<void> Arena::reserve(backend::Device& device, int64_t floats, int64_t views) {
  largest_ = floats * static_cast<int64_t>(sizeof(float)) + views * kAlignBytes;
  return reserve(device);
}

View Arena::take(DType dtype, std::initializer_list<int64_t> shape) {
  const uintptr_t base = reinterpret_cast<uintptr_t>(measuring_ ? nowhere() : buffer_.data());
  const View view = tensor::make_view(reinterpret_cast<void*>(base + static_cast<uintptr_t>(used_)), dtype, shape);
  used_ += align_up(view.elements() * static_cast<int64_t>(tensor::dtype_bytes(dtype)));
  largest_ = std::max(largest_, used_);
  LATHE_CHECK(measuring_ || used_ <= buffer_.bytes(), "activations of {} bytes in an arena of {}", used_, buffer_.bytes());
  return view;
}

Result<void> GrowBuffer::ensure(backend::Device& device, int64_t bytes) {
  if (bytes <= buffer_.bytes() && buffer_.data() != nullptr) return {};
  buffer_ = backend::Buffer();
  LATHE_TRY(buffer_, backend::Buffer::create(device, std::max(align_up(bytes + bytes / 2), kAlignBytes)));
  return {};
}

int64_t MetaPack::add(int64_t count) {
  const auto begin = align_up(static_cast<int64_t>(host_.size()) * 4) / 4;
  host_.resize(static_cast<size_t>(begin + std::max<int64_t>(count, 1)));
  return begin;
}

Result<void> MetaPack::upload(backend::Device& device, Upload upload) {
  const auto bytes = static_cast<int64_t>(host_.size() * sizeof(int32_t));
  LATHE_TRY_VOID(device_.ensure(device, static_cast<int64_t>(host_.capacity() * sizeof(int32_t))));
  if (upload == Upload::kCopy && bytes > 0) device.copy_to_device(device_.data(), host_.data(), bytes);
  return {};
}

View MetaPack::view(int64_t offset, std::initializer_list<int64_t> shape) const {
  void* const memory = device_.data() != nullptr ? device_.data() : nowhere();
  return tensor::make_view(static_cast<int32_t*>(memory) + offset, DType::kI32, shape);
}

}  // namespace lathe::models
