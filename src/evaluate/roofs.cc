// The roofs of machine.h: what moves and computes at best.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "evaluate/bench_statistics.h"
#include "evaluate/machine.h"

namespace lathe::evaluate {
namespace {

using kernels::cpu::kRoofStep;
using kernels::cpu::RoofLoop;

constexpr int64_t kMoveSampleNs = 4'000'000;   // there are many working sets
constexpr int64_t kLoopSampleNs = 20'000'000;  // long enough for a core's clock to settle
constexpr int64_t kMeetNs = 2'000'000;         // threads wait for each other before a sample; one that comes later than this spoils it

/// The next of eight sizes an octave: near enough to the true one, and few enough to measure.
int64_t rounded_set(int64_t bytes) {
  const int64_t set = std::clamp(bytes, Roofs::kSmallestSet, Roofs::kLargestSet);
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(set))) / 8;
  return (set + step - 1) / step * step;
}

char* aligned(std::vector<std::byte>& memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return reinterpret_cast<char*>((address + 63) / 64 * 64);
}

config::Json samples(const std::vector<double>& values) {
  config::Json::Array out;
  for (const double value : values) out.push_back(value);
  return out;
}

}  // namespace

Roofs::Roofs(int threads) : pool_(threads > 0 ? threads : base::default_thread_count()), loops_(kernels::cpu::roof_loops()) {}

Peak Roofs::measure(double work_per_round, int64_t sample_ns, Task task) {
  const auto run = [&](int64_t rounds) {
    std::vector<PartTime> parts(static_cast<size_t>(pool_.threads()));
    std::atomic<int> arrived{0};
    pool_.for_each(pool_.threads(), [&](int64_t part, int worker) {
      ++arrived;
      for (const int64_t deadline = base::now_ns() + kMeetNs; arrived.load() < pool_.threads() && base::now_ns() < deadline;) {
      }
      PartTime& time = parts[static_cast<size_t>(part)];
      time.worker = worker, time.start_ns = base::now_ns();
      task(static_cast<int>(part), rounds);
      time.end_ns = base::now_ns();
    });
    return parts;
  };
  return measure_peak(run, work_per_round, {.sample_ns = sample_ns});
}

Peak Roofs::loop(const RoofLoop& loop) {
  if (loop.run == nullptr) return {};
  constexpr int64_t kRounds = 256;  // of the loop for one of ours: a call costs nothing then
  return measure(static_cast<double>(loop.operations) * kRounds * pool_.threads(), kLoopSampleNs,
                 [&](int, int64_t rounds) { sink_.store(std::bit_cast<uint32_t>(loop.run(rounds * kRounds)), std::memory_order_relaxed); });
}

Peak Roofs::move(int64_t set, Move how) {
  const bool copy = how == Move::kCopy;
  const int64_t parts = static_cast<int64_t>(pool_.threads()) * (copy ? 2 : 1);
  const int64_t part = std::max(set / parts / kRoofStep, int64_t{1}) * kRoofStep;
  if (static_cast<int64_t>(memory_.size()) < part * parts + 64) memory_.assign(static_cast<size_t>(part * parts + 64), std::byte{1});
  char* const base = aligned(memory_);
  const kernels::cpu::RoofIsa& isa = *loops_.isa;
  return measure(static_cast<double>(part * parts), kMoveSampleNs, [&](int thread, int64_t rounds) {
    uint32_t all = 0;
    for (int64_t i = 0; i < rounds; ++i) {
      if (copy) {
        isa.copy(base + (2 * thread + 1) * part, base + 2 * thread * part, part);
      } else {
        all |= isa.read(base + thread * part, part);
      }
    }
    sink_.store(all, std::memory_order_relaxed);
  });
}

double Roofs::bandwidth(std::map<int64_t, Peak>& known, int64_t working_set, Move how) {
  const int64_t set = rounded_set(working_set);
  auto found = known.find(set);
  if (found == known.end()) found = known.emplace(set, move(set, how)).first;
  return found->second.value;
}

