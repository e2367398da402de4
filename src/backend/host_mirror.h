#pragma once
// Params of a device, moved to the host: for the host reference and for observers that look into tensors.

#include <memory>
#include <vector>

#include "backend/device.h"
#include "backend/host_context.h"

namespace lathe::backend {

/// Copies everything that the views of a call cover into host memory.
///
/// Aliases   Views that overlap (in place, columns of one buffer, pools) map to the same host bytes.
/// Strides   The whole extent of a view is copied, gaps included, so that writing it back leaves the gaps as they were.
/// Memory grows and stays; a small visitor and the items of matrix stacks are made for every call.
class HostMirror {
 public:
  explicit HostMirror(Device& device);
  ~HostMirror();
  /// The same params over host memory; valid until the next call of map. On a host-visible device: `params` themselves, waited for and not copied.
  /// Null if the host has no memory for the copies.
  const void* map(const ops::OpInfo& info, const void* params);
  /// Writes the outputs of the last map back.
  void copy_back();

 private:
  struct Range {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    int64_t offset = 0;  ///< regions: place in memory_
  };
  class Collector;
  class Rebaser;  ///< owns the items of replaced stacks
  void add(const View& view, ops::Role role);
  void merge();
  void* host_address(uintptr_t device_address) const;
  void rebase(View& view) const;

  Device& device_;
  HostArena memory_;
  char* base_ = nullptr;
  std::vector<Range> regions_;  ///< disjoint, ascending
  std::vector<Range> written_;
  std::vector<std::max_align_t> params_;
  std::unique_ptr<Rebaser> rebaser_;  ///< of the last map
};

}  // namespace lathe::backend
