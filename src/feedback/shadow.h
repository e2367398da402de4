#pragma once
// Every op call checked against the reference on its own inputs, while a model runs.

#include <array>
#include <string>
#include <vector>

#include "backend/dispatch.h"
#include "backend/host_context.h"
#include "backend/observe_ops.h"

namespace lathe::feedback {

/// Compares outputs with kernels/ref. Ops that change a tensor in place (pools, rings) are passed over: their inputs are gone when the call is done.
/// Choices (kRoute, kIndexSelect) are judged by their scores, so that a near-tie is no error: what was chosen may score at most kNearTie less than
/// what was not.
class ShadowObserver final : public backend::OpObserver {
 public:
  explicit ShadowObserver(backend::Device& device) : mirror_(device), context_(1) {}
  void after(backend::OpCall& call, backend::Device& device) override;

  struct Finding {
    int64_t calls = 0;
    double worst = 0;   ///< largest difference over the largest reference value of the output; choices: share of rows that are wrong
    std::string where;  ///< site and layer of the worst
  };
  const Finding& finding(ops::OpId op) const { return findings_[static_cast<size_t>(op)]; }
  /// resource_exhausted if a call was passed over: no memory for copies of its tensors, or none for the scratch of the reference.
  Result<void> status() const { return status_ ? mirror_.status() : status_; }

 private:
  /// Worst difference; −1: not comparable.
  Result<double> compare(const ops::OpInfo& info, const void* params);
  Result<double> compare_selection(const void* params);
  Result<double> compare_route(const void* params);
  Result<void> run_reference(ops::OpId op, const void* params);

  static constexpr double kNearTie = 1e-4;
  backend::CallMirror mirror_;
  backend::HostContext context_;
  Result<void> status_;
  std::array<Finding, ops::kOpCount> findings_;
};

}  // namespace lathe::feedback
