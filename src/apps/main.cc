// lathe: one program, one verb per job. The command line is bound to the settings registry here and nowhere else; usage.h tells what is wrong with one.

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <sstream>

#include "apps/bench.h"
#include "apps/input.h"
#include "apps/quantize.h"
#include "apps/run.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/usage.h"
#include "apps/verbs.h"
#include "base/limits.h"
#include "config/settings_json.h"
#include "observe/logging.h"

extern char** environ;

namespace lathe::apps {
namespace {

constexpr int kExitUsage = 2;

/// What the command line gave.
struct CommandLine {
  std::vector<std::pair<std::string, std::string>> flags;  ///< setting name, text
  std::string settings_file;
  std::string model;  ///< positional
  RunOptions run;
  LogitsOptions logits;
  InspectOptions inspect;
  EvalOptions eval;
  ExportOptions exported;
  BenchOptions bench;
  QuantizeVerbOptions quantize;
  bool selftest_json = false;
  bool config_schema = false;
  bool config_json = false;
};

/// "--engine.threads,--threads,-t"
std::string flag_names(const config::SettingSpec& spec) {
  std::string names = spec.flag();
  for (const std::string& alias : spec.aliases) names += (alias.size() == 1 ? ",-" : ",--") + alias;
  return names;
}

std::string default_text(const config::SettingSpec& spec) {
  const std::string text = config::setting_text(spec.default_value);
  return text.empty() ? "empty" : text;
}

/// A switch is given or not: `--json=5` is an error, not a guess.
void prepare_switches(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) option->disable_flag_override();
  }
  for (CLI::App* verb : app.get_subcommands({})) prepare_switches(*verb);
}

void bind_settings(CLI::App& verb, CommandLine& line, const std::vector<std::string>& groups) {
  for (const config::SettingSpec& spec : registry().specs()) {
    const std::string group = spec.name.substr(0, spec.name.find('.'));
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) continue;
    const auto store = [&line, name = spec.name](const std::string& text) { line.flags.emplace_back(name, text); };
    CLI::Option* option = nullptr;
    if (spec.type == config::SettingType::kBool) {
      option = verb.add_flag_function(flag_names(spec), [store](std::int64_t count) { store(count > 0 ? "true" : "false"); }, spec.help);
    } else if (const std::string help = spec.help + " (" + config::setting_expectation(spec) + "; default " + default_text(spec) + ")"; spec.list) {
      option = verb.add_option_function<std::vector<std::string>>(
          flag_names(spec), [store](const std::vector<std::string>& parts) { store(fmt::format("{}", fmt::join(parts, ","))); }, help);
      option->allow_extra_args(false)->type_name("");
    } else {
      option = verb.add_option_function<std::string>(flag_names(spec), store, help);
      option->type_name("");
    }
    option->group(group);
  }
  verb.add_option("--settings", line.settings_file, "JSON file with settings (names as in `config schema`); flags and environment win over it.")
      ->group("settings")
      ->type_name("FILE");
}

enum class Positional : uint8_t { kModel, kNone };

CLI::App* add_verb(CLI::App& app, CommandLine& line, const std::string& name, const std::string& help, const std::vector<std::string>& groups,
                   Positional positional = Positional::kModel) {
  CLI::App* verb = app.add_subcommand(name, help);
  if (positional == Positional::kModel)
    verb->add_option("MODEL", line.model, "Model directory (default: the built-in model); -m is the same.")->type_name("");
  bind_settings(*verb, line, groups);
  return verb;
}

