#pragma once
// What kernels count, against what a call needs and what each may do on top.

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness.h"
#include "ops/mla.h"

namespace lathe::conformance {

/// The least work of a call, by its index views: at most cost(), equal to it where the contract leaves nothing to the data. The call has run.
ops::Cost needed_work(ops::OpId op, const void* params);

/// The most that a kernel of kernels/cpu does: what is needed, but for the repetitions that are its design, each with its reason in allowed.cc.
/// level: the name of its variant; threads: of the pool it ran on.
ops::Cost allowed_work(ops::OpId op, const void* params, std::string_view level, int threads);

/// A call that has run.
struct Counted {
  const Variant& variant;  ///< of kernels/cpu, or the reference
  const void* params;
  const ops::OpCounters& counters;
  int threads;
};
/// What is wrong with its counters.
std::vector<std::string> check_work(const Case& item, const Counted& run);

constexpr int64_t kExpandedTile = 256;  ///< positions that the expanded attention takes at once

/// Keys that the rows of a batch attend to.
struct Keys {
  int64_t pairs = 0;                              ///< (row, key)
  int64_t different = 0;                          ///< (sequence, key)
  std::set<std::pair<int64_t, int64_t>> tiles{};  ///< (sequence, tile of kExpandedTile positions) with a key
};
Keys keys_of(const ops::Ragged& batch, const ops::Selection& selection);

}  // namespace lathe::conformance
