#pragma once
// The one point that every op call passes: plan, choice of a variant, fallbacks, observation.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/device.h"
#include "ops/op.h"

namespace lathe::backend {

class Dispatch;

/// How a call site is served.
enum class Route : uint8_t { kUnplanned, kNative, kComposition, kHostReference };

/// A composition of other ops that means the same as the op. It calls `dispatch.run` for its parts and takes temporaries from dispatch.temporary().
/// Parts run natively: compositions are not nested.
struct Composition {
  ops::OpId op = ops::OpId::kCount;
  const char* name = "";                           ///< its parts: "matmul+swiglu"; what --kernel op=NAME forces
  std::vector<ops::OpId> needs{};                  ///< ops that the device must have
  bool (*supports)(const void* params) = nullptr;  ///< null: every problem
  void (*run)(const void* params, struct OpSite& site, Dispatch& dispatch) = nullptr;
};
std::span<const Composition> compositions();

/// [begin, end); empty: none, or not known.
struct OpRange {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const OpRange&, const OpRange&) = default;
};

/// One place in the model where an op is called; lives in the model, planned once.
struct OpSite {
  const char* name = "";  ///< "kda.projections"
  int32_t layer = -1;
  OpRange heads{};  ///< heads of the whole model that this rank works on here; empty: the work is not by head
  // Set by the plan pass:
  ops::OpId op = ops::OpId::kCount;  ///< a site always calls the same op
  Route route = Route::kUnplanned;
  const ops::Variant* variant = nullptr;
  const Composition* composition = nullptr;
  std::string reason{};  ///< why this one: "first that supports it", "forced by --kernel", "avx512_bf16: needs compute bf16; …"
  int64_t fallback_calls = 0;
  std::unique_ptr<std::vector<OpSite>> parts{};  ///< sites of a composition
};

/// What an observer learns about one call.
struct OpCall {
  const ops::OpInfo* info = nullptr;
  const OpSite* site = nullptr;
  int32_t rank = 0;
  OpRange tokens{};  ///< positions in their sequences that the pass covers: from the lowest to one past the highest; empty outside text passes
  OpRange heads{};   ///< of the site
  int64_t call = 0;  ///< number of this observed call since the dispatch was made
  const char* variant = "";
  void* params = nullptr;                          ///< a copy: views may be replaced in before()
  const ops::OpCounters* counters = nullptr;       ///< set in after() if wants_counters() and every kernel that ran has a counting twin
  int64_t ready_ns = 0, start_ns = 0, end_ns = 0;  ///< set in after(); without the time of the observer itself
};

/// Watches calls: may count, hash, dump or replace tensors. Called on the rank's thread; the device is idle in before() and after().
/// A call that failed has no after().
/// A composition is one call: its parts are not observed, their counters add up.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual bool wants_counters(const OpCall&) { return false; }
  /// May replace views in call.params (device memory of the same shape) or change what they point to through the device.
  virtual void before(OpCall&, Device&) {}
  virtual void after(OpCall&, Device&) {}
};

struct DispatchOptions {
  bool no_fallback = false;  ///< a composition or the host reference is an error
  /// --kernel op=variant. Where the variant does not support a site, the first that does is taken and the reason says so.
  /// A composition's name and "host" (the host reference) can be forced as well.
  std::map<std::string, std::string> kernels{};
  std::span<const ops::Variant> host_reference{};  ///< kernels/ref, for devices that lack an op
  int32_t rank = 0;
};

/// Runs ops on one device.
///
/// Planning  Between begin_plan() and end_plan(), run() launches nothing: it validates params and chooses for each site. A forward pass in this mode plans itself.
/// Running   run() at a planned site without observer is one branch and the launch. A site that was never planned is planned on its first call
///           (a failure there is a CHECK: plan first). Builds with LATHE_DCHECKS validate the params of every call.
/// Fallbacks A site without a native variant is served by the first composition whose parts all have one, else by the host reference.
/// Threads   one: the rank's. Sites must outlive the Dispatch or not be listed after their end.
class Dispatch {
 public:
  /// Errors: invalid_argument (unknown op or variant in options.kernels; the message lists the known ones).
  static Result<std::unique_ptr<Dispatch>> create(Device& device, DispatchOptions options);
  ~Dispatch();

