// `bench model` as a table and as JSON.

#include <fmt/format.h>

#include <algorithm>

#include "evaluate/bench_model.h"

namespace lathe::evaluate {
namespace {

using config::Json;

constexpr size_t kSitesShown = 14;

/// FLOP/s of the linears over the time that they take alone, and over the time of everything.
struct LinearRates {
  double alone = 0, overall = 0;
};
LinearRates linear_rates(const PrefillBench& bench) {
  const double flops = bench.profile.linear_flops();
  const double time = summarise(bench.samples).median * static_cast<double>(bench.tokens);
  return {.alone = flops / std::max(bench.profile.linear_time_ns(), 1.0) * 1e9, .overall = flops / time * 1e9};
}

std::string prefill_page(const ModelBench& bench) {
  const bool figures = bench.bf16_flops > 0;
  std::string out = fmt::format("\nPrompts           {:>10} {:>21} {:>12} {:>14} {:>14} {:>11}\n", "tokens/s", "lowest–highest", "µs a token",
                                "linears % peak", "overall % peak", "index scan");
  for (const PrefillBench& p : bench.prefill) {
    const Summary time = summarise(p.samples);
    out += fmt::format("  {:>8} tokens {:>10.0f} {:>21} {:>12.1f}", p.tokens, p.rate(), fmt::format("{:.0f}–{:.0f}", 1e9 / time.high, 1e9 / time.low),
                       time.median / 1e3);
    if (figures) {
      const LinearRates rates = linear_rates(p);
      out += fmt::format(" {:>14} {:>14} {:>10.1f}%", share_text(rates.alone / bench.bf16_flops), share_text(rates.overall / bench.bf16_flops),
                         100 * p.scan_share());
    }
    out += '\n';
  }
  return out;
}

/// The longest prompt against the one of 4,096 tokens: what is not the index scan must not grow.
std::string long_page(const ModelBench& bench) {
  const auto base = std::find_if(bench.prefill.begin(), bench.prefill.end(), [](const PrefillBench& p) { return p.tokens == 4096; });
  const auto longest =
      std::max_element(bench.prefill.begin(), bench.prefill.end(), [](const PrefillBench& a, const PrefillBench& b) { return a.tokens < b.tokens; });
  if (base == bench.prefill.end() || longest->tokens <= base->tokens || bench.bf16_flops <= 0) return "";
  return fmt::format("  a token of {} takes {:.2f} x one of 4096; apart from the index scan {:.2f} x ({:.1f} and {:.1f} µs)\n", longest->tokens,
                     summarise(longest->samples).median / summarise(base->samples).median, longest->ns_without_scan() / base->ns_without_scan(),
                     longest->ns_without_scan() / 1e3, base->ns_without_scan() / 1e3);
}

std::string decode_page(const ModelBench& bench) {
  const bool figures = bench.bf16_flops > 0;
  std::string out = fmt::format("\nDecoding          {:>10} {:>21} {:>12} {:>8} {:>12} {:>12} {:>10} {:>11}\n", "tokens/s", "lowest–highest",
                                "µs a step", "% floor", "MB a step", "of weights", "of states", "allocations");
  for (const DecodeBench& d : bench.decode) {
    const Summary time = summarise(d.samples);
    const double all = static_cast<double>(d.batch) * 1e9;
    out += fmt::format("  {:>5} sequences {:>10.0f} {:>21} {:>12.0f}", d.batch, d.rate(),
                       fmt::format("{:.0f}–{:.0f}", all / time.high, all / time.low), time.median / 1e3);
    if (figures) {
      out += fmt::format(" {:>8} {:>12.2f} {:>12} {:>10.2f}", share_text(d.floor_ns / time.median), d.bytes / 1e6,
                         fmt::format("{:.2f}/{:.2f}", d.weight_bytes_done / 1e6, d.weight_bytes_needed / 1e6), d.state_bytes / 1e6);
    }
    out += d.allocations < 0 ? fmt::format(" {:>11}\n", "-") : fmt::format(" {:>11}\n", d.allocations);
  }
  const auto of = [&](int64_t batch) {
    return std::find_if(bench.decode.begin(), bench.decode.end(), [=](const DecodeBench& d) { return d.batch == batch; });
  };
  if (of(1) != bench.decode.end() && of(16) != bench.decode.end()) {
    out += fmt::format("  16 sequences give {:.2f} x the tokens of one", of(16)->rate() / of(1)->rate());
    out += figures ? fmt::format("; their step takes {:.2f} x its own floor\n", of(16)->step_ns() / of(16)->floor_ns) : "\n";
  }
  for (const DecodeBench& d : bench.decode) {
    if (!figures) break;
    out += fmt::format("  observation, switched off: {:.0f} calls x {:.1f} ns = {:.3f} % of a step of {} (to stay below 1 %)\n", d.calls,
                       bench.dispatch_ns, 100 * bench.dispatch_share(d), d.batch);
  }
  return out;
}

}  // namespace

std::string model_page(const ModelBench& bench) {
  std::string out;
  if (!bench.prefill.empty()) out += prefill_page(bench) + long_page(bench);
  if (!bench.decode.empty()) out += decode_page(bench);
  if (bench.bf16_flops <= 0) return out;
  if (!bench.decode.empty()) {
    out += fmt::format("\n  Where a decode step of {} goes\n", bench.decode.front().batch) + profile_page(bench.decode.front().profile, kSitesShown);
  }
  if (!bench.prefill.empty()) {
    out +=
        fmt::format("\n  Where a prompt of {} tokens goes\n", bench.prefill.back().tokens) + profile_page(bench.prefill.back().profile, kSitesShown);
  }
  if (out.find('*') != std::string::npos) out += fmt::format("\n{}\n", kAboveRoof);
  return out;
}

Json model_json(const ModelBench& bench) {
  const bool figures = bench.bf16_flops > 0;
  Json::Array prefill;
  for (const PrefillBench& p : bench.prefill) {
    Json::Object entry{{"tokens", p.tokens}, {"tokens_per_second", p.rate()}, {"samples", samples_json(p.samples)}};
    if (figures) {
      const LinearRates rates = linear_rates(p);
      entry.emplace_back("linear_share_of_peak", rates.alone / bench.bf16_flops);
      entry.emplace_back("overall_share_of_peak", rates.overall / bench.bf16_flops);
      entry.emplace_back("index_scan_share", p.scan_share());
      entry.emplace_back("ns_per_token_without_scan", p.ns_without_scan());
      entry.emplace_back("profile", profile_json(p.profile));
    }
    prefill.push_back(std::move(entry));
  }
  Json::Array decode;
  for (const DecodeBench& d : bench.decode) {
    Json::Object entry{{"batch", d.batch}, {"context", d.context}, {"tokens_per_second", d.rate()}, {"step_ns", d.step_ns()}};
    if (figures) {
      entry.emplace_back("floor_ns", d.floor_ns);
      entry.emplace_back("share_of_floor", d.floor_ns / d.step_ns());
      entry.emplace_back("bytes", d.bytes);
      entry.emplace_back("state_bytes", d.state_bytes);
      entry.emplace_back("flops", d.flops);
      entry.emplace_back("calls", d.calls);
      entry.emplace_back("observation_off_share", bench.dispatch_share(d));
      entry.emplace_back("weight_bytes_done", d.weight_bytes_done);
      entry.emplace_back("weight_bytes_needed", d.weight_bytes_needed);
      entry.emplace_back("profile", profile_json(d.profile));
    }
    entry.emplace_back("allocations", d.allocations < 0 ? Json() : Json(d.allocations));
    entry.emplace_back("samples", samples_json(d.samples));
    decode.push_back(std::move(entry));
  }
  Json::Object out{{"prefill", std::move(prefill)}, {"decode", std::move(decode)}};
  if (figures) out.emplace_back("dispatch_call_ns", bench.dispatch_ns);
  return out;
}

}  // namespace lathe::evaluate
