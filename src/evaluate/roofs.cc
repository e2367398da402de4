// The roofs of machine.h: what moves and computes at best.

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

constexpr int kRoofSamples = 5;
constexpr int64_t kSampleNs = 4'000'000;  // long against waking a thread, short against a machine's moods

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

Roofs::Roof Roofs::measure(double work_per_round, Task task) {
  const auto time = [&](int64_t rounds) {
    const int64_t start = base::now_ns();
    pool_.for_each(pool_.threads(), [&](int64_t part, int) { task(static_cast<int>(part), rounds); });
    return std::max<int64_t>(base::now_ns() - start, 1);
  };
  time(1);
  int64_t rounds = 1;
  for (int64_t took = time(rounds); took < kSampleNs; took = time(rounds)) rounds *= std::clamp<int64_t>(kSampleNs / took + 1, 2, 64);
  Roof roof;
  for (int i = 0; i < kRoofSamples; ++i)
    roof.samples.push_back(work_per_round * static_cast<double>(rounds) * 1e9 / static_cast<double>(time(rounds)));
  roof.value = *std::max_element(roof.samples.begin(), roof.samples.end());
  return roof;
}

Roofs::Roof Roofs::loop(const RoofLoop& loop) {
  if (loop.run == nullptr) return {};
  constexpr int64_t kRounds = 256;  // of the loop for one of ours: a call costs nothing then
  return measure(static_cast<double>(loop.operations) * kRounds * pool_.threads(),
                 [&](int, int64_t rounds) { sink_.store(std::bit_cast<uint32_t>(loop.run(rounds * kRounds)), std::memory_order_relaxed); });
}

const Roofs::Roof& Roofs::bandwidth(std::map<int64_t, Roof>& known, int64_t working_set, bool copy) {
  const int64_t set = rounded_set(working_set);
  const auto found = known.find(set);
  if (found != known.end()) return found->second;
  const int64_t parts = static_cast<int64_t>(pool_.threads()) * (copy ? 2 : 1);
  const int64_t part = std::max(set / parts / kRoofStep, int64_t{1}) * kRoofStep;
  if (static_cast<int64_t>(memory_.size()) < part * parts + 64) memory_.assign(static_cast<size_t>(part * parts + 64), std::byte{1});
  char* const base = aligned(memory_);
  const kernels::cpu::RoofIsa& isa = *loops_.isa;
  const Roof roof = measure(static_cast<double>(part * parts), [&](int thread, int64_t rounds) {
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
  return known.emplace(set, roof).first->second;
}

double Roofs::read_bandwidth(int64_t working_set) { return bandwidth(read_, working_set, false).value; }
double Roofs::copy_bandwidth(int64_t working_set) { return bandwidth(copy_, working_set, true).value; }

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
  const double computing = work.flops / (work.compute == ops::Compute::kBF16 ? bf16_flops() : f32_flops());
  return std::max(moving, computing) * 1e9;
}

config::Json Roofs::json() const {
  config::Json::Object out{{"level", loops_.isa->name}, {"threads", pool_.threads()}};
  const auto add = [&](const char* name, const Roof& roof) {
    if (!roof.samples.empty()) out.emplace_back(name, config::Json::Object{{"best", roof.value}, {"samples", samples(roof.samples)}});
  };
  add("f32_flops", f32_), add("bf16_flops", bf16_), add("int8_operations", int8_);
  const auto add_sets = [&](const char* name, const std::map<int64_t, Roof>& roofs) {
    config::Json::Array list;
    for (const auto& [set, roof] : roofs) {
      list.push_back(config::Json::Object{{"working_set", set}, {"bytes_per_second", roof.value}, {"samples", samples(roof.samples)}});
    }
    out.emplace_back(name, std::move(list));
  };
  add_sets("read", read_), add_sets("copy", copy_);
  return out;
}

}  // namespace lathe::evaluate