  template <class Params>
  void run(OpSite& site, const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params>);
#ifdef LATHE_DCHECKS
    check_params(site, Params::kId, &params);
#endif
    if (fast_ && site.route == Route::kNative) [[likely]] {
      device_.launch(*site.variant, &params, nullptr);
      return;
    }
    run_slow(site, Params::kId, &params, sizeof(Params));
  }

  void begin_plan();
  /// The first error of the pass: invalid params, no kernel and no fallback, fallback under no_fallback.
  Result<void> end_plan();
  bool planning() const { return planning_; }

  /// What went wrong with a call since the last take_error() (resource_exhausted: no scratch for a kernel, no host memory for a fallback). Calls after it
  /// did nothing: whoever made them asks here before using their results.
  Result<void> take_error();
  /// The same without taking it: null, or what take_error() will say. Device idle or not: of a launch that is still on its way nothing is known.
  const Error* failure();
  /// Says for the dispatch that what it runs for has failed: calls do nothing until take_error(). An earlier failure stays.
  void fail(Error error);

  /// Null switches observation off. Not owned.
  void set_observer(OpObserver* observer);
  /// What observers are told as OpCall::tokens from now on; the model sets it at the start of a pass.
  void set_tokens(OpRange positions) { tokens_ = positions; }
  /// For the timeline: the device's spans, with layer, rank and tokens. Null switches it off. Not owned.
  void set_recorder(base::Recorder* recorder);

  /// Device memory for compositions; the same index gives the same memory, grown when needed (what it held is then lost). Not zeroed.
  void* temporary(int index, int64_t bytes);
  /// Device memory with at least `count` floats of this value, for compositions. Read only.
  float* constant(float value, int64_t count);

  Device& device() { return device_; }
  const DispatchOptions& options() const { return options_; }
  /// Every site planned so far, in order of first plan (inspect lists them).
  const std::vector<const OpSite*>& sites() const { return sites_; }
  /// Calls served by a composition or the host reference since creation.
  int64_t fallback_calls() const { return fallback_calls_; }

 private:
  Dispatch(Device& device, DispatchOptions options);
  void run_slow(OpSite& site, ops::OpId op, const void* params, size_t bytes);
  Result<void> plan_site(OpSite& site, ops::OpId op, const void* params);
  void run_planned(OpSite& site, const void* params, ops::OpCounters* counters);
  Result<void> plan_composition(OpSite& site, const Composition& composition, const void* params);
  void list(const OpSite& site);
  void forget_parts(OpSite& site);
  Result<void> plan_fallback(OpSite& site, const void* params, const std::string& why_not_native, const std::string& forced);
  void run_native(OpSite& site, const void* params, ops::OpCounters* counters);
  void run_host_reference(OpSite& site, const void* params, ops::OpCounters* counters);
  void run_observed(OpSite& site, const void* params, size_t bytes);
  void check_params(const OpSite& site, ops::OpId op, const void* params);
  void update_fast();

  Device& device_;
  DispatchOptions options_;
  bool fast_ = true;  ///< neither planning, observed nor recorded
  bool planning_ = false;
  OpRange tokens_;
  int64_t fallback_calls_ = 0;
  std::vector<const OpSite*> sites_;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Pure choice among native variants: the forced one, else the first that supports the problem.
struct Choice {
  const ops::Variant* variant = nullptr;  ///< null: none
  std::string reason;                     ///< also why those before it were passed over
};
Choice choose(std::span<const ops::Variant> table, ops::OpId op, const void* params, const std::string& forced);

}  // namespace lathe::backend
