// The table of `bench ladder`, for people and programs.

#include "evaluate/bench_ladder.h"

namespace lathe::evaluate {
namespace {

using config::Json;

double mebibytes(double bytes) { return bytes / (1 << 20); }

std::string accuracy_cells(const LadderRow& row) {
  if (!row.accuracy) return fmt::format(" {:>10} {:>10}", "-", "-");
  return fmt::format(" {:>+9.4f}% {:>10.2e}", 100 * row.accuracy->relative(), row.accuracy->kl.value);
}

}  // namespace

std::string ladder_page(const LadderOptions& options, const LadderBench& bench) {
  std::string out = fmt::format(
      "{} rungs, {} rounds in a drawn order; medians of tokens per second (times the first rung); sequences of {} tokens, decoding behind {}\n"
      "MiB: that a token must move, that a sequence reserves; batch: the largest within {:.1f} GiB; bits per byte and KL (nats a token) against the "
      "first rung\n\n  {:<18}",
      bench.rows.size(), options.rounds, bench.context, options.bench.decode_context, mebibytes(static_cast<double>(options.memory_bytes)) / 1024,
      "");
  for (const LadderFigure& figure : bench.rows.front().figures) out += fmt::format(" {:>15} {:>7}", figure.name, "MiB");
  out += fmt::format(" {:>9} {:>9} {:>10} {:>10}\n", "sequence", "batch", "bits/byte", "KL");
  for (const LadderRow& row : bench.rows) {
    out += fmt::format("  {:<18}", row.name);
    for (const LadderFigure& figure : row.figures) {
      const std::string rate = fmt::format("{:.0f}", median(figure.rates));
      const bool first = &row == &bench.rows.front();
      out += fmt::format(" {:>15} {:>7.2f}", first ? rate : fmt::format("{} ({:.2f}x)", rate, figure.ratio.ratio), mebibytes(figure.token_bytes));
    }
    out += fmt::format(" {:>9.2f} {:>9}{}\n", mebibytes(static_cast<double>(row.sequence_bytes)), row.largest_batch, accuracy_cells(row));
  }
  out += "\n";
  for (const LadderRow& row : bench.rows) out += fmt::format("  {:<18} {}\n", row.name, row.settings.empty() ? "no flags" : row.settings);
  return out;
}

Json ladder_json(const LadderOptions& options, const LadderBench& bench) {
  Json::Array rows;
  for (const LadderRow& row : bench.rows) {
    Json::Array figures;
    for (const LadderFigure& figure : row.figures) {
      figures.push_back(Json::Object{{"name", figure.name},
                                     {"rates", Json::Array(figure.rates.begin(), figure.rates.end())},
                                     {"median", median(figure.rates)},
                                     {"ratio", figure.ratio.ratio},
                                     {"interval", Json::Array{figure.ratio.low, figure.ratio.high}},
                                     {"token_bytes", figure.token_bytes}});
    }
    Json entry = Json::Object{{"name", row.name},
                              {"settings", row.settings},
                              {"cache_formats", row.cache_formats},
                              {"figures", std::move(figures)},
                              {"weight_bytes", row.weight_bytes},
                              {"sequence_bytes", row.sequence_bytes},
                              {"largest_batch", row.largest_batch}};
    if (row.accuracy) {
      entry.set("accuracy", Json::Object{{"rows", row.accuracy->rows},
                                         {"tokens", row.accuracy->tokens},
                                         {"relative_bits_per_byte", row.accuracy->relative()},
                                         {"kl", row.accuracy->kl.value},
                                         {"agreement", row.accuracy->agreement.value}});
    }
    rows.push_back(std::move(entry));
  }
  return Json::Object{{"rounds", options.rounds},
                      {"seed", static_cast<int64_t>(options.bench.seed)},
                      {"context", bench.context},
                      {"decode_context", options.bench.decode_context},
                      {"memory_bytes", options.memory_bytes},
                      {"rungs", std::move(rows)}};
}

}  // namespace lathe::evaluate
