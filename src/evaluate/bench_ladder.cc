#include "evaluate/bench_ladder.h"

#include <algorithm>
#include <random>

#include "base/limits.h"
#include "models/model_description.h"

namespace lathe::evaluate {
namespace {

struct Rung {
  std::unique_ptr<engine::Engine> engine;
  media::PreprocessConfig preprocess;  ///< held-out rows have no pictures
};

/// What the description of a model is asked for: bytes of a step of `batch` sequences, or of a prompt's token.
struct Described {
  const char* section;
  int64_t batch;
  int64_t context;
};

Result<double> described(const engine::Engine& engine, const Described& of) {
  LATHE_TRY(const models::ModelDescription model, models::describe_model(engine.options().model, {.context = of.context,
                                                                                                  .context_at_most = true,
                                                                                                  .batch = of.batch,
                                                                                                  .chunk_tokens = engine.options().batch_tokens,
                                                                                                  .model = engine::model_options(engine.options())}));
  const config::Json* const bytes = model.facts.find(of.section);
  const config::Json* const total = bytes == nullptr ? nullptr : bytes->find("total");
  if (total == nullptr) return err(Code::kInternal, "the description of {} has no total of {}", engine.options().model, of.section);
  return total->as_double();
}

Result<Rung> make_engine(const LadderOptions& options, const LadderRung& of, int64_t longest_row) {
  engine::EngineOptions wanted = of.engine;
  wanted.context_tokens = std::max(bench_model_context(options.bench), longest_row);
  wanted.context_is_default = false;
  wanted.sequences = bench_model_sequences(options.bench);
  auto made = engine::Engine::create(wanted);
  if (!made) return base::forward_error(made, fmt::format("rung '{}'", of.name));
  return Rung{.engine = std::move(*made), .preprocess = {}};
}

/// What is known of a rung before it runs.
Result<LadderRow> make_row(const LadderOptions& options, const LadderRung& of, engine::Engine& engine) {
  LadderRow row{.name = of.name, .settings = of.settings, .cache_formats = models::cache_formats_text(engine.model().options().cache_formats())};
  engine::EngineOptions one = engine.options();
  one.sequences = 1;
  for (const cache::FamilyBytes& family : cache::reserved_cache_bytes(engine.model().cache_families(), engine::store_options(one, engine.info()))) {
    row.sequence_bytes += family.bytes;
  }
  row.weight_bytes = engine.info().weight_bytes;
  row.largest_batch = largest_batch(options.memory_bytes, row.weight_bytes + engine.info().activation_bytes, row.sequence_bytes);
  for (const int64_t tokens : options.bench.prompts) {
    LATHE_TRY(const double bytes, described(engine, {.section = "prefill_token_bytes", .batch = 1, .context = tokens}));
    row.figures.push_back({.name = fmt::format("prefill {}", tokens), .rates = {}, .token_bytes = bytes});
  }
  for (const int64_t batch : options.bench.batches) {
    LATHE_TRY(const double bytes, described(engine, {.section = "decode_step_bytes", .batch = batch, .context = options.bench.decode_context}));
    row.figures.push_back({.name = fmt::format("decode {}", batch), .rates = {}, .token_bytes = bytes / static_cast<double>(batch)});
  }
  return row;
}

Result<void> measure(const LadderOptions& options, engine::Engine& engine, LadderRow& row, Roofs& roofs) {
  BenchModelOptions once = options.bench;
  once.samples = 1;
  once.figures = false;
  LATHE_TRY(const ModelBench bench, bench_model(engine, once, roofs, [](const std::string&, int64_t, int64_t) {}));
  size_t figure = 0;
  for (const PrefillBench& prefill : bench.prefill) row.figures[figure++].rates.push_back(prefill.rate());
  for (const DecodeBench& decode : bench.decode) row.figures[figure++].rates.push_back(decode.rate());
  return {};
}

}  // namespace

int64_t largest_batch(int64_t memory_bytes, int64_t fixed_bytes, int64_t sequence_bytes) {
  return sequence_bytes > 0 ? std::max<int64_t>(memory_bytes - fixed_bytes, 0) / sequence_bytes : 0;
}

Result<LadderBench> bench_ladder(const LadderOptions& options, const EvalSets& sets, BenchModelProgress progress) {
  constexpr int64_t kRoundsMax = base::kLimits.benchmark_pairs;
  if (options.rungs.empty()) return err(Code::kInvalidArgument, "a ladder without rungs");
  if (options.rounds < 2 || options.rounds > kRoundsMax)
    return err(Code::kInvalidArgument, "{} rounds: expected 2 to {}", options.rounds, kRoundsMax);
  std::vector<Rung> rungs;
  LadderBench out;
  const auto total = std::ssize(options.rungs);
  for (const LadderRung& of : options.rungs) {
    progress("loading", std::ssize(rungs), total);
    LATHE_TRY(Rung rung, make_engine(options, of, longest_row(sets).tokens));
    LATHE_TRY_VOID(check_bench_model(*rung.engine, options.bench));
    LATHE_TRY(LadderRow row, make_row(options, of, *rung.engine));
    out.context = rung.engine->options().context_tokens;
    rungs.push_back(std::move(rung));
    out.rows.push_back(std::move(row));
  }
  Roofs roofs(options.rungs.front().engine.cpu.threads);  // asked for nothing: rates alone are compared
  std::mt19937_64 random(options.bench.seed);
  std::vector<size_t> order(rungs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    int64_t done = round * total;
    for (const size_t i : order) {
      progress("rungs", done++, options.rounds * total);
      LATHE_TRY_VOID(measure(options, *rungs[i].engine, out.rows[i], roofs));
    }
  }
  for (size_t i = 1; i < rungs.size(); ++i) {
    for (size_t f = 0; f < out.rows[i].figures.size(); ++f) {
      out.rows[i].figures[f].ratio = ratio_interval(out.rows[0].figures[f].rates, out.rows[i].figures[f].rates);
    }
    if (sets.heldout.empty()) continue;
    LATHE_TRY(const ModelComparison comparison,
              run_comparison({*rungs[i].engine, rungs[i].preprocess}, {*rungs[0].engine, rungs[0].preprocess}, sets, progress));
    out.rows[i].accuracy = comparison.heldout;
  }
  return out;
}

}  // namespace lathe::evaluate
