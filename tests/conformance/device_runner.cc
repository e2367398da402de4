#include "device_runner.h"

#include <algorithm>
#include <cstring>

namespace lathe::conformance {
namespace {

constexpr int64_t kGuard = 256;
constexpr std::byte kPoison{0xFB};

}  // namespace

class DeviceRunner::Collector final : public ops::ViewVisitor {
 public:
  explicit Collector(std::vector<Range>& ranges) : ranges_(ranges) {}
  void view(const char*, ops::Role, View& view) override {
    if (view.elements() == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(view.data);
    ranges_.push_back({.begin = begin, .end = begin + static_cast<uintptr_t>(view.extent_bytes())});
  }

 private:
  std::vector<Range>& ranges_;
};

class DeviceRunner::Rebaser final : public ops::ViewVisitor {
 public:
  Rebaser(const std::vector<Range>& ranges, std::byte* base) : ranges_(ranges), base_(base) {}
  void view(const char*, ops::Role, View& view) override {
    if (view.elements() == 0) {
      view.data = base_;  // never looked at; host memory would be refused
      return;
    }
    const auto at = reinterpret_cast<uintptr_t>(view.data);
    const auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), at, [](uintptr_t address, const Range& range) { return address < range.begin; });
    LATHE_CHECK(after != ranges_.begin() && at < (after - 1)->end, "a view outside every range");
    view.data = base_ + (after - 1)->offset + (at - (after - 1)->begin);
  }

 private:
  const std::vector<Range>& ranges_;
  std::byte* base_;
};

/// Unites ranges that touch and gives each its place.
void DeviceRunner::place() {
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  size_t count = 0;
  for (const Range& range : ranges_) {
    if (count > 0 && range.begin <= ranges_[count - 1].end) {
      ranges_[count - 1].end = std::max(ranges_[count - 1].end, range.end);
    } else {
      ranges_[count++] = range;
    }
  }
  ranges_.resize(count);
  int64_t offset = kGuard;
  for (Range& range : ranges_) {
    range.offset = offset + static_cast<int64_t>(range.begin % kGuard);
    offset = (range.offset + static_cast<int64_t>(range.end - range.begin) + 2 * kGuard - 1) / kGuard * kGuard;
  }
  staging_.assign(static_cast<size_t>(offset + kGuard), kPoison);
}

void DeviceRunner::run(const Variant& variant, const void* params, ops::OpCounters* counters) {
  const std::span<const Variant> own = device_.table();
  if (std::none_of(own.begin(), own.end(), [&](const Variant& mine) { return mine.run == variant.run; })) return host_.run(variant, params, counters);
  const ops::OpInfo& info = ops::op_info(variant.op);
  std::vector<std::max_align_t> copy((info.params_bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  std::memcpy(copy.data(), params, info.params_bytes);
  ranges_.clear();
  Collector collector(ranges_);
  info.visit(copy.data(), collector);
  place();
  for (const Range& range : ranges_) std::memcpy(staging_.data() + range.offset, reinterpret_cast<const void*>(range.begin), range.end - range.begin);
  const auto bytes = static_cast<int64_t>(staging_.size());
  if (memory_.bytes() < bytes) {
    Result<backend::Buffer> larger = backend::Buffer::create(device_, 2 * bytes);
    LATHE_CHECK(larger.has_value(), "{}", larger.error().message);
    memory_ = std::move(*larger);
  }
  // The allocator aligns to 64: step to the guard's size.
  auto* const start = static_cast<std::byte*>(memory_.data());
  LATHE_CHECK(reinterpret_cast<uintptr_t>(start) % 64 == 0, "unaligned device memory");
  auto* const base = start + (kGuard - static_cast<int64_t>(reinterpret_cast<uintptr_t>(start) % kGuard)) % kGuard;
  device_.copy_to_device(base, staging_.data(), bytes);
  Rebaser rebaser(ranges_, base);
  info.visit(copy.data(), rebaser);
  device_.launch(variant, copy.data(), counters);
  device_.synchronise();
  device_.copy_to_host(staging_.data(), base, bytes);
  int64_t clean = 0;
  for (const Range& range : ranges_) {
    for (; clean < range.offset; ++clean) {
      LATHE_CHECK(staging_[static_cast<size_t>(clean)] == kPoison, "{} of {} wrote {} bytes before a view", variant.name, info.name,
                  range.offset - clean);
    }
    clean = range.offset + static_cast<int64_t>(range.end - range.begin);
    std::memcpy(reinterpret_cast<void*>(range.begin), staging_.data() + range.offset, range.end - range.begin);
  }
  for (; clean < bytes; ++clean)
    LATHE_CHECK(staging_[static_cast<size_t>(clean)] == kPoison, "{} of {} wrote behind the last view", variant.name, info.name);
}

}  // namespace lathe::conformance
