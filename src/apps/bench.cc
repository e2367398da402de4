#include "apps/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "apps/allocation_count.h"
#include "apps/make_slice.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/text_model.h"
#include "backend/cpu/thread_choice.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "config/settings_json.h"
#include "engine/generate.h"
#include "evaluate/bench_ab.h"
#include "evaluate/bench_baseline.h"
#include "evaluate/bench_drafts.h"
#include "evaluate/bench_model.h"
#include "evaluate/bench_ops.h"
#include "evaluate/bench_rival.h"
#include "evaluate/eval_sets.h"
#include "evaluate/peer_products.h"
#include "text/tokenizer.h"

namespace lathe::apps {
namespace {

using config::Json;

constexpr int64_t kLongPrompt = 65536;
constexpr int kFirstTokenSamples = 5;

/// What every report begins with.
struct Circumstances {
  evaluate::MachineFacts facts = evaluate::machine_facts();
  evaluate::MachineLoad begin = evaluate::machine_load();

  Json report(const char* suite, const config::Settings& settings) const {
    return Json::Object{{"suite", suite},
                        {"version", LATHE_VERSION},
                        {"machine", evaluate::machine_json(facts, begin, evaluate::machine_load())},
                        {"settings", config::settings_json(settings)}};
  }
  std::string line(int threads) const {
    return fmt::format("{}, {} threads, {}; {}; load {:.1f} before, {:.1f} after\n", facts.cpu, threads, facts.isa, facts.caches, begin.load1,
                       evaluate::machine_load().load1);
  }
};

void append(Json& report, Json more) {
  for (auto& [key, value] : more.as_object()) report.set(key, std::move(value));
}

/// A recorded report to compare with. It is read before anything is measured.
struct Baseline {
  std::string path;
  std::optional<Json> report;
};
Result<Baseline> find_baseline(const BenchOptions& options, const Circumstances& where) {
  Baseline out{.path = options.baseline, .report = {}};
  if (out.path.empty()) {
    if (options.json) return out;
    out.path = fmt::format("{}/bench/baselines/{}/{}.json", LATHE_SOURCE_DIR, where.facts.id, options.suite);
    if (!base::file_exists(out.path)) return out;
  }
  LATHE_TRY(out.report, evaluate::read_baseline(out.path, options.suite));
  return out;
}

/// JSON, or the page with the comparison against a recorded report.
Result<int> put_out(const BenchOptions& options, const Baseline& baseline, const Json& report, const std::string& page) {
  if (options.json) {
    print(report.dump({.key_separator = ": ", .indent = 1}) + "\n");
    return 0;
  }
  print(page);
  if (!baseline.report) return 0;
  LATHE_TRY(const std::string comparison, evaluate::baseline_page(report, *baseline.report, baseline.path));
  print(comparison);
  return 0;
}

std::string roofs_line(evaluate::Roofs& roofs) {
  const auto gigabytes = [&](int64_t set) { return roofs.read_bandwidth(set) / 1e9; };
  std::string out = fmt::format(
      "roofs of {} threads: read {:.0f} GB/s in 64 KiB, {:.0f} in 1 MiB, {:.0f} in 16 MiB, {:.0f} in 256 MiB; copy {:.0f} in 256 MiB; f32 {:.0f} "
      "GFLOP/s, bf16 {:.0f}",
      roofs.threads(), gigabytes(int64_t{1} << 16), gigabytes(int64_t{1} << 20), gigabytes(int64_t{1} << 24), gigabytes(int64_t{1} << 28),
      roofs.copy_bandwidth(int64_t{1} << 28) / 1e9, roofs.f32_flops() / 1e9, roofs.bf16_flops() / 1e9);
  if (roofs.int8_operations() > 0) out += fmt::format(", int8 {:.0f} GOP/s", roofs.int8_operations() / 1e9);
  if (!roofs.reliable()) out += "\nroofs are too low: the threads never ran all at once; other work holds processors";
  return out + "\n";
}

Result<int> bench_ops_verb(const config::Settings& settings, const BenchOptions& options) {
  const Circumstances where;
  LATHE_TRY(const engine::EngineOptions engine, engine_options(settings));
  evaluate::BenchOpsOptions bench{.op = options.op,
                                  .compute = engine.precision == models::Precision::kExact ? ops::Compute::kF32 : ops::Compute::kBF16,
                                  .cpu = engine.cpu,
                                  .kernels = engine.kernels,
                                  .reference = !options.no_reference};
  bench.shapes = options.shapes == "all" ? std::vector<std::string>{"model", "published"} : std::vector<std::string>{options.shapes};
  LATHE_TRY(bench.tokens, split_integers("--tokens", options.tokens, 1));
  LATHE_TRY_VOID(evaluate::check_bench_ops(bench));
  LATHE_TRY(const Baseline baseline, find_baseline(options, where));
  LATHE_TRY(const backend::ThreadChoice threads, backend::choose_threads(engine.cpu));
  evaluate::Roofs roofs(threads.plan.threads);
  roofs_line(roofs);  // measures them before the ops; they are measured again after
  Stages stages({.quiet = options.json});
  LATHE_TRY(const auto benches,
            evaluate::bench_ops(bench, roofs, [&](const std::string& what, int64_t done, int64_t total) { stages.show(what, done, total); }));
  stages.finish();
  Json report = where.report("ops", settings);
  report.set("roofs", roofs.json());
  report.set("ops", evaluate::ops_json(benches));
  return put_out(options, baseline, report, where.line(roofs.threads()) + roofs_line(roofs) + evaluate::ops_page(benches));
}

/// Loads everything that makes text and answers "Hello." up to the first token.
Result<std::vector<evaluate::Sample>> first_token(const engine::EngineOptions& engine, Stages& stages) {
  evaluate::SampleClock clock;
  std::vector<evaluate::Sample> samples;
  const auto once = [&]() -> Result<void> {
    LATHE_TRY(TextModel model, TextModel::load(engine));
    Prompt prompt;
    if (model.chat) {
      const Json messages = Json::Array{Json::Object{{"role", "user"}, {"content", "Hello."}}};
      LATHE_TRY(prompt, model.chat_prompt(messages, {}, {}));
    } else {
      LATHE_TRY(prompt, model.raw_prompt("Hello."));
    }
    engine::Generator generator(*model.engine);
    engine::Request request{.prompt = std::move(prompt.ids), .images = {}, .sampling = {}, .max_tokens = 1, .stop_tokens = {}};
    request.sampling.temperature = 0;
    LATHE_TRY(const int32_t id, generator.add(std::move(request)));
    bool seen = false;
    while (!seen) {
      LATHE_TRY(const bool more, generator.step([&](const engine::TokenEvent&) { seen = true; }));
      if (!more) break;
    }
    if (const Error& error = generator.error(id); !error.message.empty()) return tl::unexpected<Error>(error);
    return {};
  };
  for (int i = 0; i < kFirstTokenSamples; ++i) {
    stages.show("load and first token", i, kFirstTokenSamples);
    Result<void> done;
    samples.push_back(clock.take(1, [&] { done = once(); }));
    LATHE_TRY_VOID(done);
  }
  return samples;
}

/// Loads the model as the benchmark would, and measures nothing.
Result<int> check_model(engine::EngineOptions engine, const evaluate::BenchModelOptions& bench) {
  engine.context_tokens = evaluate::bench_model_context(bench);
  engine.sequences = evaluate::bench_model_sequences(bench);
  LATHE_TRY(const std::unique_ptr<engine::Engine> loaded, engine::Engine::create(engine));
  LATHE_TRY_VOID(evaluate::check_bench_model(*loaded, bench));
  return 0;
}

/// Prompts that the model's draft layer can foresee the answers to: of the built-in model's evaluation, or pieces of a text. Tells the engine which ids there are.
Result<evaluate::BenchDraftsOptions> draft_prompts(const BenchOptions& options, engine::EngineOptions& engine) {
  constexpr size_t kPieceTokens = 64, kPieces = 64, kLongAnswer = 128;
  evaluate::BenchDraftsOptions out{.prompts = {}, .samples = static_cast<int>(options.samples), .stop_tokens = {}};
  if (!options.text.empty()) {
    LATHE_TRY(const auto tokenizer, base::file_content(text::Tokenizer::load(engine.model + "/tokenizer.json")));
    engine.sampled_vocabulary = tokenizer->vocab_size();
    LATHE_TRY(const std::string content, base::read_file(options.text, base::kLimits.prompt_bytes));
    LATHE_TRY(const std::vector<TokenId> ids, tokenizer->encode(content));
    for (size_t at = 0; at + kPieceTokens <= ids.size() && out.prompts.size() < kPieces; at += kPieceTokens)
      out.prompts.emplace_back(ids.begin() + static_cast<ptrdiff_t>(at), ids.begin() + static_cast<ptrdiff_t>(at + kPieceTokens));
    if (out.prompts.empty())
      return err(Code::kInvalidArgument, "--text {} has {} tokens, expected at least {}", options.text, ids.size(), kPieceTokens);
    return out;
  }
  const auto builtin = builtin_model();
  if (!builtin || *builtin != engine.model)
    return err(Code::kInvalidArgument, "drafts are measured on real text: expected --text FILE with --draft-tokens");
  LATHE_TRY(const std::string folder, builtin_eval_sets());
  LATHE_TRY(evaluate::EvalSets sets, evaluate::read_eval_sets(folder, {.names = {"draft_prompts"}}));
  for (evaluate::DraftRow& row : sets.drafts) {
    if (row.given.size() >= kLongAnswer) out.prompts.push_back(std::move(row.prompt));
  }
  out.stop_tokens = std::move(sets.stop_tokens);
  engine.sampled_vocabulary = sets.first_id_never_chosen;
  return out;
}

/// Answers with drafts and without, by an engine of their own.
Result<std::vector<evaluate::DraftsBench>> bench_answers(engine::EngineOptions engine, const BenchOptions& options,
                                                         const evaluate::BenchModelOptions& bench, Stages& stages) {
  LATHE_TRY(evaluate::BenchDraftsOptions drafts, draft_prompts(options, engine));
  drafts.batches = bench.batches;
  size_t longest = 0;
  for (const auto& prompt : drafts.prompts) longest = std::max(longest, prompt.size());
  engine.context_tokens = static_cast<int64_t>(longest) + drafts.tokens + 1;
  engine.sequences = static_cast<int32_t>(*std::max_element(bench.batches.begin(), bench.batches.end()));
  LATHE_TRY(const std::unique_ptr<engine::Engine> loaded, engine::Engine::create(engine));
  return evaluate::bench_drafts(*loaded, drafts, [&](const std::string& what, int64_t done, int64_t total) { stages.show(what, done, total); });
}

Result<int> bench_model_verb(const config::Settings& settings, const BenchOptions& options) {
  const Circumstances where;
  LATHE_TRY(engine::EngineOptions engine, engine_options(settings));
  evaluate::BenchModelOptions bench{.decode_context = options.decode_context,
                                    .samples = static_cast<int>(options.samples),
                                    .seed = static_cast<uint64_t>(options.seed),
                                    .figures = !options.samples_only};
  LATHE_TRY(bench.prompts, split_integers("--prompt", options.prompts, 1));
  LATHE_TRY(bench.batches, split_integers("--batch", options.batches, 1));
  if (options.long_prompt) bench.prompts.push_back(kLongPrompt);
  LATHE_TRY_VOID(evaluate::check_bench_lengths(bench, engine.batch_tokens));
  const engine::DraftOptions drafts = std::exchange(engine.drafts, {});  // prompts and steps are measured as they are without
  LATHE_TRY(const Baseline baseline, find_baseline(options, where));
  if (options.check) return check_model(engine, bench);
  if (allocation_count() >= 0) bench.allocations = allocation_count;
  LATHE_TRY(const backend::ThreadChoice threads, backend::choose_threads(engine.cpu));
  evaluate::Roofs roofs(threads.plan.threads);
  Stages stages({.quiet = options.json});
  std::vector<evaluate::Sample> first;
  std::string page;
  if (bench.figures) {
    roofs_line(roofs);  // measures them before the model runs; they are measured again after
    LATHE_TRY(first, first_token(engine, stages));
  }
  engine.context_tokens = evaluate::bench_model_context(bench);
  engine.sequences = evaluate::bench_model_sequences(bench);
  const int64_t start = base::now_ns();
  LATHE_TRY(const std::unique_ptr<engine::Engine> loaded, engine::Engine::create(engine));
  const int64_t load_ns = base::now_ns() - start;
  LATHE_TRY(const auto result, evaluate::bench_model(*loaded, bench, roofs,
                                                     [&](const std::string& what, int64_t done, int64_t total) { stages.show(what, done, total); }));
  std::vector<evaluate::DraftsBench> answers;
  if (drafts.most > 0 && !bench.batches.empty()) {
    engine.drafts = drafts;
    LATHE_TRY(answers, bench_answers(engine, options, bench, stages));
  }
  stages.finish();
  Json report = where.report("model", settings);
  report.set("model", engine.model);
  report.set("seed", options.seed);
  report.set("weight_bytes", loaded->info().weight_bytes);
  report.set("engine_load_ns", load_ns);
  if (!first.empty())
    report.set("first_token", Json::Object{{"median_ns", evaluate::summarise(first).median}, {"samples", evaluate::samples_json(first)}});
  report.set("roofs", roofs.json());
  append(report, evaluate::model_json(result));
  if (!answers.empty()) append(report, evaluate::drafts_json(answers));
  page = fmt::format("{}\n{}{}", engine.model, where.line(roofs.threads()), bench.figures ? roofs_line(roofs) : "");
  if (!first.empty()) {
    const evaluate::Summary time = evaluate::summarise(first);
    page += fmt::format("load and first token {:.0f} ms ({:.0f}–{:.0f}), tokenizer and template included\n", time.median / 1e6, time.low / 1e6,
                        time.high / 1e6);
  }
  return put_out(options, baseline, report, page + evaluate::model_page(result) + evaluate::drafts_page(answers));
}

Result<int> bench_ab_verb(const config::Settings& settings, const BenchOptions& options) {
  const Circumstances where;
  evaluate::BenchAbOptions bench{
      .a = {}, .b = {}, .common = {}, .pairs = static_cast<int>(options.pairs), .seed = static_cast<uint64_t>(options.seed)};
  LATHE_TRY(bench.a, evaluate::parse_arm(options.a, "/proc/self/exe"));
  LATHE_TRY(bench.b, evaluate::parse_arm(options.b, "/proc/self/exe"));
  if (!options.arguments.empty()) {
    LATHE_TRY(const evaluate::BenchArm common, evaluate::parse_arm("- " + options.arguments, ""));
    bench.common.assign(common.arguments.begin() + 1, common.arguments.end());
  }
  Stages stages({.quiet = options.json});
  LATHE_TRY(const auto result, evaluate::bench_ab(bench, [&](int done, int total) { stages.show("runs", done, total); }));
  stages.finish();
  if (!options.json) {
    print(evaluate::ab_page(bench, result));
    return 0;
  }
  Json report = where.report("ab", settings);
  append(report, evaluate::ab_json(bench, result));
  print(report.dump({.key_separator = ": ", .indent = 1}) + "\n");
  return 0;
}

/// The flags that give another program of this kind the settings that hold here.
std::vector<std::string> engine_flags(const config::Settings& settings) {
  std::vector<std::string> out;
  for (const config::SettingSpec& spec : registry().specs()) {
    if (!spec.name.starts_with("engine.") || settings.origin(spec.name) == config::SettingOrigin::kDefault) continue;
    const bool is_switch = spec.type == config::SettingType::kBool;
    if (is_switch && !settings.get_bool(spec.name)) continue;
    out.push_back(spec.flag());
    if (!is_switch) out.push_back(config::setting_text(settings.value(spec.name)));
  }
  return out;
}

/// Products alone, in this process.
Result<int> bench_onednn(const config::Settings& settings, const BenchOptions& options) {
  const Circumstances where;
  LATHE_TRY(const engine::EngineOptions engine, engine_options(settings));
  evaluate::PeerProductsOptions bench{.module = program_directory() + "/lathe_onednn.so",
                                      .cpu = engine.cpu,
                                      .pairs = {.pairs = static_cast<int>(options.pairs), .seed = static_cast<uint64_t>(options.seed)}};
  if (bench.cpu.threads == 0) bench.cpu.threads = base::default_thread_count();
  LATHE_TRY(bench.tokens, split_integers("--tokens", options.products_tokens, 1));
  evaluate::Roofs roofs(bench.cpu.threads);
  Stages stages({.quiet = options.json});
  LATHE_TRY(const auto peers, evaluate::bench_peer_products(bench, roofs, [&](int done, int total) { stages.show("products", done, total); }));
  stages.finish();
  if (!options.json) {
    print(where.line(roofs.threads()) + roofs_line(roofs) + evaluate::peer_page(peers));
    return 0;
  }
  Json report = where.report("onednn", settings);
  report.set("roofs", roofs.json());
  append(report, evaluate::peer_json(peers));
  print(report.dump({.key_separator = ": ", .indent = 1}) + "\n");
  return 0;
}

Result<void> check_rival_flags(const BenchOptions& options) {
  const bool programs = !options.llama_bench.empty() || !options.gguf.empty() || !options.rival_arguments.empty();
  if (options.onednn && (programs || !options.server.empty()))
    return err(Code::kInvalidArgument, "--onednn compares products alone: expected it without --server, --llama-bench, --gguf and --rival-args");
  if (options.onednn) return {};
  if (!options.server.empty() && programs)
    return err(Code::kInvalidArgument, "--server is a rival that runs already: expected it without --llama-bench, --gguf and --rival-args");
  if (options.server.empty() && (options.llama_bench.empty() || options.gguf.empty()))
    return err(Code::kInvalidArgument, "bench rival needs a rival: expected --server, --onednn, or --llama-bench and --gguf");
  return {};
}

Result<int> bench_rival_verb(const config::Settings& settings, const BenchOptions& options) {
  LATHE_TRY_VOID(check_rival_flags(options));
  if (options.onednn) return bench_onednn(settings, options);
  const Circumstances where;
  LATHE_TRY(const engine::EngineOptions engine, engine_options(settings));
  LATHE_TRY(const backend::ThreadChoice threads, backend::choose_threads(engine.cpu));
  evaluate::BenchRivalOptions bench{.llama_bench = options.llama_bench,
                                    .gguf = options.gguf,
                                    .server = options.server,
                                    .rival_arguments = evaluate::split_words(options.rival_arguments),
                                    .ours = {.name = "lathe " + engine.model, .program = "/proc/self/exe", .arguments = engine_flags(settings)},
                                    .prompts = {},
                                    .batches = {},
                                    .decode_context = options.decode_context,
                                    .samples = options.samples,
                                    .threads = threads.plan.threads,
                                    .pairs = {.pairs = static_cast<int>(options.pairs), .seed = static_cast<uint64_t>(options.seed)}};
  LATHE_TRY(bench.prompts, split_integers("--prompt", options.prompts, 1));
  LATHE_TRY(bench.batches, split_integers("--batch", options.batches, 1));
  Stages stages({.quiet = options.json});
  LATHE_TRY(const auto result, evaluate::bench_rival(bench, [&](int done, int total) { stages.show("runs", done, total); }));
  stages.finish();
  if (!options.json) {
    print(where.line(bench.threads) + evaluate::ab_page(result.arms, result.bench));
    for (const std::string& sentence : result.not_compared) print("  not compared: " + sentence + "\n");
    return 0;
  }
  Json report = where.report("rival", settings);
  report.set(options.server.empty() ? "gguf" : "server", options.server.empty() ? options.gguf : options.server);
  append(report, evaluate::ab_json(result.arms, result.bench));
  report.set("not_compared", Json::Array(result.not_compared.begin(), result.not_compared.end()));
  print(report.dump({.key_separator = ": ", .indent = 1}) + "\n");
  return 0;
}

/// Is the word behind this one its value?
bool takes_a_word(std::string_view word) {
  static constexpr std::string_view kOwn[] = {"--verb-args", "--pairs", "--draw", "--settings", "--a", "--b"};
  if (std::find(std::begin(kOwn), std::end(kOwn), word) != std::end(kOwn)) return true;
  const config::SettingSpec* const spec = find_setting_flag(word);
  return spec != nullptr && spec->type != config::SettingType::kBool;
}

/// A program, or several words of flags; a single flag is one of `ab` itself.
bool is_arm(std::string_view word) {
  if (!word.starts_with('-')) return true;
  const std::string_view flag = word.substr(0, word.find('='));
  if (flag == "--a" || flag == "--b" || flag == "--verb-args") return false;
  const size_t blank = word.find(' ');
  return word.find(" -") != std::string_view::npos || (blank != std::string_view::npos && blank < word.find('='));
}

}  // namespace

std::vector<std::string> with_named_arms(std::vector<std::string> arguments) {
  if (arguments.size() < 2 || arguments[0] != "bench" || arguments[1] != "ab") return arguments;
  std::vector<size_t> arms;  // places of words that are arms by themselves
  std::vector<const char*> names = {"--a=", "--b="};
  const auto named = [&](std::string_view flag) {
    std::erase_if(names, [&](std::string_view name) { return name.starts_with(flag) && name.size() == flag.size() + 1; });
  };
  for (size_t i = 2; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {  // all the rest
      arguments.erase(arguments.begin() + static_cast<ptrdiff_t>(i));
      for (; i < arguments.size(); ++i) arms.push_back(i);
      break;
    }
    named(std::string_view(word).substr(0, word.find('=')));
    if (takes_a_word(word)) {
      ++i;
    } else if (is_arm(word)) {
      arms.push_back(i);
    }
  }
  // What is left over when both have their word stays as it is: the command line refuses it.
  for (size_t i = 0; i < std::min(arms.size(), names.size()); ++i) arguments[arms[i]].insert(0, names[i]);
  return arguments;
}

Result<int> bench_verb(const config::Settings& settings, const BenchOptions& options) {
  if (options.suite == "ops") return bench_ops_verb(settings, options);
  if (options.suite == "model") return bench_model_verb(settings, options);
  if (options.suite == "rival") return bench_rival_verb(settings, options);
  if (options.suite == "ladder") return ladder_verb(settings, options.ladder);
  if (options.suite == "make-slice") return make_slice_verb(options.slice);
  return bench_ab_verb(settings, options);
}

}  // namespace lathe::apps