double Roofs::read_bandwidth(int64_t working_set) { return bandwidth(read_, working_set, Move::kRead); }
double Roofs::copy_bandwidth(int64_t working_set) { return bandwidth(copy_, working_set, Move::kCopy); }

double Roofs::f32_flops() {
  if (f32_.samples.empty()) f32_ = loop(loops_.isa->multiply_add);
  return f32_.value;
}

double Roofs::bf16_flops() {
  if (loops_.bf16.run == nullptr) return f32_flops();
  if (bf16_.samples.empty()) bf16_ = loop(loops_.bf16);
  return bf16_.value;
}

double Roofs::int8_operations() {
  if (loops_.int8.run != nullptr && int8_.samples.empty()) int8_ = loop(loops_.int8);
  return int8_.value;
}

double Roofs::floor_ns(const Work& work, double working_set) {
  const auto set = static_cast<int64_t>(working_set > 0 ? working_set : work.bytes_read + work.bytes_written);
  const double copied = 2 * std::min(work.bytes_read, work.bytes_written);
  const double written = std::max(work.bytes_written - work.bytes_read, 0.0);  // without a partner: still a store
  const double read = std::max(work.bytes_read - work.bytes_written, 0.0);
  double moving = read / read_bandwidth(set);
  if (copied + written > 0) moving += (copied + written) / copy_bandwidth(set);
  return std::max(moving, work.flops / operations(work.compute)) * 1e9;
}

double Roofs::operations(ops::Compute compute) {
  if (compute == ops::Compute::kF32) return f32_flops();
  const double int8 = compute == ops::Compute::kInt8 ? int8_operations() : 0;
  return int8 > 0 ? int8 : bf16_flops();
}

void Roofs::measure_again() {
  if (!f32_.samples.empty()) f32_ = merged(f32_, loop(loops_.isa->multiply_add));
  if (!bf16_.samples.empty()) bf16_ = merged(bf16_, loop(loops_.bf16));
  if (!int8_.samples.empty()) int8_ = merged(int8_, loop(loops_.int8));
  for (auto& [set, peak] : read_) peak = merged(peak, move(set, Move::kRead));
  for (auto& [set, peak] : copy_) peak = merged(peak, move(set, Move::kCopy));
}

bool Roofs::reliable() const {
  const auto of_sets = [](const std::map<int64_t, Peak>& peaks) {
    return std::all_of(peaks.begin(), peaks.end(), [](const auto& entry) { return entry.second.together; });
  };
  return f32_.together && bf16_.together && int8_.together && of_sets(read_) && of_sets(copy_);
}

std::string share_text(double share) { return fmt::format("{:.1f}{}", 100 * share, share > 1.0005 ? "*" : ""); }

config::Json Roofs::json() const {
  config::Json::Object out{{"level", loops_.isa->name}, {"threads", pool_.threads()}};
  const auto add = [&](const char* name, const Peak& roof) {
    if (roof.samples.empty()) return;
    out.emplace_back(name, config::Json::Object{
                               {"best", roof.value}, {"samples", samples(roof.samples)}, {"rejected", roof.rejected}, {"together", roof.together}});
  };
  add("f32_flops", f32_), add("bf16_flops", bf16_), add("int8_operations", int8_);
  const auto add_sets = [&](const char* name, const std::map<int64_t, Peak>& roofs) {
    config::Json::Array list;
    for (const auto& [set, roof] : roofs) {
      list.push_back(config::Json::Object{{"working_set", set},
                                          {"bytes_per_second", roof.value},
                                          {"samples", samples(roof.samples)},
                                          {"rejected", roof.rejected},
                                          {"together", roof.together}});
    }
    out.emplace_back(name, std::move(list));
  };
  add_sets("read", read_), add_sets("copy", copy_);
  return out;
}

}  // namespace lathe::evaluate