void add_run(CLI::App& app, CommandLine& line) {
  CLI::App* verb = add_verb(app, line, "run", "Answer a prompt, or chat in the terminal.", {"engine", "sampling", "log"});
  RunOptions& run = line.run;
  verb->add_option_function<std::string>(
          "-p,--prompt", [&run](const std::string& text) { run.prompt = text, run.has_prompt = true; }, "One user turn.")
      ->type_name("TEXT");
  verb->add_option("-f,--file", run.prompt_file, "Read the prompt from a file; - is stdin.")->type_name("FILE");
  verb->add_flag("--chat,-i,--interactive", run.chat,
                 "Chat with history (the default on a terminal without -p), a turn a line. A turn that does not fit is told and left out; a full "
                 "context needs /clear.");
  verb->add_flag("--raw", run.raw, "No chat template: the text as it is, special tokens parsed.");
  verb->add_option("--system", run.system, "System prompt.")->type_name("TEXT");
  verb->add_option("--reasoning-effort", run.reasoning_effort, "low, high or max (what the model's template tells apart).")->type_name("EFFORT");
  verb->add_option("--image", run.images, "Pictures of the first turn (PNG).")->type_name("FILE")->default_str("");
  verb->add_option("--stop", run.stop, "End the answer before this text; may be repeated.")
      ->type_name("TEXT")
      ->default_str("")
      ->allow_extra_args(false);
  verb->add_option("--logit-bias", run.logit_bias, "Added to a token's logit, -100 to 100; may be repeated.")
      ->type_name("ID=VALUE")
      ->default_str("")
      ->allow_extra_args(false);
  verb->add_flag("--hide-reasoning", run.hide_reasoning, "Show the answer only.");
  verb->add_flag("--ignore-eos", run.ignore_eos, "Go on behind stop tokens.");
  verb->add_flag("--json", run.json, "One JSON object with text, usage and timings.");
  verb->add_option("--trace", run.trace, "Write the timeline (ops, pieces, waits, locks) as Chrome trace JSON.")->type_name("FILE");
}

void add_others(CLI::App& app, CommandLine& line) {
  CLI::App* logits = add_verb(app, line, "logits", "Logits of given ids, whole, in chunks or token by token.", {"engine", "log"});
  logits->add_option("--ids", line.logits.ids_file, "JSON list of token ids; required.")->type_name("FILE");
  logits->add_option("--out", line.logits.out_file, "Where to write `logits` (safetensors); required.")->type_name("FILE");
  logits->add_option("--chunks", line.logits.chunks, "Sizes of the prefill chunks; what remains is a last one. Default: all at once.")
      ->type_name("N,N,…");
  logits->add_option("--decode-from", line.logits.decode_from, "Decode token by token from this position on. Default: never.")
      ->check(integer_in(0, base::kLimits.model_positions))
      ->type_name("N")
      ->default_str("");
  logits->add_option("--at", line.logits.at, "Positions to write; negative ones count from the end. Default: all.")->type_name("P,P,…");
  logits->add_option("--pixels", line.logits.pixels, "Pictures: pixel_values [patches, C·T·P·P] and grid [n, 3].")->type_name("FILE");
  logits->add_flag("--mtp", line.logits.draft, "Also the draft layer's logits, as `mtp_logits`.");

  CLI::App* inspect = add_verb(app, line, "inspect", "Dimensions, sizes, work per token, cache bytes, chosen kernels.", {"engine", "log"});
  inspect->get_option("MODEL")->description("Model directory, or a config.json alone (default: the built-in model); -m is the same.");
  inspect->add_option("--batch", line.inspect.batch, "Sequences that decode together, for bytes per step.")->check(integer_in(1, int64_t{1} << 20));
  inspect->add_flag("--json", line.inspect.json, "As JSON.");

  CLI::App* eval = add_verb(app, line, "eval", "Quality: bits per byte, exact answers, recall, draft acceptance.", {"engine", "log"});
  eval->add_option("--sets", line.eval.sets, "Folder with evaluation sets (default: the built-in model's).")->type_name("DIR");
  eval->add_option("--only", line.eval.names, "Names of sets, separated by commas.")->type_name("A,B,…");
  eval->add_option("--every", line.eval.every, "Take every n-th row.")->check(integer_in(1, int64_t{1} << 30));
  eval->add_option("--rows", line.eval.rows_max, "At most so many rows of each set; 0: all.")->check(integer_in(0, int64_t{1} << 30));
  eval->add_option("--compare", line.eval.compare, "Report of another run (--json) to compare with, row by row.")->type_name("FILE");
  eval->add_option(
          "--against", line.eval.against,
          "Another model, flags of the engine, or both, as one word: '--dtype float32', 'other/model --isa avx2'. Both are evaluated and compared "
          "token by token and row by row, without drafts; what the word does not say is as for this model.")
      ->type_name("MODEL|FLAGS");
  eval->add_flag(
      "--gate", line.eval.gate,
      "Exit code 1 if this model is worse than that of --against by more than 0.5 % bits per byte, 2 recall rows, 1 point over all task rows, or "
      "in any set by more than 3 rows and its close calls; also if one of these could not be measured, unless --only chose what is.");
  eval->add_option("--could-turn", line.eval.could_turn,
                   "Record (eval.json) with the close calls of each set, for the gate (default: the built-in model's, if its sets are used).")
      ->type_name("FILE");
  eval->add_flag("--json", line.eval.json, "As JSON.");

  CLI::App* exported = add_verb(app, line, "export", "Write the model as a GGUF file, for programs that read those.", {"engine", "log"});
  exported->add_option("--gguf", line.exported.gguf, "File to write; required.")->type_name("FILE");
  exported->add_option("--type", line.exported.type, "Type of the matrices; norms and what decides choices is f32 in every file.")
      ->check(one_of({"f32", "f16", "bf16", "q8_0"}));
  exported->add_flag("--no-vocab", line.exported.no_vocab, "Leave the tokenizer out: the file takes and gives ids.");
  exported->add_flag("--force", line.exported.force, "Replace a file that is there.");
  exported->add_flag("--json", line.exported.json, "As JSON.");

  CLI::App* selftest = add_verb(app, line, "selftest", "Compare the engine with itself and with the reference on this machine.", {"engine", "log"});
  selftest->remove_option(selftest->get_option("--engine.context"));  // the checks have their own
  selftest->add_flag("--json", line.selftest_json, "As JSON.");

  CLI::App* config = app.add_subcommand("config", "Settings of the program.");
  config->require_subcommand(1);
  CLI::App* schema = config->add_subcommand("schema", "Every setting with type, range, default and cost of a change.");
  schema->add_flag("--json", line.config_json, "As JSON (the only form).");
  schema->callback([&line] { line.config_schema = true; });
  bind_settings(*config->add_subcommand("show", "The values that hold, with their origin."), line, {"engine", "sampling", "log"});
}

