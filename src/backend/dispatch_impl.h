#pragma once
// Private parts of Dispatch, shared by dispatch*.cc.

#include <memory>
#include <unordered_set>
#include <vector>

#include "backend/dispatch.h"
#include "backend/host_mirror.h"

namespace lathe::backend {

/// The name under which the host reference can be forced and is reported.
inline constexpr const char* kHostName = "host";

struct Dispatch::Impl {
  explicit Impl(Device& device) : mirror(device) {}

  struct Constant {
    float value = 0;
    int64_t count = 0;
    Buffer buffer;
  };

  int depth = 0;  ///< 1 inside a composition
  OpObserver* observer = nullptr;
  base::Recorder* recorder = nullptr;
  Result<void> failure;     ///< of a call that ran, until take_error()
  Result<void> pass_error;  ///< first error of the plan pass
  Result<void> part_error;  ///< first error of the composition being planned
  std::unordered_set<const OpSite*> known;
  std::vector<Buffer> temporaries;
  std::vector<Constant> constants;
  HostMirror mirror;
  std::unique_ptr<HostContext> host;  ///< made when the host reference first runs
  // Observation.
  std::vector<std::max_align_t> params;  ///< the copy that observers see
  ops::OpCounters counters;
  ops::OpCounters* active_counters = nullptr;  ///< of the call being observed, also for the parts of a composition
  bool counters_complete = false;
  int64_t calls = 0;
  int64_t last_end_ns = 0;
};

/// "layer 3 kda.projections (matmul)": for messages.
std::string place(const OpSite& site, ops::OpId op);

/// Receives the first dimension of the first view: the number of tokens (or sequences' rows) of a call.
int64_t rows_of(const ops::OpInfo& info, const void* params);

}  // namespace lathe::backend
