#include "backend/host_mirror.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace lathe::backend {
class HostMirror::Collector final : public ops::ViewVisitor {
 public:
  explicit Collector(HostMirror& mirror) : mirror_(mirror) {}
  void view(const char* /*name*/, ops::Role role, View& view) override { mirror_.add(view, role); }

 private:
  HostMirror& mirror_;
};

class HostMirror::Rebaser final : public ops::ViewVisitor {
 public:
  explicit Rebaser(const HostMirror& mirror) : mirror_(mirror) {}
  void view(const char* /*name*/, ops::Role /*role*/, View& view) override { mirror_.rebase(view); }

 private:
  const HostMirror& mirror_;
};

HostMirror::HostMirror(Device& device) : device_(device) {}
HostMirror::~HostMirror() = default;

const void* HostMirror::map(const ops::OpInfo& info, const void* params) {
  regions_.clear();
  written_.clear();
  device_.synchronise();
  if (device_.host_visible()) return params;
  params_.resize((info.params_bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  std::memcpy(params_.data(), params, info.params_bytes);
  Collector collector(*this);
  info.visit(params_.data(), collector);
  merge();
  if (base_ == nullptr) {
    written_.clear();
    return nullptr;
  }
  for (const Range& region : regions_) {
    device_.copy_to_host(base_ + region.offset, reinterpret_cast<const void*>(region.begin), static_cast<int64_t>(region.end - region.begin));
  }
  rebaser_ = std::make_unique<Rebaser>(*this);
  info.visit(params_.data(), *rebaser_);
  return params_.data();
}

void HostMirror::copy_back() {
  for (const Range& range : written_) {
    device_.copy_to_device(reinterpret_cast<void*>(range.begin), host_address(range.begin), static_cast<int64_t>(range.end - range.begin));
  }
}

void HostMirror::add(const View& view, ops::Role role) {
  if (!view.present() || view.elements() == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(view.data);
  const Range range{.begin = begin, .end = begin + static_cast<uintptr_t>(view.extent_bytes())};
  regions_.push_back(range);
  if (role != ops::Role::kIn) written_.push_back(range);
}

/// Unites overlapping ranges and places each at its address modulo 64, so that kernels see the alignment they had.
void HostMirror::merge() {
  std::sort(regions_.begin(), regions_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  size_t count = 0;
  for (const Range& range : regions_) {
    if (count > 0 && range.begin < regions_[count - 1].end) {
      regions_[count - 1].end = std::max(regions_[count - 1].end, range.end);
    } else {
      regions_[count++] = range;
    }
  }
  regions_.resize(count);
  int64_t offset = 0;
  for (Range& region : regions_) {
    region.offset = offset + static_cast<int64_t>(region.begin % 64);
    offset = (region.offset + static_cast<int64_t>(region.end - region.begin) + 63) / 64 * 64;
  }
  base_ = static_cast<char*>(memory_.ensure(offset));
}

void* HostMirror::host_address(uintptr_t device_address) const {
  const auto after =
      std::upper_bound(regions_.begin(), regions_.end(), device_address, [](uintptr_t at, const Range& region) { return at < region.begin; });
  LATHE_CHECK(after != regions_.begin(), "address outside every view");
  const Range& region = *(after - 1);
  LATHE_CHECK(device_address < region.end, "address outside every view");
  return base_ + region.offset + static_cast<int64_t>(device_address - region.begin);
}

void HostMirror::rebase(View& view) const {
  if (view.present() && view.elements() > 0) view.data = host_address(reinterpret_cast<uintptr_t>(view.data));
}

}  // namespace lathe::backend