void add_quantize(CLI::App& app, CommandLine& line) {
  QuantizeVerbOptions& quantize = line.quantize;
  CLI::App* verb = add_verb(app, line, "quantize", "Write a model with INT8, FP8 or BF16 weights.", {"log"}, Positional::kNone);
  verb->add_option("IN", quantize.model, "Model directory.")->type_name("")->default_str("");
  verb->add_option("OUT", quantize.out, "Folder to make.")->type_name("")->default_str("");
  verb->add_option("--weights", quantize.weights, "int8 (a scale for each output channel), fp8 (128x128 blocks, as released) or bf16.")
      ->check(one_of({"int8", "fp8", "bf16"}));
  verb->add_option("--act", quantize.activations, "Activations that meet INT8 weights in fast mode: int8 (a scale for each token) or none.")
      ->check(one_of({"int8", "none"}));
  verb->add_option("--keep", quantize.keep, "Matrices that stay as stored: * stands for any text, ? for any character; may be repeated.")
      ->type_name("PATTERN")
      ->default_str("")
      ->allow_extra_args(false);
  verb->add_option(
          "--calibrate", quantize.calibrate,
          "Text to run the model over first: INT8 scales then lose least of what it shows, and matrices that outliers would spoil stay as stored.")
      ->type_name("FILE")
      ->default_str("");
  verb->add_option("-t,--threads", quantize.threads, "Threads; 0: all of the machine.")->check(integer_in(0, 4096));
  verb->add_flag("--json", quantize.json, "As JSON, with the error of every matrix.");
  verb->footer(kQuantizeHelp);
}

