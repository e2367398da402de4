#include "evaluate/bench_rival.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/file.h"
#include "evaluate/bench_rival_server.h"
#include "evaluate/process.h"
#include "ops/cases/problem.h"

namespace lathe::evaluate {
namespace {

using config::Json;

constexpr int64_t kDecodeTokens = 32;  // of each sequence in one sample

/// A positive number of an object, or nothing.
double number_of(const Json& entry, std::string_view key) {
  const Json* value = entry.find(key);
  return value != nullptr && value->is_number() ? value->as_double() : -1;
}

std::string list(const std::vector<int64_t>& values) { return fmt::format("{}", fmt::join(values, ",")); }

/// What the rival is asked for: one command line for each thing that its programs measure.
struct Commands {
  std::vector<std::string> prefill, decode, batched;  ///< empty: not asked for
  std::vector<int64_t> batches;                       ///< that it can measure
};

std::string batched_program(const std::string& llama_bench) {
  const size_t slash = llama_bench.rfind('/');
  return slash == std::string::npos ? "" : llama_bench.substr(0, slash + 1) + "llama-batched-bench";
}

Commands commands_of(const BenchRivalOptions& o, std::vector<std::string>& not_compared) {
  Commands out;
  const auto command = [&](const std::string& program, std::vector<std::string> words) {
    words.insert(words.begin(), {program, "-m", o.gguf, "-t", std::to_string(o.threads)});
    words.insert(words.end(), o.rival_arguments.begin(), o.rival_arguments.end());
    return words;
  };
  const std::string samples = std::to_string(o.samples);
  const std::string context = std::to_string(o.decode_context);
  const std::string tokens = std::to_string(kDecodeTokens);
  if (!o.prompts.empty()) out.prefill = command(o.llama_bench, {"-p", list(o.prompts), "-n", "0", "-r", samples, "-o", "json"});
  std::vector<int64_t> several = o.batches;
  if (std::erase(several, 1) > 0) {
    out.decode = command(o.llama_bench, {"-p", "0", "-n", tokens, "-d", context, "-r", samples, "-o", "json"});
    out.batches = {1};
  }
  if (several.empty()) return out;
  const std::string batched = batched_program(o.llama_bench);
  if (!base::file_exists(batched)) {
    not_compared.push_back(fmt::format("decode {}: there is no llama-batched-bench beside '{}'", list(several), o.llama_bench));
    return out;
  }
  const int64_t cells = *std::max_element(several.begin(), several.end()) * (o.decode_context + kDecodeTokens);
  out.batched = command(batched, {"-c", std::to_string(cells), "-npp", context, "-ntg", tokens, "-npl", list(several), "--output-format", "jsonl"});
  out.batches.insert(out.batches.end(), several.begin(), several.end());
  return out;
}

Result<std::string> output_of(const std::vector<std::string>& words, ArmRun& run) {
  LATHE_TRY(const ProcessResult result, run_process(words));
  run.wall_ns += result.wall_ns, run.cpu_ns += result.cpu_ns;
  if (!result.succeeded()) return err(Code::kFailedPrecondition, "'{}' {}", fmt::join(words, " "), result.end());
  return result.output;
}

Result<BenchFigures> run_rival(const Commands& commands, ArmRun& run) {
  BenchFigures all;
  const auto add = [&](const std::vector<std::string>& words, auto parse) -> Result<void> {
    if (words.empty()) return {};
    LATHE_TRY(const std::string output, output_of(words, run));
    const auto found = base::file_content(parse(output));
    if (!found) return base::forward_error(found, fmt::format("output of '{}'", fmt::join(words, " ")));
    all.insert(found->begin(), found->end());
    return {};
  };
  LATHE_TRY_VOID(add(commands.prefill, llama_bench_figures));
  LATHE_TRY_VOID(add(commands.decode, llama_bench_figures));
  LATHE_TRY_VOID(add(commands.batched, batched_bench_figures));
  return all;
}

Result<void> check_rival(const BenchRivalOptions& options) {
  if (!base::file_exists(options.gguf)) {
    return err(Code::kNotFound, "there is no GGUF file '{}': No such file or directory; `lathe export` writes one", options.gguf);
  }
  LATHE_TRY(const ProcessResult help, run_process({options.llama_bench, "--help"}));
  if (help.succeeded() && help.output.find("n-gen") != std::string::npos) return {};
  return err(Code::kFailedPrecondition, "'{} --help' {}, expected llama-bench of llama.cpp", options.llama_bench,
             help.succeeded() ? "names no flag --n-gen" : help.end());
}

}  // namespace

Result<BenchFigures> llama_bench_figures(const std::string& output) {
  LATHE_TRY(const Json json, config::parse_json(output));
  if (!json.is_array()) return err(Code::kInvalidArgument, "llama-bench wrote {}, expected a list", json.kind_name());
  BenchFigures out;
  for (const Json& entry : json.as_array()) {
    const double prompt = number_of(entry, "n_prompt");
    const double generated = number_of(entry, "n_gen");
    const double rate = number_of(entry, "avg_ts");
    if (prompt < 0 || generated < 0 || rate <= 0) return err(Code::kInvalidArgument, "an entry of llama-bench lacks n_prompt, n_gen or avg_ts");
    out[prompt > 0 ? fmt::format("prefill {:.0f}", prompt) : "decode 1"] = rate;
  }
  return out;
}

Result<BenchFigures> batched_bench_figures(const std::string& output) {
  BenchFigures out;
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    const std::string line = output.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with('{')) continue;
    LATHE_TRY(const Json json, config::parse_json(line));
    const double sequences = number_of(json, "pl");
    const double rate = number_of(json, "speed_tg");
    if (sequences < 1 || rate <= 0) return err(Code::kInvalidArgument, "a line of llama-batched-bench lacks pl or speed_tg");
    out[fmt::format("decode {:.0f}", sequences)] = rate;
  }
  return out;
}

