#include "apps/ladder.h"

#include <fmt/format.h>

#include "apps/settings.h"
#include "apps/terminal.h"
#include "config/json.h"
#include "evaluate/bench_ladder.h"

namespace lathe::apps {
namespace {

/// Each technique by itself on top of the first rung, then all of them.
constexpr const char* kRungs[] = {
    "plain=--preset plain",
    "int8 latents=--preset plain --cache-dtype plain,latent=int8",
    "int8 index keys=--preset plain --cache-dtype plain,index=int8",
    "fp16 states=--preset plain --cache-dtype plain,state=fp16",
    "replay=--preset plain --cache-dtype plain,state=fp32+replay",
    "fp16 replay=--preset plain --cache-dtype plain,state=fp16+replay",
    "full=--preset full",
};

Result<int64_t> memory_bytes(const std::string& text) {
  if (text.empty()) return evaluate::machine_facts().available_bytes;
  const config::SettingSpec bytes{.name = "--memory",
                                  .type = config::SettingType::kInt,
                                  .unit = "bytes",
                                  .default_value = int64_t{1},
                                  .min = 1,
                                  .max = {},
                                  .choices = {},
                                  .help = "",
                                  .aliases = {}};
  LATHE_TRY(const config::SettingValue value, config::parse_setting(bytes, text));
  LATHE_TRY_VOID(config::check_setting(bytes, value));
  return std::get<int64_t>(value);
}

Result<evaluate::LadderRung> read_rung(const config::Settings& settings, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) return err(Code::kInvalidArgument, "--rung '{}': expected NAME=FLAGS", text);
  evaluate::LadderRung rung{.name = text.substr(0, equals), .settings = text.substr(equals + 1), .engine = {}};
  const auto own = rung.settings.empty() ? Result<config::Settings>(settings) : settings_with(settings, "--rung", rung.settings);
  if (!own) return base::forward_error(own);
  auto engine = engine_options(*own);
  if (!engine) return base::forward_error(engine, fmt::format("--rung '{}'", text));
  rung.engine = std::move(*engine);
  return rung;
}

Result<evaluate::EvalSets> heldout_rows(const LadderVerbOptions& options) {
  if (options.rows == 0) return evaluate::EvalSets{};
  std::string folder = options.sets;
  if (folder.empty()) {
    LATHE_TRY(folder, builtin_eval_sets());
  }
  return evaluate::read_eval_sets(folder, {.names = {"heldout"}, .heldout_max = options.rows});
}

}  // namespace

Result<int> ladder_verb(const config::Settings& settings, const LadderVerbOptions& options) {
  evaluate::LadderOptions ladder{.rungs = {}, .bench = {.decode_context = options.decode_context}, .rounds = static_cast<int>(options.rounds)};
  ladder.bench.seed = static_cast<uint64_t>(options.seed);
  LATHE_TRY(ladder.bench.prompts, split_integers("--prompt", options.prompts, 1));
  LATHE_TRY(ladder.bench.batches, split_integers("--batch", options.batches, 1));
  LATHE_TRY(ladder.memory_bytes, memory_bytes(options.memory));
  std::vector<std::string> texts = options.rungs;
  if (texts.empty()) texts.assign(std::begin(kRungs), std::end(kRungs));
  for (const std::string& text : texts) {
    LATHE_TRY(evaluate::LadderRung rung, read_rung(settings, text));
    LATHE_TRY_VOID(evaluate::check_bench_lengths(ladder.bench, rung.engine.batch_tokens));
    ladder.rungs.push_back(std::move(rung));
  }
  LATHE_TRY(const evaluate::EvalSets sets, heldout_rows(options));
  Stages stages({.quiet = options.json});
  LATHE_TRY(const evaluate::LadderBench bench,
            evaluate::bench_ladder(ladder, sets, [&](const std::string& what, int64_t done, int64_t total) { stages.show(what, done, total); }));
  stages.finish();
  print(options.json ? evaluate::ladder_json(ladder, bench).dump({.key_separator = ": ", .indent = 1}) + "\n" : evaluate::ladder_page(ladder, bench));
  return 0;
}

}  // namespace lathe::apps