void add_make_slice(CLI::App& bench, CommandLine& line) {
  MakeSliceOptions& slice = line.bench.slice;
  CLI::App* verb =
      add_verb(bench, line, "make-slice", "Write a checkpoint with random weights and the sizes of the published model, to measure real shapes.",
               {"log"}, Positional::kNone);
  verb->callback([&line] { line.bench.suite = "make-slice"; });
  verb->add_option("OUT_DIR", slice.out, "Folder to make; a run that was stopped goes on when it is started again.")->type_name("");
  verb->add_option("--layers", slice.layers, "First layers of the model.")->check(integer_in(1, int64_t{1} << 20));
  verb->add_option("--experts", slice.experts, "Routed experts of a layer.")->check(integer_in(1, int64_t{1} << 20));
  verb->add_option("--dense-layers", slice.dense_layers, "Layers with a dense FFN. Default: a quarter, at least one, at most as the model.")
      ->check(integer_in(0, int64_t{1} << 20))
      ->default_str("");
  verb->add_option("--vocabulary", slice.vocabulary, "Rows of embedding and head. Default: as the model.")
      ->check(integer_in(1, int64_t{1} << 24))
      ->default_str("");
  verb->add_option("--weights", slice.weights, "fp8 (128x128 blocks, as released) or bf16.")->check(one_of({"fp8", "bf16"}));
  verb->add_flag("--no-draft", slice.no_draft, "Leave out the draft layer.");
  verb->add_flag("--no-vision", slice.no_vision, "Leave out the vision tower.");
  verb->add_option("--config", slice.config, "config.json with other sizes.")->type_name("FILE");
  verb->add_option("--draw", slice.seed, "Number that the weights are drawn from.")->check(integer_in(0, int64_t{1} << 60));
  verb->add_option("-t,--threads", slice.threads, "Threads; 0: all of the machine.")->check(integer_in(0, base::kLimits.threads));
  verb->add_flag("--check", slice.check, "Say how large it would be, and write nothing.");
  verb->add_flag("--json", slice.json, "As JSON.");
}

void add_ladder(CLI::App& bench, CommandLine& line) {
  LadderVerbOptions& ladder = line.bench.ladder;
  CLI::App* verb =
      add_verb(bench, line, "ladder", "What each technique gives, alone and all together: speed, bytes, memory, accuracy.", {"engine", "log"});
  verb->callback([&line] { line.bench.suite = "ladder"; });
  verb->add_option(
          "--rung", ladder.rungs,
          "A rung: its name, '=', and a model, flags of the engine, or both, on top of the settings of the run; may be repeated. The others are "
          "compared with the first. Default: --preset plain, each of its formats made narrow, --preset full.")
      ->type_name("NAME=FLAGS")
      ->default_str("")
      ->allow_extra_args(false);
  verb->add_option("--prompt", ladder.prompts, "Lengths of prompts.")->type_name("N,N,…");
  verb->add_option("--batch", ladder.batches, "Sequences that decode together.")->type_name("B,B,…");
  verb->add_option("--decode-context", ladder.decode_context, "Tokens of each sequence before it decodes.")->check(integer_in(1, int64_t{1} << 24));
  verb->add_option("--rounds", ladder.rounds, "Runs of each rung, in a drawn order.")->check(integer_in(2, base::kLimits.benchmark_pairs));
  verb->add_option("--draw", ladder.seed, "Number that order and token ids are drawn from.")->check(integer_in(0, int64_t{1} << 60));
  verb->add_option("--rows", ladder.rows, "Held-out rows for the accuracy; 0: none.")->check(integer_in(0, int64_t{1} << 30));
  verb->add_option("--sets", ladder.sets, "Folder with evaluation sets (default: the built-in model's).")->type_name("DIR");
  verb->add_option("--memory", ladder.memory, "For weights, activations and caches: 24G. Default: what the machine has free.")->type_name("BYTES");
  verb->add_flag("--json", ladder.json, "As JSON.");
}

