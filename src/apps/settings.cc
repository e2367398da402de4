#include "apps/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <map>

#include "base/file.h"
#include "base/limits.h"
#include "evaluate/bench_ab.h"

namespace lathe::apps {
namespace {

using base::kLimits;
using config::RangeEnd;
using config::SettingCost;
using config::SettingSpec;
using config::SettingType;

double limit(int64_t most) { return static_cast<double>(most); }

struct Integer {
  std::string name, unit;
  int64_t value;
  double min, max;
  SettingCost cost;
  std::string help;
  std::vector<std::string> aliases;
};
SettingSpec integer(Integer of) {
  return {.name = std::move(of.name),
          .type = SettingType::kInt,
          .unit = std::move(of.unit),
          .default_value = of.value,
          .min = of.min,
          .max = of.max,
          .choices = {},
          .cost = of.cost,
          .help = std::move(of.help),
          .aliases = std::move(of.aliases)};
}
struct Number {
  std::string name;
  double value = 0;
  double min = 0, max = 0;
  RangeEnd min_end = RangeEnd::kClosed;
  RangeEnd max_end = RangeEnd::kClosed;
  std::optional<double> also = {};
  std::string help;
  std::vector<std::string> aliases;
};
SettingSpec number(Number of) {
  return {.name = std::move(of.name),
          .type = SettingType::kNumber,
          .unit = "",
          .default_value = of.value,
          .min = of.min,
          .max = of.max,
          .choices = {},
          .cost = SettingCost::kHot,
          .help = std::move(of.help),
          .aliases = std::move(of.aliases),
          .min_end = of.min_end,
          .max_end = of.max_end,
          .also = of.also};
}
SettingSpec text(std::string name, std::string help, std::vector<std::string> aliases = {}) {
  return {.name = std::move(name),
          .type = SettingType::kString,
          .unit = "",
          .default_value = std::string(),
          .min = {},
          .max = {},
          .choices = {},
          .cost = SettingCost::kReload,
          .help = std::move(help),
          .aliases = std::move(aliases)};
}
SettingSpec list(std::string name, std::string help, std::vector<std::string> aliases) {
  SettingSpec spec = text(std::move(name), std::move(help), std::move(aliases));
  spec.list = true;
  return spec;
}
struct Choice {
  std::string name, value;
  std::vector<std::string> choices;
  std::string help;
  std::vector<std::string> aliases;
};
SettingSpec choice(Choice of) {
  return {.name = std::move(of.name),
          .type = SettingType::kChoice,
          .unit = "",
          .default_value = std::move(of.value),
          .min = {},
          .max = {},
          .choices = std::move(of.choices),
          .cost = SettingCost::kReload,
          .help = std::move(of.help),
          .aliases = std::move(of.aliases)};
}
SettingSpec flag(std::string name, std::string help, std::vector<std::string> aliases = {}) {
  return {.name = std::move(name),
          .type = SettingType::kBool,
          .unit = "",
          .default_value = false,
          .min = {},
          .max = {},
          .choices = {},
          .cost = SettingCost::kReload,
          .help = std::move(help),
          .aliases = std::move(aliases)};
}

void declare_engine(config::SettingRegistry& r) {
  r.declare(text("engine.model", "Model directory; empty: the built-in model.", {"model", "m"}));
  r.declare(choice({.name = "engine.dtype",
                    .value = "bfloat16",
                    .choices = {"float32", "bfloat16"},
                    .help = "float32: exact mode, every activation and cache in FP32. bfloat16: fast mode, BF16 inputs of linear layers, FP32 sums.",
                    .aliases = {"dtype"}}));
  r.declare(choice(
      {.name = "engine.preset",
       .value = "none",
       .choices = {"none", "plain", "full"},
       .help = "Values for what nobody sets otherwise. plain: caches as the mix plain. full: balanced, with replay (drafts are --draft-tokens).",
       .aliases = {"preset"}}));
  r.declare(choice({.name = "engine.mla-prefill",
                    .value = "absorbed",
                    .choices = {"absorbed", "expanded"},
                    .help = "How prompts attend to latents; decoding is always absorbed.",
                    .aliases = {"mla-prefill"}}));
  r.declare(integer({.name = "engine.threads",
                     .unit = "threads",
                     .value = 0,
                     .min = 0,
                     .max = limit(kLimits.threads),
                     .cost = SettingCost::kRestart,
                     .help = "Worker threads; 0: chosen for this machine (see inspect).",
                     .aliases = {"threads", "t"}}));
  r.declare(text("engine.cpu-range", "Processors to run on, as 0-7,16; empty: all that this process may use.", {"cpu-range"}));
  r.declare(text("engine.cpu-mask", "The same as a hexadecimal mask, one bit for each processor.", {"cpu-mask"}));
  r.declare(choice(
      {.name = "engine.numa",
       .value = "auto",
       .choices = {"auto", "distribute", "isolate", "off"},
       .help = "Where threads run. distribute: evenly over the memory nodes, each with its part of the weights; isolate: only the node where the "
               "program started; off: anywhere; auto: as distribute where there are several nodes or slow cores, and every core has its thread.",
       .aliases = {"numa"}}));
  r.declare(text("engine.isa", "Instruction set to use instead of the best one: scalar, avx2, avx512, avx512_vnni, avx512_bf16.", {"isa"}));
  r.declare(list("engine.kernel", "Kernels to use instead of the chosen ones: op=variant, separated by commas.", {"kernel"}));
  r.declare(
      list("engine.cache-dtype",
           "How caches are kept: balanced, plain, or by family, separated by commas: latent=, index= (fp32, bf16, fp8, int8), state= (fp32, fp16, "
           "and +replay, with int8+replay), conv= (fp32, bf16). Empty: fp32 in exact mode, else latent=bf16,index=bf16,state=fp32,conv=fp32.",
           {"cache-dtype"}));
  r.declare(flag("engine.no-fallback", "Refuse to run when an op has no kernel of its own.", {"no-fallback"}));
  r.declare(integer({.name = "engine.context",
                     .unit = "tokens",
                     .value = 8192,
                     .min = 1,
                     .max = limit(kLimits.context_tokens),
                     .cost = SettingCost::kReload,
                     .help = "Tokens of prompt and answer together that a sequence can hold.",
                     .aliases = {"context", "ctx-size", "max-model-len", "c"}}));
  r.declare(integer({.name = "engine.batch-tokens",
                     .unit = "tokens",
                     .value = 512,
                     .min = 1,
                     .max = limit(kLimits.batch_tokens),
                     .cost = SettingCost::kReload,
                     .help = "Rows of one step: prompts are read in chunks of at most this many tokens.",
                     .aliases = {"batch-tokens", "batch-size", "b"}}));
  r.declare(choice({.name = "engine.draft-tokens",
                    .value = "0",
                    .choices = {"0", "1", "2", "3", "4", "5", "auto"},
                    .help = "Tokens that the model's draft layer proposes and one step verifies; texts stay the same. auto: as many as pay, up to 5.",
                    .aliases = {"draft-tokens", "draft-max", "num-speculative-tokens"}}));
  r.declare(flag(
      "engine.draft-health",
      "Begin an answer anew when its drafts tell that something is wrong: fewer than 1.4 tokens a step over 128 tokens, or more than 96 % accepted; "
      "the second time it is an error.",
      {"draft-health"}));
}

void declare_sampling(config::SettingRegistry& r) {
  r.declare(number({.name = "sampling.temperature",
                    .value = 1,
                    .min = kLimits.sampling_temperature_min,
                    .max = kLimits.sampling_temperature,
                    .also = 0,
                    .help = "0: greedy. Not given: the model's own default.",
                    .aliases = {"temperature", "temp"}}));
  r.declare(number({.name = "sampling.top-p",
                    .value = 1,
                    .min = 0,
                    .max = 1,
                    .min_end = RangeEnd::kOpen,
                    .help = "Keep the most likely tokens up to this sum of probability. Not given: the model's own default.",
                    .aliases = {"top-p"}}));
  r.declare(integer({.name = "sampling.top-k",
                     .unit = "tokens",
                     .value = 0,
                     .min = 0,
                     .max = limit(kLimits.sampling_top_k),
                     .cost = SettingCost::kHot,
                     .help = "Keep this many most likely tokens; 0: all. Not given: the model's own default.",
                     .aliases = {"top-k"}}));
  r.declare(number({.name = "sampling.min-p",
                    .value = 0,
                    .min = 0,
                    .max = 1,
                    .max_end = RangeEnd::kOpen,
                    .help = "Drop tokens less likely than this share of the most likely one. Not given: the model's own default.",
                    .aliases = {"min-p"}}));
  r.declare(integer({.name = "sampling.seed",
                     .unit = "",
                     .value = 0,
                     .min = 0,
                     .max = 9.2e18,
                     .cost = SettingCost::kHot,
                     .help = "Same seed, same text.",
                     .aliases = {"seed", "s"}}));
  r.declare(number({.name = "sampling.repetition-penalty",
                    .value = 1,
                    .min = 0,
                    .max = kLimits.sampling_repetition_penalty,
                    .min_end = RangeEnd::kOpen,
                    .help = "Weakens ids that occurred in prompt or answer. Not given: the model's own default.",
                    .aliases = {"repetition-penalty", "repeat-penalty"}}));
  r.declare(number({.name = "sampling.presence-penalty",
                    .value = 0,
                    .min = -kLimits.sampling_penalty,
                    .max = kLimits.sampling_penalty,
                    .help = "Subtracted once from ids of the answer. Not given: the model's own default.",
                    .aliases = {"presence-penalty"}}));
  r.declare(number({.name = "sampling.frequency-penalty",
                    .value = 0,
                    .min = -kLimits.sampling_penalty,
                    .max = kLimits.sampling_penalty,
                    .help = "Subtracted from ids of the answer per occurrence. Not given: the model's own default.",
                    .aliases = {"frequency-penalty"}}));
  r.declare(integer({.name = "sampling.max-tokens",
                     .unit = "tokens",
                     .value = 1024,
                     .min = 1,
                     .max = limit(kLimits.context_tokens),
                     .cost = SettingCost::kHot,
                     .help = "Longest answer. Not given: the model's own default.",
                     .aliases = {"max-tokens", "n-predict", "n"}}));
}

void declare_log(config::SettingRegistry& r) {
  r.declare(choice({.name = "log.level",
                    .value = "warning",
                    .choices = {"debug", "info", "warning", "error"},
                    .help = "Least severe messages to show.",
                    .aliases = {"log-level"}}));
  r.declare(flag("log.json", "Log lines as JSON.", {"log-json"}));
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

const config::SettingRegistry& registry() {
  static const config::SettingRegistry kRegistry = [] {
    config::SettingRegistry r;
    declare_engine(r);
    declare_sampling(r);
    declare_log(r);
    for (const char* name : {"LATHE_BUILTIN", "LATHE_EVAL_SETS", "LATHE_ISA", "LATHE_TEST_DATA", "LATHE_PLANT"}) r.reserve_environment(name);
    return r;
  }();
  return kRegistry;
}

std::string program_directory() {
  char buffer[4096];
  const ssize_t length = ::readlink("/proc/self/exe", buffer, sizeof(buffer) - 1);
  return length <= 0 ? "." : directory_of(std::string(buffer, static_cast<size_t>(length)));
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (size_t at = 0;;) {
    const size_t end = text.find(',', at);
    parts.push_back(text.substr(at, end - at));
    if (end == std::string::npos) return parts;
    at = end + 1;
  }
}

const config::SettingSpec* find_setting_flag(std::string_view word) {
  for (const SettingSpec& spec : registry().specs()) {
    if (word == spec.flag()) return &spec;
    for (const std::string& alias : spec.aliases) {
      if (word == (alias.size() == 1 ? "-" : "--") + alias) return &spec;
    }
  }
  return nullptr;
}

Result<void> apply_engine_flags(config::Settings& settings, std::span<const std::string> words) {
  std::map<const SettingSpec*, std::string> given;  // lists with all their parts
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const SettingSpec* const spec = find_setting_flag(name);
    if (spec == nullptr || !spec->name.starts_with("engine.")) return err(Code::kInvalidArgument, "'{}' is no flag of the engine", name);
    if (!spec->list && given.contains(spec)) return err(Code::kInvalidArgument, "{} is given twice: expected once", name);
    std::string value = "true";
    if (equals != std::string::npos) {
      value = words[i].substr(equals + 1);
    } else if (spec->type != SettingType::kBool) {
      if (++i == words.size()) return err(Code::kInvalidArgument, "{} is given without a value", name);
      value = words[i];
    }
    if (const auto [known, first] = given.emplace(spec, value); !first) known->second += "," + value;
    LATHE_TRY_VOID(settings.apply_flag(spec->name, given.at(spec)));
  }
  apply_preset(settings);
  return {};
}

Result<config::Settings> settings_with(const config::Settings& settings, const char* flag, const std::string& given) {
  config::Settings out = settings;
  std::vector<std::string> words = evaluate::split_words(given);
  if (base::file_exists(given)) words = {given};  // a path may have blanks
  if (words.empty()) return err(Code::kInvalidArgument, "{} '{}': expected a model, flags of the engine, or both", flag, given);
  if (!words.front().starts_with('-')) words.front().insert(0, "--model=");
  if (const auto applied = apply_engine_flags(out, words); !applied) return base::forward_error(applied, fmt::format("{} '{}'", flag, given));
  return out;
}

Result<std::vector<int64_t>> split_integers(const char* flag, const std::string& text, int64_t least) {
  std::vector<int64_t> values;
  for (const std::string& part : split_list(text)) {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || stop != part.data() + part.size() || value < least) {
      const std::string range = least == INT64_MIN ? "" : fmt::format(" of at least {}", least);
      return err(Code::kInvalidArgument, "{} '{}': expected integers{} separated by commas", flag, text, range);
    }
    values.push_back(value);
  }
  return values;
}

namespace {

/// Which processors the threads run on.
Result<void> take_processors(const config::Settings& settings, backend::CpuOptions& cpu) {
  const std::string& range = settings.get_string("engine.cpu-range");
  const std::string& mask = settings.get_string("engine.cpu-mask");
  if (!range.empty() && !mask.empty()) return err(Code::kInvalidArgument, "--cpu-range and --cpu-mask say the same: expected one of them");
  if (!range.empty()) {
    auto cpus = base::parse_cpu_list(range);
    if (!cpus) return base::forward_error(cpus, "--cpu-range");
    cpu.cpus = std::move(*cpus);
  }
  if (!mask.empty()) {
    auto cpus = base::parse_cpu_mask(mask);
    if (!cpus) return base::forward_error(cpus, "--cpu-mask");
    cpu.cpus = std::move(*cpus);
  }
  const std::string& numa = settings.get_string("engine.numa");
  cpu.numa = numa == "distribute" ? base::Numa::kDistribute
             : numa == "isolate"  ? base::Numa::kIsolate
             : numa == "off"      ? base::Numa::kOff
                                  : base::Numa::kAuto;
  return {};
}

}  // namespace

Result<engine::EngineOptions> engine_options(const config::Settings& settings) {
  engine::EngineOptions options;
  options.model = settings.get_string("engine.model");
  if (options.model.empty()) {
    LATHE_TRY(options.model, builtin_model());
  }
  // Told here, by its name: the first of its files to be opened would be what a message names else.
  if (!base::file_exists(options.model)) return err(Code::kNotFound, "there is no model at '{}': No such file or directory", options.model);
  options.precision = settings.get_string("engine.dtype") == "float32" ? models::Precision::kExact : models::Precision::kFast;
  options.prefill_mla = settings.get_string("engine.mla-prefill") == "expanded" ? models::MlaPath::kExpanded : models::MlaPath::kAbsorbed;
  options.cpu.threads = static_cast<int>(settings.get_int("engine.threads"));
  LATHE_TRY_VOID(take_processors(settings, options.cpu));
  options.cpu.isa = settings.get_string("engine.isa");
  options.no_fallback = settings.get_bool("engine.no-fallback");
  options.context_tokens = settings.get_int("engine.context");
  options.context_is_default = settings.origin("engine.context") == config::SettingOrigin::kDefault;
  options.batch_tokens = settings.get_int("engine.batch-tokens");
  const std::string& drafts = settings.get_string("engine.draft-tokens");
  options.drafts.adaptive = drafts == "auto";
  options.drafts.most = options.drafts.adaptive ? engine::kDraftsMax : drafts[0] - '0';
  options.drafts.health.on = settings.get_bool("engine.draft-health");
  if (const std::string& given = settings.get_string("engine.cache-dtype"); !given.empty()) {
    const bool exact = options.precision == models::Precision::kExact;
    const auto caches = models::parse_cache_formats(given, exact ? models::kExactCaches : models::kFastCaches);
    if (!caches) return base::forward_error(caches, "--cache-dtype");
    options.caches = *caches;
  }
  for (const std::string& pair : split_list(settings.get_string("engine.kernel"))) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size()) {
      return err(Code::kInvalidArgument, "--kernel '{}': expected op=variant", pair);
    }
    options.kernels[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return options;
}

engine::SamplingParams sampling_params(const config::Settings& settings, const models::GenerationDefaults& defaults) {
  const auto given = [&](const char* name) { return settings.origin(name) != config::SettingOrigin::kDefault; };
  engine::SamplingParams params;
  params.temperature = given("sampling.temperature") ? settings.get_number("sampling.temperature") : defaults.temperature.value_or(1.0);
  params.top_p = given("sampling.top-p") ? settings.get_number("sampling.top-p") : defaults.top_p.value_or(1.0);
  params.top_k = static_cast<int32_t>(given("sampling.top-k") ? settings.get_int("sampling.top-k") : defaults.top_k.value_or(0));
  const auto number_or = [&](const char* name, const std::optional<double>& value) {
    return given(name) ? settings.get_number(name) : value.value_or(settings.get_number(name));
  };
  params.min_p = number_or("sampling.min-p", defaults.min_p);
  params.repetition_penalty = number_or("sampling.repetition-penalty", defaults.repetition_penalty);
  params.presence_penalty = number_or("sampling.presence-penalty", defaults.presence_penalty);
  params.frequency_penalty = number_or("sampling.frequency-penalty", defaults.frequency_penalty);
  params.seed = static_cast<uint64_t>(settings.get_int("sampling.seed"));
  return params;
}

int64_t max_tokens(const config::Settings& settings, const models::GenerationDefaults& defaults) {
  const int64_t value = settings.get_int("sampling.max-tokens");
  return settings.origin("sampling.max-tokens") == config::SettingOrigin::kDefault ? defaults.max_tokens.value_or(value) : value;
}

namespace {

/// A folder that comes with the program.
struct Folder {
  const char* what;       ///< for a message
  const char* variable;   ///< of the environment, that names another one
  const char* name;       ///< beside the program
  const char* in_source;  ///< in the tree that the program was built from
  const char* file;       ///< that it holds
};

/// The first of the places where it may lie.
Result<std::string> find_folder(const Folder& folder) {
  const auto& [what, variable, name, in_source, file] = folder;
  if (const char* given = std::getenv(variable); given != nullptr && *given != '\0') return std::string(given);
  const std::string beside = program_directory();
  for (const std::string& path : {fmt::format("{}/{}", beside, name), fmt::format("{}/../share/lathe/{}", beside, name), std::string(in_source)}) {
    if (base::file_exists(fmt::format("{}/{}", path, file))) return path;
  }
  return err(Code::kNotFound, "{} was not found beside the program or in {}; set {} to its folder", what, in_source, variable);
}

}  // namespace

Result<std::string> builtin_model() {
  return find_folder({.what = "the built-in model",
                      .variable = "LATHE_BUILTIN",
                      .name = "builtin",
                      .in_source = LATHE_SOURCE_DIR "/data/builtin",
                      .file = "config.json"});
}

Result<std::string> builtin_eval_sets() {
  return find_folder({.what = "the folder of evaluation sets",
                      .variable = "LATHE_EVAL_SETS",
                      .name = "eval_sets",
                      .in_source = LATHE_SOURCE_DIR "/data/eval/sets",
                      .file = "index.json"});
}

}  // namespace lathe::apps