namespace {

/// What of the lengths and batches the server has room for.
void fit_to_server(RivalServer& server, std::vector<std::string>& not_compared) {
  const auto too_long = [&](int64_t tokens) { return tokens + 1 > server.context; };
  const auto drop = [&](std::vector<int64_t>& values, auto unfit, const std::string& figure, const std::string& why) {
    std::vector<int64_t> dropped;
    std::copy_if(values.begin(), values.end(), std::back_inserter(dropped), unfit);
    std::erase_if(values, unfit);
    if (!dropped.empty()) not_compared.push_back(fmt::format("{} {}: {}", figure, list(dropped), why));
  };
  drop(server.prompts, too_long, "prefill", fmt::format("the server's sequences have {} tokens", server.context));
  drop(
      server.batches, [&](int64_t batch) { return server.decode_context + decode_answer(batch) > server.context; }, "decode",
      fmt::format("the server's sequences have {} tokens, too few behind {}", server.context, server.decode_context));
  drop(server.batches, [&](int64_t batch) { return batch > server.slots; }, "decode", fmt::format("the server answers {} at a time", server.slots));
}

/// The rival's side of a pair, and what it is asked for.
struct Rival {
  std::vector<int64_t> prompts, batches;
  std::function<Result<BenchFigures>(ArmRun&)> run;
};

Result<Rival> server_rival(const BenchRivalOptions& options, RivalBench& out) {
  RivalServer server;
  server.prompts = options.prompts;
  server.batches = options.batches;
  server.decode_context = options.decode_context;
  server.samples = options.samples;
  LATHE_TRY(server.url, net::parse_http_url(options.server));
  LATHE_TRY_VOID(ask_server(server));
  fit_to_server(server, out.not_compared);
  out.arms.a = {.name = options.server, .program = options.server, .arguments = {}};
  const uint64_t draw = options.pairs.seed;
  const auto run = [server, draw](ArmRun& one) { return run_server(server, ops::cases::mix(draw ^ static_cast<uint64_t>(one.order + 1)), one); };
  return Rival{.prompts = server.prompts, .batches = server.batches, .run = run};
}

Result<Rival> program_rival(const BenchRivalOptions& options, RivalBench& out) {
  LATHE_TRY_VOID(check_rival(options));
  const Commands commands = commands_of(options, out.not_compared);
  out.arms.a = {.name = options.llama_bench, .program = options.llama_bench, .arguments = options.rival_arguments};
  return Rival{.prompts = options.prompts, .batches = commands.batches, .run = [commands](ArmRun& one) { return run_rival(commands, one); }};
}

}  // namespace

Result<RivalBench> bench_rival(const BenchRivalOptions& options, base::FunctionRef<void(int, int)> progress) {
  RivalBench out;
  LATHE_TRY(const Rival rival, options.server.empty() ? program_rival(options, out) : server_rival(options, out));
  if (rival.batches.empty() || rival.prompts.empty()) {
    return err(Code::kFailedPrecondition, "nothing of prompts {} and batches {} can be compared: {}", list(options.prompts), list(options.batches),
               fmt::join(out.not_compared, "; "));
  }
  out.arms.b = options.ours;
  out.arms.pairs = options.pairs.pairs;
  out.arms.seed = options.pairs.seed;
  out.arms.common = {"--samples", std::to_string(options.samples), "--decode-context", std::to_string(options.decode_context)};
  out.arms.common.insert(out.arms.common.end(), {"--prompt", list(rival.prompts), "--batch", list(rival.batches)});
  LATHE_TRY_VOID(check_arm(options.ours, out.arms.common));
  const auto run = [&](ArmRun& one) { return one.is_b ? run_arm(options.ours, out.arms.common, one) : rival.run(one); };
  LATHE_TRY(out.bench, bench_pairs(options.pairs, run, progress));
  return out;
}

}  // namespace lathe::evaluate
