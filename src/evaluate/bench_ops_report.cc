// `bench ops` as a table and as JSON.

#include <fmt/format.h>

#include "evaluate/bench_ops.h"

namespace lathe::evaluate {
namespace {

using config::Json;

/// Three digits that count.
std::string short_number(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

/// "1.00" if nothing was done twice, else what was and how often.
std::string repeats(const OpBench& bench) {
  if (!bench.counted) return "-";
  std::string out;
  for (size_t i = 0; i < bench.done.size(); ++i) {
    if (bench.done[i] == bench.needed[i]) continue;
    const auto name = ops::counter_name(static_cast<ops::Counter>(i));
    if (!out.empty()) out += ", ";
    out += bench.needed[i] == 0 ? fmt::format("{} {} for 0", name, bench.done[i])
                                : fmt::format("{} {:.2f}", name, static_cast<double>(bench.done[i]) / static_cast<double>(bench.needed[i]));
  }
  return out.empty() ? "1.00" : out;
}

Json counters_json(const OpBench& bench) {
  Json::Object out;
  for (size_t i = 0; i < bench.done.size(); ++i) {
    Json::Object counter{{"needed", bench.needed[i]}};
    if (bench.counted) counter.emplace_back("done", bench.done[i]);
    out.emplace_back(std::string(ops::counter_name(static_cast<ops::Counter>(i))), std::move(counter));
  }
  return out;
}

}  // namespace

std::string ops_page(const std::vector<OpBench>& benches) {
  std::string out;
  std::string part;
  for (const OpBench& b : benches) {
    if (const std::string here = fmt::format("{} shapes, T = {}", b.shapes, b.tokens); here != part) {
      part = here;
      out += fmt::format("\n{}\n  {:<36} {:<11} {:>9} {:>17} {:>7} {:>8} {:>7} {:>6}  {}\n", part, "op", "kernel", "time µs", "lowest–highest",
                         "GB/s", "GFLOP/s", "% floor", "x ref", "done/needed");
    }
    const Summary time = summarise(b.samples);
    const std::string range = fmt::format("{}–{}", short_number(time.low / 1e3), short_number(time.high / 1e3));
    out += fmt::format("  {:<36} {:<11} {:>9} {:>17} {:>7} {:>8} {:>7} {:>6}  {}{}\n", b.op + "/" + b.name, b.variant,
                       short_number(time.median / 1e3), range, short_number((b.work.bytes_read + b.work.bytes_written) / time.median),
                       short_number(b.work.flops / time.median), share_text(b.share_of_floor()),
                       b.reference.empty() ? "-" : short_number(b.over_reference()), repeats(b), b.note.empty() ? "" : "  (" + b.note + ")");
  }
  if (out.find('*') != std::string::npos) out += fmt::format("\n{}\n", kAboveRoof);
  return out;
}

Json ops_json(const std::vector<OpBench>& benches) {
  Json::Array out;
  for (const OpBench& b : benches) {
    const Summary time = summarise(b.samples);
    Json::Object entry{{"shapes", b.shapes},
                       {"op", b.op},
                       {"name", b.name},
                       {"tokens", b.tokens},
                       {"variant", b.variant},
                       {"compute", b.work.compute == ops::Compute::kBF16 ? "bf16" : "f32"},
                       {"median_ns", time.median},
                       {"floor_ns", b.floor_ns},
                       {"share_of_floor", b.share_of_floor()},
                       {"bytes_per_second", (b.work.bytes_read + b.work.bytes_written) / time.median * 1e9},
                       {"flops_per_second", b.work.flops / time.median * 1e9},
                       {"counters", counters_json(b)},
                       {"samples", samples_json(b.samples)}};
    if (!b.reference.empty()) {
      entry.emplace_back("over_reference", b.over_reference());
      entry.emplace_back("reference",
                         Json::Object{{"tokens", b.reference_tokens}, {"work_ratio", b.reference_work}, {"samples", samples_json(b.reference)}});
    }
    if (!b.note.empty()) entry.emplace_back("note", b.note);
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace lathe::evaluate
