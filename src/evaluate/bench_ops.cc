#include "evaluate/bench_ops.h"

#include <algorithm>
#include <memory>

#include "backend/dispatch.h"
#include "base/limits.h"
#include "evaluate/bench_cases.h"
#include "evaluate/bench_profile.h"

namespace lathe::evaluate {
namespace {

using ops::Counter;
using ops::Variant;
using ops::cases::Problem;

constexpr int kSamples = 7;
constexpr int kReferenceSamples = 5;
constexpr int kRoofRounds = 2;
constexpr int64_t kSampleNs = 1'500'000;  // shortest sample: the clock and a missed wake-up must not matter
constexpr double kReferenceFlops = 1e8;   // the reference does some 0.2 to 1 GFLOP/s: a call of at most half a second
constexpr double kReferenceMost = 2e9;    // where one row alone takes more (expanded attention at published sizes), it is left out
constexpr int64_t kReferenceMemory = int64_t{1} << 30;
constexpr int64_t kSlowNs = 50'000'000;         // long enough to be timed by its first call
constexpr int64_t kVerySlowNs = 2'000'000'000;  // so long that three calls must do

std::unique_ptr<Problem> build(const ops::cases::Case& item) {
  auto problem = std::make_unique<Problem>(ops::cases::mix(static_cast<uint64_t>(item.op)));
  item.build(*problem);
  return problem;
}

class OpsRun {
 public:
  OpsRun(const BenchOpsOptions& options, Roofs& roofs, backend::Device& device) : options_(options), roofs_(roofs), device_(device) {}

  Result<OpBench> run(const std::string& shapes, const BenchCase& item) {
    const ops::OpInfo& info = ops::op_info(item.op);
    const std::unique_ptr<Problem> problem = build(item.built);
    if (const auto valid = info.validate(problem->params()); !valid) return base::forward_error(valid, std::string(info.name) + "/" + item.name);
    const auto forced = options_.kernels.find(info.name);
    const backend::Choice choice =
        backend::choose(device_.table(), item.op, problem->params(), forced == options_.kernels.end() ? "" : forced->second);
    if (choice.variant == nullptr) return err(Code::kUnimplemented, "no kernel for {}/{}: {}", info.name, item.name, choice.reason);
    OpBench out;
    out.shapes = shapes, out.op = info.name, out.name = item.name, out.variant = choice.variant->name, out.note = item.note, out.tokens = item.tokens;
    const ops::Cost cost = info.cost(problem->params());
    out.needed = cost.needed;
    out.work = work_of(cost, compute_of(item.op, problem->params()));
    LATHE_TRY(out.samples, time(*choice.variant, problem->params(), kSamples));
    LATHE_TRY_VOID(count(*choice.variant, problem->params(), out));
    roofs_.floor_ns(out.work);  // measures what it needs, now; the floors are taken at the end
    return out;
  }

  /// Times the reference, on fewer rows if all of them would take long, and not at all if one row would.
  Result<void> add_reference(const BenchCase& item, OpBench& out) {
    const std::unique_ptr<Problem> problem = build(item.built);
    const ops::Cost cost = ops::op_info(item.op).cost(problem->params());
    const auto unit = [](const ops::Cost& c) { return static_cast<double>(std::max(c[Counter::kFlops], c[Counter::kBytesWritten])); };
    const auto table = backend::reference_table();
    const auto variant = std::find_if(table.begin(), table.end(), [&](const Variant& v) { return v.op == item.op; });
    if (variant == table.end() || unit(cost) > kReferenceMost) return {};
    LATHE_TRY(out.reference, time(*variant, problem->params(), kReferenceSamples));
    out.reference_tokens = item.tokens;
    out.reference_work = std::max(out.work.flops, out.work.bytes_written) / unit(cost);
    return {};
  }

  static int64_t reference_tokens(const OpBench& bench) {
    const double per_token = bench.work.flops / static_cast<double>(bench.tokens);
    return std::clamp(static_cast<int64_t>(kReferenceFlops / std::max(per_token, 1.0)), int64_t{1}, bench.tokens);
  }

