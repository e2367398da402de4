#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "apps/outputs.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/threads.h"
#include "models/gguf_export.h"
#include "text/chat_template.h"
#include "text/vocabulary.h"

namespace lathe::apps {
namespace {

using config::Json;
using weights::GgufTokenKind;
using weights::GgufType;

constexpr uint64_t kMegabyte = 1'000'000;

/// How readers of GGUF cut text that names the pre-tokenizer "glm4".
constexpr std::string_view kGlm4Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

GgufTokenKind kind_of(text::Vocabulary::Kind kind) {
  switch (kind) {
    case text::Vocabulary::Kind::kHole: return GgufTokenKind::kUnused;
    case text::Vocabulary::Kind::kPlain: return GgufTokenKind::kNormal;
    case text::Vocabulary::Kind::kAdded: return GgufTokenKind::kUser;
    case text::Vocabulary::Kind::kSpecial: return GgufTokenKind::kControl;
  }
  return GgufTokenKind::kUnused;
}

Result<weights::GgufVocabulary> read_vocabulary(const std::string& model) {
  const std::string file = model + "/tokenizer.json";
  if (!base::file_exists(file)) return err(Code::kNotFound, "there is no '{}': expected it, or --no-vocab for a file that takes ids", file);
  LATHE_TRY(const text::Vocabulary known, base::file_content(text::read_vocabulary(file)));
  if (known.split != kGlm4Split) {
    return err(Code::kUnimplemented, "{} cuts text in a way that GGUF readers have no name for: expected the rule of GLM-4, or --no-vocab", file);
  }
  weights::GgufVocabulary out;
  out.pre = "glm4";
  for (const text::Vocabulary::Token& token : known.tokens) {
    out.tokens.push_back(token.name);
    out.kinds.push_back(kind_of(token.kind));
  }
  out.merges = known.merges;
  const auto id_of = [&](std::string_view name) -> std::optional<uint32_t> {
    const TokenId id = known.find(name);
    return id < 0 ? std::nullopt : std::optional<uint32_t>(static_cast<uint32_t>(id));
  };
  out.bos = id_of("[gMASK]");
  out.eos = out.unknown = out.padding = id_of("<|endoftext|>");
  out.eot = id_of("<|user|>");
  out.eom = id_of("<|observation|>");
  const auto chat = base::file_content(text::ChatTemplate::load(model));
  if (!chat && chat.error().code != Code::kNotFound) return base::forward_error(chat);
  if (chat) out.chat_template = chat->source();
  return out;
}

GgufType type_of(const std::string& name) {
  for (const GgufType type : {GgufType::kF32, GgufType::kF16, GgufType::kQ8}) {
    if (name == weights::gguf_type_name(type)) return type;
  }
  return GgufType::kBF16;
}

void print_report(const ExportOptions& options, const models::GgufExportReport& report, double seconds) {
  for (const std::string& note : report.notes) base::log(base::LogLevel::kWarning, "{}", note);
  if (options.json) {
    const Json::Array kept(report.kept_as_f16.begin(), report.kept_as_f16.end());
    const Json json =
        Json::Object{{"file", options.gguf}, {"type", options.type}, {"tensors", report.tensors}, {"bytes", static_cast<int64_t>(report.bytes)},
                     {"kept_as_f16", kept},  {"seconds", seconds}};
    print(json.dump({.key_separator = ": ", .indent = 1}) + "\n");
    return;
  }
  print(fmt::format("{}: {} tensors, {:.3f} GB, {}\n", options.gguf, report.tensors, static_cast<double>(report.bytes) / 1e9, options.type));
  if (!report.kept_as_f16.empty()) {
    print(fmt::format("as f16, because their rows are no whole blocks of {}: {}\n", weights::kQ8Values, fmt::join(report.kept_as_f16, " ")));
  }
}

}  // namespace

Result<int> export_verb(const config::Settings& settings, const ExportOptions& options) {
  if (options.gguf.empty()) return err(Code::kInvalidArgument, "export needs --gguf OUT.gguf");
  LATHE_TRY(const engine::EngineOptions engine, engine_options(settings));
  const NamedFile inputs[] = {{"--settings", options.settings_file}};
  LATHE_TRY_VOID(check_output({"--gguf", options.gguf}, {.model = engine.model, .files = inputs}));
  if (base::file_exists(options.gguf) && !options.force)
    return err(Code::kAlreadyExists, "--gguf '{}' is there already: expected another name, or --force to replace it", options.gguf);
  LATHE_TRY_VOID(models::check_gguf_export(engine.model));
  models::GgufExportOptions job{.name = std::filesystem::weakly_canonical(engine.model).filename().string(),
                                .type = type_of(options.type),
                                .vocabulary = {},
                                .threads = engine.cpu.threads > 0 ? engine.cpu.threads : base::default_thread_count()};
  if (!options.no_vocab) {
    LATHE_TRY(job.vocabulary, read_vocabulary(engine.model));
  }
  const int64_t start = base::now_ns();
  const InterruptGuard guard;
  std::optional<Progress> progress;
  LATHE_TRY(const auto report, models::export_gguf(engine.model, options.gguf, job, [&](uint64_t done, uint64_t total) {
              if (!progress) progress.emplace("writing MB", static_cast<int64_t>(total / kMegabyte), ProgressOptions{.quiet = options.json});
              progress->update(static_cast<int64_t>(done / kMegabyte));
              return !InterruptGuard::interrupted();
            }));
  progress.reset();
  print_report(options, report, static_cast<double>(base::now_ns() - start) / 1e9);
  return 0;
}

}  // namespace lathe::apps
