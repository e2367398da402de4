#pragma once
// Test support: a second device. Its memory is closed to the host except inside launches and copies, so a stray access crashes, and what it does is counted.

#include <memory>
#include <vector>

#include "backend/device.h"
#include "backend/host_context.h"

namespace lathe::backend {

/// One arena, PROT_NONE when nothing runs. Launches run host functions on it, one after the other.
class FakeDevice final : public Device {
 public:
  /// `table`: what this device can do. `arena_bytes`: address space, touched only where used.
  static Result<std::unique_ptr<FakeDevice>> create(std::vector<ops::Variant> table, int64_t arena_bytes = int64_t{1} << 34);
  ~FakeDevice() override;

  const char* name() const override { return "fake"; }
  bool host_visible() const override { return false; }
  Result<void*> allocate(int64_t bytes) override;
  void release(void* memory, int64_t bytes) override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void copy_on_device(void* to, const void* from, int64_t bytes) override;
  void fill_zero(void* device, int64_t bytes) override;
  std::span<const ops::Variant> table() const override { return table_; }
  void launch(const ops::Variant& variant, const void* params, ops::OpCounters* counters) override;
  void synchronise() override { ++counts_.waits; }
  Result<void> take_error() override { return host_.take_error(); }
  std::string describe() const override;

  struct Counts {
    int64_t launches = 0;
    int64_t bytes_to_device = 0;
    int64_t bytes_to_host = 0;
    int64_t bytes_on_device = 0;
    int64_t waits = 0;
  };
  const Counts& counts() const { return counts_; }
  int64_t used_bytes() const { return used_; }
  bool owns(const void* address, int64_t bytes) const;

 private:
  FakeDevice(std::vector<ops::Variant> table, char* arena, int64_t bytes) : table_(std::move(table)), arena_(arena), arena_bytes_(bytes) {}
  class Open;
  struct Hole {
    int64_t begin = 0;
    int64_t bytes = 0;
  };

  std::vector<ops::Variant> table_;
  char* arena_;
  int64_t arena_bytes_;
  int64_t end_ = 0;      ///< one past the last byte handed out
  int64_t touched_ = 0;  ///< largest end_ ever
  int64_t used_ = 0;
  std::vector<Hole> holes_;  ///< released, ascending, below end_
  HostContext host_{1};
  Counts counts_;
};

/// `table` without every variant of `op`.
std::vector<ops::Variant> without(std::span<const ops::Variant> table, ops::OpId op);

}  // namespace lathe::backend
