#include "backend/fake_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace lathe::backend {
namespace {

int64_t padded(int64_t bytes) { return std::max<int64_t>((bytes + 63) / 64 * 64, 64); }

}  // namespace

/// Lets the host in while it lives.
class FakeDevice::Open {
 public:
  explicit Open(const FakeDevice& device) : device_(device) { protect(PROT_READ | PROT_WRITE); }
  ~Open() { protect(PROT_NONE); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

 private:
  void protect(int access) const {
    if (device_.touched_ == 0) return;
    LATHE_CHECK(mprotect(device_.arena_, static_cast<size_t>(device_.touched_), access) == 0, "mprotect: {}", std::strerror(errno));
  }
  const FakeDevice& device_;
};

Result<std::unique_ptr<FakeDevice>> FakeDevice::create(std::vector<ops::Variant> table, int64_t arena_bytes) {
  void* const arena = mmap(nullptr, static_cast<size_t>(arena_bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) return err(Code::kResourceExhausted, "cannot reserve {} bytes for the fake device: {}", arena_bytes, std::strerror(errno));
  return std::unique_ptr<FakeDevice>(new FakeDevice(std::move(table), static_cast<char*>(arena), arena_bytes));
}

FakeDevice::~FakeDevice() { munmap(arena_, static_cast<size_t>(arena_bytes_)); }

Result<void*> FakeDevice::allocate(int64_t bytes) {
  const int64_t need = padded(bytes);
  const auto fits = std::find_if(holes_.begin(), holes_.end(), [&](const Hole& hole) { return hole.bytes >= need; });
  if (fits != holes_.end()) {
    char* const memory = arena_ + fits->begin;
    fits->begin += need, fits->bytes -= need;
    if (fits->bytes == 0) holes_.erase(fits);
    used_ += need;
    fill_zero(memory, need);
    return memory;
  }
  if (need > arena_bytes_ - end_) {
    return err(Code::kResourceExhausted, "cannot allocate {} bytes: the fake device has {} bytes and {} of them are in use", bytes, arena_bytes_,
               used_);
  }
  char* const memory = arena_ + end_;
  const int64_t used_before = std::min(touched_ - end_, need);
  end_ += need, used_ += need;
  touched_ = std::max(touched_, end_);
  fill_zero(memory, used_before);  // what was never touched is zero
  return memory;
}

void FakeDevice::release(void* memory, int64_t bytes) {
  const Hole hole{.begin = static_cast<char*>(memory) - arena_, .bytes = padded(bytes)};
  LATHE_CHECK(owns(memory, hole.bytes), "release of foreign memory");
  used_ -= hole.bytes;
  auto at = holes_.insert(std::lower_bound(holes_.begin(), holes_.end(), hole, [](const Hole& a, const Hole& b) { return a.begin < b.begin; }), hole);
  if (at + 1 != holes_.end() && at->begin + at->bytes == (at + 1)->begin) at->bytes += (at + 1)->bytes, holes_.erase(at + 1);
  if (at != holes_.begin() && (at - 1)->begin + (at - 1)->bytes == at->begin) (at - 1)->bytes += at->bytes, holes_.erase(at);
  if (holes_.back().begin + holes_.back().bytes == end_) end_ = holes_.back().begin, holes_.pop_back();
}

bool FakeDevice::owns(const void* address, int64_t bytes) const {
  const char* const at = static_cast<const char*>(address);
  return arena_ <= at && at + bytes <= arena_ + end_;
}

void FakeDevice::copy_to_device(void* device, const void* host, int64_t bytes) {
  if (bytes <= 0) return;
  LATHE_CHECK(owns(device, bytes), "copy of {} bytes to memory that is not the device's", bytes);
  const Open open(*this);
  std::memcpy(device, host, static_cast<size_t>(bytes));
  counts_.bytes_to_device += bytes;
}

void FakeDevice::copy_to_host(void* host, const void* device, int64_t bytes) {
  if (bytes <= 0) return;
  LATHE_CHECK(owns(device, bytes), "copy of {} bytes from memory that is not the device's", bytes);
  const Open open(*this);
  std::memcpy(host, device, static_cast<size_t>(bytes));
  counts_.bytes_to_host += bytes;
}

void FakeDevice::copy_on_device(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return;
  LATHE_CHECK(owns(to, bytes) && owns(from, bytes), "copy of {} bytes in memory that is not the device's", bytes);
  const Open open(*this);
  std::memcpy(to, from, static_cast<size_t>(bytes));
  counts_.bytes_on_device += bytes;
}

void FakeDevice::fill_zero(void* device, int64_t bytes) {
  if (bytes <= 0) return;
  LATHE_CHECK(owns(device, bytes), "{} bytes that are not the device's", bytes);
  const Open open(*this);
  std::memset(device, 0, static_cast<size_t>(bytes));
}

namespace {

/// A device sees its own memory alone: a kernel that is given host memory would work here and fail on a real one.
class OwnMemory final : public ops::ViewVisitor {
 public:
  OwnMemory(const FakeDevice& device, const char* op) : device_(device), op_(op) {}
  void view(const char* name, ops::Role /*role*/, View& view) override {
    LATHE_CHECK(view.elements() == 0 || device_.owns(view.data, view.extent_bytes()), "{}: {} is not in device memory", op_, name);
  }

 private:
  const FakeDevice& device_;
  const char* op_;
};

}  // namespace

void FakeDevice::launch(const ops::Variant& variant, const void* params, ops::OpCounters* counters) {
  ++counts_.launches;
  const ops::OpInfo& info = ops::op_info(variant.op);
  OwnMemory own(*this, info.name);
  info.visit(const_cast<void*>(params), own);  // NOLINT(cppcoreguidelines-pro-type-const-cast): this visitor changes nothing
  const Open open(*this);
  host_.run(variant, params, counters);
}

std::string FakeDevice::describe() const { return fmt::format("fake: memory closed to the host, {} kernels", table_.size()); }

std::vector<ops::Variant> without(std::span<const ops::Variant> table, ops::OpId op) {
  std::vector<ops::Variant> kept;
  std::copy_if(table.begin(), table.end(), std::back_inserter(kept), [&](const ops::Variant& variant) { return variant.op != op; });
  return kept;
}

}  // namespace lathe::backend