 private:
  /// Errors: resource_exhausted. A call without its scratch, and every one after it, does nothing and must not be timed.
  Result<std::vector<Sample>> time(const Variant& variant, const void* params, int count) {
    const auto call = [&] { device_.launch(variant, params, nullptr), device_.synchronise(); };
    const Sample first = clock_.take(1, call);  // pages, scratch and caches
    LATHE_TRY_VOID(device_.take_error());
    if (first.wall_ns > kVerySlowNs) {
      std::vector<Sample> slow = {first, clock_.take(1, call), clock_.take(1, call)};
      LATHE_TRY_VOID(device_.take_error());
      return slow;
    }
    int64_t took = first.wall_ns;
    if (took < kSlowNs) took = std::max<int64_t>(clock_.take(1, call).wall_ns, 1);
    const int64_t calls = std::clamp<int64_t>(kSampleNs / took + 1, 1, 20'000);
    std::vector<Sample> samples;
    for (int i = 0; i < count; ++i) {
      samples.push_back(clock_.take(calls, [&] {
        for (int64_t n = 0; n < calls; ++n) call();
      }));
    }
    LATHE_TRY_VOID(device_.take_error());
    return samples;
  }

  Result<void> count(const Variant& variant, const void* params, OpBench& out) {
    if (variant.run_counted == nullptr) return {};
    ops::OpCounters counters;
    device_.launch(variant, params, &counters);
    device_.synchronise();
    LATHE_TRY_VOID(device_.take_error());
    out.counted = true;
    for (size_t i = 0; i < out.done.size(); ++i) out.done[i] = counters.done[i].load();
    return {};
  }

  const BenchOpsOptions& options_;
  Roofs& roofs_;
  backend::Device& device_;
  SampleClock clock_;
};

/// Roofs are measured again at the end, and once more if something seems to be faster than its own.
void take_floors(Roofs& roofs, std::vector<OpBench>& benches, BenchProgress progress) {
  for (int again = 0; again < kRoofRounds; ++again) {
    progress("roofs again", again, kRoofRounds);
    roofs.measure_again();
    for (OpBench& bench : benches) bench.floor_ns = roofs.floor_ns(bench.work);
    if (std::none_of(benches.begin(), benches.end(), [](const OpBench& b) { return b.share_of_floor() > 1; })) break;
  }
}

}  // namespace

Result<void> check_bench_ops(const BenchOpsOptions& options) {
  if (!options.op.empty() && !ops::op_by_name(options.op)) return err(Code::kInvalidArgument, "--op '{}' is no op of the table", options.op);
  for (const int64_t tokens : options.tokens) {
    if (tokens < 1 || tokens > base::kLimits.benchmark_tokens)
      return err(Code::kInvalidArgument, "{} tokens: expected 1 to {}", tokens, base::kLimits.benchmark_tokens);
  }
  for (const std::string& shapes : options.shapes) LATHE_TRY_VOID(bench_cases({.name = shapes, .tokens = 1}));
  LATHE_TRY(const std::unique_ptr<backend::Device> device, backend::make_cpu_device(options.cpu));
  LATHE_TRY_VOID(backend::Dispatch::create(*device, {.kernels = options.kernels, .host_reference = backend::reference_table()}));
  return {};
}

Result<std::vector<OpBench>> bench_ops(const BenchOpsOptions& options, Roofs& roofs, BenchProgress progress) {
  LATHE_TRY_VOID(check_bench_ops(options));
  LATHE_TRY(const std::unique_ptr<backend::Device> device, backend::make_cpu_device(options.cpu));
  // A wrong name in options.kernels is an error here, with the list of the known ones.
  LATHE_TRY(const auto names, backend::Dispatch::create(*device, {.kernels = options.kernels, .host_reference = backend::reference_table()}));
  OpsRun run(options, roofs, *device);
  // Half of what is free: a case is filled while the last one's pages may still be on their way back.
  const int64_t memory = machine_facts().available_bytes / 2;
  std::vector<OpBench> out;
  for (const std::string& shapes : options.shapes) {
    for (const int64_t tokens : options.tokens) {
      LATHE_TRY(const auto cases, bench_cases({.name = shapes, .tokens = tokens, .compute = options.compute, .memory_bytes = memory}));
      int64_t done = 0;
      for (const BenchCase& item : cases) {
        progress(shapes + " shapes", done++, static_cast<int64_t>(cases.size()));
        if (!options.op.empty() && options.op != ops::op_info(item.op).name) continue;
        LATHE_TRY(OpBench bench, run.run(shapes, item));
        if (options.reference) {
          // One row needs few experts: they need not be filled again.
          const int64_t rows = OpsRun::reference_tokens(bench);
          LATHE_TRY(const auto fewer, bench_cases({.name = shapes, .tokens = rows, .compute = options.compute, .memory_bytes = kReferenceMemory}));
          const auto same = std::find_if(fewer.begin(), fewer.end(), [&](const BenchCase& c) { return c.op == item.op && c.name == item.name; });
          if (same != fewer.end()) LATHE_TRY_VOID(run.add_reference(*same, bench));  // one row alone is no batch
        }
        out.push_back(std::move(bench));
      }
    }
  }
  take_floors(roofs, out, progress);
  return out;
}

}  // namespace lathe::evaluate
