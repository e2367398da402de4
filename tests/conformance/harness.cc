#include "harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/ref/reference.h"
#include "work.h"

namespace lathe::conformance {
namespace {

constexpr int64_t kGuard = 64;
constexpr std::byte kJunk{0xFF};  // NaN in every float format

}  // namespace

void* PoisonedScratch::get(Memory& memory, int64_t bytes) {
  memory.asked = std::max(memory.asked, bytes);
  if (static_cast<int64_t>(memory.bytes.size()) < bytes + 2 * kGuard) memory.bytes.resize(static_cast<size_t>(bytes + 2 * kGuard), kJunk);
  auto* const start = memory.bytes.data();
  return start + (kGuard - static_cast<int64_t>(reinterpret_cast<uintptr_t>(start) % kGuard));
}

void PoisonedScratch::poison() {
  const auto fill = [](Memory& memory) { std::fill(memory.bytes.begin(), memory.bytes.end(), kJunk), memory.asked = 0; };
  fill(shared_);
  for (Memory& memory : local_) fill(memory);
}

bool PoisonedScratch::damaged() const {
  const auto wrong = [](const Memory& memory) {
    if (memory.bytes.empty()) return false;
    const auto skip = kGuard - static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.bytes.data()) % kGuard) + memory.asked;
    return std::any_of(memory.bytes.begin() + skip, memory.bytes.end(), [](std::byte b) { return b != kJunk; });
  };
  return wrong(shared_) || std::any_of(local_.begin(), local_.end(), wrong);
}

void HostRunner::run(const Variant& variant, const void* params, ops::OpCounters* counters) {
  scratch_.poison();
  const ops::LaunchContext context{.pool = &pool_, .scratch = &scratch_, .counters = counters};
  (counters != nullptr ? variant.run_counted : variant.run)(params, context);
  LATHE_CHECK(!scratch_.damaged(), "{} of {} wrote behind its scratch", variant.name, ops::op_info(variant.op).name);
}

std::unique_ptr<Problem> build(const Case& item) {
  auto problem = std::make_unique<Problem>(ops::cases::mix(static_cast<uint64_t>(item.op) * 1000 + item.name.size()));
  item.build(*problem);
  problem->seal();
  return problem;
}

bool supported(const Case& item, const Variant& variant) {
  if (variant.op != item.op) return false;
  const std::unique_ptr<Problem> problem = build(item);
  return variant.supports(problem->params());
}

namespace {

void note(std::vector<std::string>& wrong, const char* what, const std::string& text) {
  if (!text.empty()) wrong.push_back(fmt::format("{}{}", what, text));
}

/// The counting twin: same bits, and neither less work than needed nor more than the kernel's design repeats.
void check_twin(const Case& item, const Variant& variant, Runner& runner, Problem& whole, std::vector<std::string>& wrong) {
  if (variant.run_counted == nullptr) return;
  const std::unique_ptr<Problem> twin = build(item);
  ops::OpCounters counters;
  runner.run(variant, twin->params(), &counters);
  note(wrong, "counting twin: ", compare_bits(whole, *twin));
  const Counted run{.variant = variant, .params = twin->params(), .counters = counters, .threads = runner.threads()};
  for (const std::string& text : check_work(item, run)) wrong.push_back(text);
}

}  // namespace

std::vector<std::string> check_case(const Case& item, const Variant& variant, const Variant& reference, const Runners& runners) {
  std::vector<std::string> wrong;
  const std::unique_ptr<Problem> expected = build(item);
  if (const Result<void> valid = ops::op_info(item.op).validate(expected->params()); !valid) return {"invalid case: " + valid.error().message};
  runners.one.run(reference, expected->params(), nullptr);
  const std::unique_ptr<Problem> whole = build(item);
  runners.one.run(variant, whole->params(), nullptr);
  note(wrong, "", whole->damage());
  note(wrong, "", unwritten(*whole));
  note(wrong, "", compare(item, *expected, *whole));
  const std::unique_ptr<Problem> threads = build(item);
  runners.several.run(variant, threads->params(), nullptr);
  note(wrong, "several threads: ", compare_bits(*whole, *threads));
  note(wrong, "several threads: ", threads->damage());
  check_twin(item, variant, runners.several, *whole, wrong);
  for (const std::string& text : check_partition(item, variant, runners.one, *whole)) wrong.push_back(text);
  return wrong;
}

namespace {

const Variant& reference_of(ops::OpId op) {
  for (const Variant& variant : kernels::ref::reference_variants()) {
    if (variant.op == op) return variant;
  }
  LATHE_CHECK(false, "no reference for op {}", static_cast<int>(op));
  return kernels::ref::reference_variants()[0];
}

}  // namespace

Report run_conformance(std::span<const Variant> table, const Runners& runners, ops::OpId op) {
  Report report;
  for (const Variant& variant : table) {
    if (op != ops::OpId::kCount && variant.op != op) continue;
    for (const Case& item : ops::cases::all_cases()) {
      if (item.op != variant.op) continue;
      if (!supported(item, variant)) {
        ++report.skipped;
        continue;
      }
      ++report.ran;
      for (const std::string& text : check_case(item, variant, reference_of(item.op), runners)) {
        report.failures.push_back(fmt::format("{}/{} on {}: {}", ops::op_info(item.op).name, item.name, variant.name, text));
      }
    }
  }
  return report;
}

std::string support_page(const std::vector<std::pair<std::string, std::span<const Variant>>>& tables) {
  std::string page;
  for (const auto& [title, table] : tables) {
    page += fmt::format("{}\n  {:<16} {:<24} {:>5}  cases\n", title, "op", "variant", "yes/no");
    for (int i = 0; i < ops::kOpCount; ++i) {
      const auto op = static_cast<ops::OpId>(i);
      bool any = false;
      for (const Variant& variant : table) {
        if (variant.op != op) continue;
        any = true;
        int all = 0;
        int yes = 0;
        for (const Case& item : ops::cases::all_cases()) {
          if (item.op != op) continue;
          ++all;
          yes += supported(item, variant) ? 1 : 0;
        }
        page += fmt::format("  {:<16} {:<24} {:>6}  {} of {}\n", ops::op_info(op).name, variant.name, yes > 0 ? "yes" : "no", yes, all);
      }
      if (!any) page += fmt::format("  {:<16} {:<24} {:>6}\n", ops::op_info(op).name, "-", "no");
    }
  }
  return page;
}

}  // namespace lathe::conformance
