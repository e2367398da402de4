#pragma once
// The machine a measurement ran on: facts, and its roofs measured in the same run.

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/threads.h"
#include "config/json.h"
#include "evaluate/roof_sampling.h"
#include "kernels/cpu/roofs.h"
#include "ops/op.h"

namespace lathe::evaluate {

/// What may explain a number later. Text is empty where the system does not say.
struct MachineFacts {
  std::string id;  ///< "amd-epyc-f26m2-2cpu": folder of this machine's recorded baselines
  std::string cpu;
  std::string kernel;    ///< operating system
  std::string governor;  ///< of processor 0
  std::string caches;    ///< "L1d 48K, L2 1024K, L3 32768K"
  std::string isa;       ///< best level
  std::string binary;    ///< hash of the running program, "fnv1a64:…"
  std::string commit;    ///< of the source tree, if it is still there
  int processors = 0;
  int64_t memory_bytes = 0;
  int64_t available_bytes = 0;  ///< that programs could take now
};
MachineFacts machine_facts();

/// How busy the machine is: before and after a measurement.
struct MachineLoad {
  double load1 = 0, load5 = 0, load15 = 0;
  int64_t steal_ticks = 0;  ///< since the system started
};
MachineLoad machine_load();

config::Json machine_json(const MachineFacts& facts, const MachineLoad& begin, const MachineLoad& end);

/// The work of some calls, for a floor.
struct Work {
  double bytes_read = 0;
  double bytes_written = 0;
  double flops = 0;
  ops::Compute compute = ops::Compute::kF32;
};

/// What all threads together reach at best, for working sets of any size. Measured when first asked for and then kept: so in the same run as what is
/// compared with it. The best of several samples in which all threads ran at once (roof_sampling.h).
///
/// Threads  the creating thread; the measuring loops run on a pool of their own.
class Roofs {
 public:
  explicit Roofs(int threads);

  int threads() const { return pool_.threads(); }
  /// Bytes per second when every thread reads its part of `working_set` bytes again and again. Sizes beyond kLargestSet count as that large.
  double read_bandwidth(int64_t working_set);
  /// Bytes read plus bytes written per second, half of the set being copied to the other half.
  double copy_bandwidth(int64_t working_set);
  double f32_flops();
  /// Dot products of BF16 pairs; where the processor has none, that of f32.
  double bf16_flops();
  /// Operations per second of dot products of bytes; 0: the processor has none.
  double int8_operations();
  /// Operations per second of products in that precision.
  double operations(ops::Compute compute);

  /// The least time of some work whose data form one working set: the larger of moving (pairs of read and written bytes as a copy, the rest as reading) and
  /// computing, in nanoseconds. working_set: what the data belong to, if that is more than they themselves (0: it is not).
  double floor_ns(const Work& work, double working_set = 0);

  /// Measures every roof that was asked for once more and keeps the better value: a machine that was busy before may be quiet now. Floors are taken
  /// after the last call, so that all of them rest on the same roofs.
  void measure_again();
  /// False: of some roof no sample counted, because the threads never ran at once. It is too low.
  bool reliable() const;

  /// Every roof that was asked for, with its samples.
  config::Json json() const;

  static constexpr int64_t kSmallestSet = int64_t{1} << 14;
  static constexpr int64_t kLargestSet = int64_t{1} << 28;

 private:
  using Task = base::FunctionRef<void(int thread, int64_t rounds)>;
  Peak measure(double work_per_round, int64_t sample_ns, Task task);
  Peak loop(const kernels::cpu::RoofLoop& loop);
  enum class Move : uint8_t { kRead, kCopy };
  Peak move(int64_t set, Move how);
  double bandwidth(std::map<int64_t, Peak>& known, int64_t working_set, Move how);

  base::ThreadPool pool_;
  kernels::cpu::RoofLoops loops_;
  std::vector<std::byte> memory_;
  std::map<int64_t, Peak> read_, copy_;  ///< by working set
  Peak f32_, bf16_, int8_;
  std::atomic<uint32_t> sink_{0};  ///< keeps the loops' results wanted
};

/// A share of a floor or a peak in percent; above 100 it is marked, and the page ends with kAboveRoof.
std::string share_text(double share);
inline constexpr const char* kAboveRoof =
    "* faster than its roof: the data lay nearer than a working set of that size does, or other work on the machine kept the roof low; measure again "
    "alone";

}  // namespace lathe::evaluate
