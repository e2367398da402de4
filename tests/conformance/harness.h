#pragma once
// Runs the case table of ops/cases for every variant of a table, against the reference.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/cases/cases.h"
#include "ops/kernel.h"

namespace lathe::conformance {

using ops::Variant;
using ops::cases::Case;
using ops::cases::Problem;

/// Where a kernel runs. One for host memory is below; a device of its own memory copies the views in and out.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual void run(const Variant& variant, const void* params, ops::OpCounters* counters) = 0;
  /// Workers of the kernels' pool.
  virtual int threads() const { return 1; }
};

/// Scratch that is full of NaN at every launch, so that nobody relies on zeros or on what the last launch left.
class PoisonedScratch : public ops::Scratch {
 public:
  explicit PoisonedScratch(int workers) : local_(static_cast<size_t>(workers)) {}
  void* shared(int64_t bytes) override { return get(shared_, bytes); }
  void* local(int worker, int64_t bytes) override { return get(local_[static_cast<size_t>(worker)], bytes); }
  void poison();
  /// Whether a kernel wrote behind what it asked for.
  bool damaged() const;

 private:
  struct Memory {
    std::vector<std::byte> bytes;
    int64_t asked = 0;
  };
  static void* get(Memory& memory, int64_t bytes);
  Memory shared_;
  std::vector<Memory> local_;
};

class HostRunner : public Runner {
 public:
  explicit HostRunner(int threads) : pool_(threads), scratch_(threads) {}
  void run(const Variant& variant, const void* params, ops::OpCounters* counters) override;
  int threads() const override { return pool_.threads(); }

 private:
  base::ThreadPool pool_;
  PoisonedScratch scratch_;
};

/// What the equality checks need: the same kernels on one thread and on several.
struct Runners {
  Runner& one;
  Runner& several;
};

/// One case on one variant: everything that is wrong, empty if nothing.
///   accuracy    against the reference, within the case's tolerance
///   damage      guard bytes, gaps between rows and inputs are as before; every output element is written
///   partition   rows or sequences alone, sequences cut at any row, other thread counts, the counting twin: the same bits
///   work        the counting twin did at least what is needed and at most what is allowed (work.h)
std::vector<std::string> check_case(const Case& item, const Variant& variant, const Variant& reference, const Runners& runners);

/// The case does not fit the variant.
bool supported(const Case& item, const Variant& variant);

struct Report {
  int ran = 0;
  int skipped = 0;
  std::vector<std::string> failures;  ///< "matmul/bf16_tail on avx2: y[3, 17] is …"
};

/// All cases of `op` (kCount: of every op) for all variants of `table`.
Report run_conformance(std::span<const Variant> table, const Runners& runners, ops::OpId op = ops::OpId::kCount);

/// "op × variant": in how many of the op's cases a variant can run, as a table for people. tables: a title and its variants.
std::string support_page(const std::vector<std::pair<std::string, std::span<const Variant>>>& tables);

// Parts of the above (compare.cc, partition.cc).

/// The first element of the outputs where `got` is not within tolerance of `reference`, or nothing.
std::string compare(const Case& item, Problem& reference, Problem& got);
/// The first output element whose bits differ (NaN equals NaN), or nothing. skip: names of views left out.
std::string compare_bits(Problem& whole, Problem& got, const std::vector<std::string>& skip = {});
/// A finite element of a pure output that still holds the poison, or nothing.
std::string unwritten(Problem& problem);
/// Computes the problem piece by piece and compares bits with `whole`.
std::vector<std::string> check_partition(const Case& item, const Variant& variant, Runner& runner, Problem& whole);
/// A fresh problem of a case, sealed.
std::unique_ptr<Problem> build(const Case& item);

}  // namespace lathe::conformance