void add_bench(CLI::App& app, CommandLine& line) {
  BenchOptions& bench = line.bench;
  CLI::App* verb = app.add_subcommand("bench", "Speed, against the floors of this machine measured in the same run.");
  verb->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, Positional positional) {
    CLI::App* suite = add_verb(*verb, line, name, help, {"engine", "log"}, positional);
    suite->callback([&bench, name] { bench.suite = name; });
    suite->add_flag("--json", bench.json, "As JSON, with every sample.");
    return suite;
  };
  const auto add_baseline = [&](CLI::App* suite) {
    suite->add_option("--baseline", bench.baseline, "Report (--json) to compare with; default: what is recorded for this machine.")
        ->type_name("FILE");
  };
  const auto add_lengths = [&](CLI::App* suite) {
    suite->add_option("--prompt", bench.prompts, "Lengths of prompts.")->type_name("N,N,…");
    suite->add_option("--batch", bench.batches, "Sequences that decode together.")->type_name("B,B,…");
    suite->add_option("--decode-context", bench.decode_context, "Tokens of each sequence before it decodes.")->check(integer_in(1, int64_t{1} << 24));
    suite->add_option("--samples", bench.samples, "Of each figure.")->check(integer_in(1, 1000));
  };
  const auto add_pairs = [&](CLI::App* suite) {
    suite->add_option("--pairs", bench.pairs, "Runs of each.")->check(integer_in(2, base::kLimits.benchmark_pairs));
    suite->add_option("--draw", bench.seed, "Number that the order inside the pairs is drawn from.")->check(integer_in(0, int64_t{1} << 60));
  };
  CLI::App* ops = add("ops", "Every op at the sizes of a model: time, floor, reference, work done over work needed.", Positional::kNone);
  ops->add_option("--op", bench.op, "Only this op.")->type_name("NAME");
  ops->add_option("--shapes", bench.shapes, "model (the built-in one), published or all.")->check(one_of({"model", "published", "all"}));
  ops->add_option("--tokens", bench.tokens, "Rows of a call.")->type_name("N,N,…");
  ops->add_flag("--no-reference", bench.no_reference, "Do not time the reference.");
  add_baseline(ops);

  CLI::App* model = add("model", "Tokens per second of prompts and of decoding, and where the time goes.", Positional::kModel);
  add_lengths(model);
  model->add_option("--draw", bench.seed, "Number that the token ids are drawn from.")->check(integer_in(0, int64_t{1} << 60));
  model->add_flag("--long", bench.long_prompt, "A prompt of 65,536 tokens as well.");
  model->add_option("--text", bench.text, "With --draft-tokens: text to go on with. Default for the built-in model: prompts of its evaluation.")
      ->type_name("FILE");
  model->add_flag("--samples-only", bench.samples_only, "No floors, no times by op, no first token.");
  model->add_flag("--check", bench.check, "Check settings, model and lengths, and measure nothing.");
  add_baseline(model);

  CLI::App* ab =
      add("ab", "Two programs or settings in pairs: how many times faster B is, with a 95 % interval: bench ab '--isa avx2' '--isa avx512'.",
          Positional::kNone);
  ab->add_option("--a,A", bench.a, "Program, flags, or both, as one word: 'build/other/lathe --isa avx2'.")->required()->type_name("PROGRAM|FLAGS");
  ab->add_option("--b,B", bench.b, "Likewise.")->required()->type_name("PROGRAM|FLAGS");
  ab->add_option("--verb-args", bench.arguments, "Flags of bench model for both, as one word: '--prompt 512 --batch 1'.")->type_name("FLAGS");
  add_pairs(ab);
  CLI::App* rival =
      add("rival", "This engine and a llama.cpp build in pairs, on the same weights: how many times faster B, this engine, is.", Positional::kModel);
  rival->add_option("--llama-bench", bench.llama_bench, "llama-bench; llama-batched-bench beside it decodes several sequences.")->type_name("PATH");
  rival->add_option("--gguf", bench.gguf, "The same weights for it, as `lathe export --gguf` writes them.")->type_name("FILE");
  rival
      ->add_option("--server", bench.server,
                   "Or a llama-server that runs already, with the same weights, as many threads, a slot for each sequence (-np) and no other work: "
                   "http://127.0.0.1:8080.")
      ->type_name("URL");
  rival->add_flag("--onednn", bench.onednn, "Or oneDNN, products alone: matrices of the published model.");
  rival->add_option("--tokens", bench.products_tokens, "Rows of those products.")->type_name("N,N,…");
  rival->add_option("--rival-args", bench.rival_arguments, "More flags for it, as one word: '-fa 1'.")->type_name("FLAGS")->default_str("");
  add_lengths(rival);
  add_pairs(rival);
  add_ladder(*verb, line);
  add_make_slice(*verb, line);
}

Result<config::Settings> resolve(const CommandLine& line) {
  config::Settings settings(registry());
  if (!line.settings_file.empty()) LATHE_TRY_VOID(config::apply_settings_file(settings, line.settings_file));
  std::vector<const char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  LATHE_TRY_VOID(settings.apply_environment(variables));
  for (const auto& [name, text] : line.flags) {
    if (name == "engine.model" && !line.model.empty() && text != line.model) {
      return err(Code::kInvalidArgument, "two models are named, '{}' and, by -m, '{}': expected one of them", line.model, text);
    }
    LATHE_TRY_VOID(settings.apply_flag(name, text));
  }
  if (!line.model.empty()) LATHE_TRY_VOID(settings.apply_flag("engine.model", line.model));
  apply_preset(settings);
  return settings;
}

