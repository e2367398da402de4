#pragma once
// Where the time of steps goes: an observer that adds up times and work by call site.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/dispatch.h"
#include "backend/observe_ops.h"
#include "evaluate/machine.h"

namespace lathe::evaluate {

/// Time and work of the calls of one site, over all layers.
struct SiteTime {
  std::string op, site;
  std::string variant;
  int64_t calls = 0;
  double time_ns = 0;   ///< sum
  Work work;            ///< what the contracts ask for, sum
  double floor_ns = 0;  ///< of that work, data belonging to the working set of one step
};

/// Where the time of some steps went.
struct Profile {
  int64_t steps = 0;
  double wall_ns = 0;           ///< of the observed steps, the observer included
  double working_set = 0;       ///< bytes that one step touches
  std::vector<SiteTime> sites;  ///< largest time first

  double time_ns() const;  ///< of all ops
  double time_of(const std::string& op) const;
  /// Products with weight matrices: matmul, gate_up, moe, mla_absorb, mla_unabsorb.
  double linear_time_ns() const;
  double linear_flops() const;
  /// Read and written for linear-attention states by their contracts: kda_recurrence, kda_verify, kda_flush.
  double state_bytes() const;
};

/// Threads  the rank's.
class ProfileObserver final : public backend::OpObserver {
 public:
  explicit ProfileObserver(backend::Device& device) : mirror_(device) {}
  void after(backend::OpCall& call, backend::Device& device) override;
  /// What was seen, still without floors (take_floors). working_set: bytes that one step touches.
  Profile profile(int64_t steps, double wall_ns, double working_set) const;
  /// resource_exhausted if a call was passed over for want of host memory.
  const Result<void>& status() const { return mirror_.status(); }

 private:
  backend::CallMirror mirror_;
  std::map<std::pair<std::string, std::string>, SiteTime> sites_;  ///< by op and site
};

/// Floors of all sites by these roofs; can be taken again after roofs.measure_again().
void take_floors(Profile& profile, Roofs& roofs);

/// Inputs of the products of this op: kBF16 if the params say so.
ops::Compute compute_of(ops::OpId op, const void* params);
Work work_of(const ops::Cost& cost, ops::Compute compute);

config::Json profile_json(const Profile& profile);
/// The sites that take the most time, as a table; `rows` of them.
std::string profile_page(const Profile& profile, size_t rows);

}  // namespace lathe::evaluate