base::LogLevel log_level(const std::string& name) {
  if (name == "debug") return base::LogLevel::kDebug;
  if (name == "info") return base::LogLevel::kInfo;
  return name == "error" ? base::LogLevel::kError : base::LogLevel::kWarning;
}

Result<int> dispatch(const CLI::App& app, const CommandLine& line) {
  if (line.config_schema)
    return config_verb(config::Settings(registry()), ConfigView::kSchema);  // also where a variable is wrong: it says which there are
  LATHE_TRY(const config::Settings settings, resolve(line));
  const observe::Logging logging({.level = log_level(settings.get_string("log.level")), .json = settings.get_bool("log.json")});
  const std::string verb = app.get_subcommands().front()->get_name();
  if (verb == "run") {
    RunOptions run = line.run;
    run.settings_file = line.settings_file;
    return run_verb(settings, run);
  }
  if (verb == "logits") {
    LogitsOptions logits = line.logits;
    logits.settings_file = line.settings_file;
    return logits_verb(settings, logits);
  }
  if (verb == "export") {
    ExportOptions exported = line.exported;
    exported.settings_file = line.settings_file;
    return export_verb(settings, exported);
  }
  if (verb == "quantize") {
    QuantizeVerbOptions quantize = line.quantize;
    quantize.settings_file = line.settings_file;
    return quantize_verb(quantize);
  }
  if (verb == "eval") return eval_verb(settings, line.eval);
  if (verb == "bench") return bench_verb(settings, line.bench);
  if (verb == "selftest") return selftest_verb(settings, {.json = line.selftest_json});
  if (verb == "inspect") return inspect_verb(settings, line.inspect);
  return config_verb(settings, line.config_schema ? ConfigView::kSchema : ConfigView::kValues);
}

int fail(const std::string& sentence, int code) {
  std::fprintf(stderr, "error: %s\n", sentence.c_str());
  return code;
}

/// The exit code, if what was printed has reached its reader.
int finish(int code) {
  const auto written = stdout_status();
  return written ? code : fail(written.error().message, base::exit_code(written.error().code));
}

int run_program(const std::vector<std::string>& given) {
  CommandLine line;
  CLI::App app("lathe: inference for hybrid linear-attention models of the GLM-5.3-Flash family.", "lathe");
  app.set_version_flag("--version", std::string("lathe ") + LATHE_VERSION);
  app.footer(
      "Settings come from --settings FILE, then from variables like LATHE_ENGINE_THREADS, then from flags; later ones win. `lathe config schema "
      "--json`\n"
      "lists them all. LATHE_BUILTIN and LATHE_EVAL_SETS name other folders than those that come with the program.\n"
      "Exit codes: 0 done, 1 failure (a file is missing or wrong, not enough memory, a check failed), 2 usage (a flag or value), 130 interrupted.");
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  add_run(app, line);
  add_others(app, line);
  add_quantize(app, line);
  add_bench(app, line);
  prepare_switches(app);
  const std::vector<std::string> arguments = with_empty_values(app, with_named_arms(given));
  if (const std::string wrong = flag_as_value(app, arguments); !wrong.empty()) return fail(wrong, kExitUsage);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // backwards, as the library wants them
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version
      std::ostringstream text;
      app.exit(error, text, text);
      print(text.str());
      return finish(0);
    }
    const std::string ours = repeated_or_empty(app, arguments);
    return fail(ours.empty() ? usage_message(app, error, given) : ours, kExitUsage);
  }
  if (const std::string wrong = repeated_or_empty(app, arguments); !wrong.empty()) return fail(wrong, kExitUsage);
  const auto result = dispatch(app, line);
  return result ? finish(*result) : fail(result.error().message, base::exit_code(result.error().code));
}

}  // namespace
}  // namespace lathe::apps

int main(int argc, char** argv) {
  lathe::apps::hold_standard_descriptors();
  std::signal(SIGPIPE, SIG_DFL);  // `lathe … | head`: the end, without a word, whatever the parent does about this signal
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails and is told
  try {
    return lathe::apps::run_program({argv + 1, argv + argc});
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory\n", stderr);
  } catch (const std::exception& exception) {  // a library's; ours report through Result
    std::fprintf(stderr, "error: %s\n", exception.what());
  }
  return 1;
}
