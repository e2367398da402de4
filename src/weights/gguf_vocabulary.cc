#include "weights/gguf_vocabulary.h"

#include <fmt/format.h>

namespace lathe::weights {

Result<std::vector<GgufKey>> gguf_vocabulary_keys(const GgufVocabulary& vocabulary, int64_t rows) {
  const auto count = static_cast<int64_t>(vocabulary.tokens.size());
  if (count > rows) return err(Code::kInvalidArgument, "the tokenizer has ids up to {}, the model has only {} rows", count - 1, rows);
  std::vector<std::string> tokens = vocabulary.tokens;
  std::vector<int32_t> kinds;
  for (const GgufTokenKind kind : vocabulary.kinds) kinds.push_back(static_cast<int32_t>(kind));
  tokens.resize(static_cast<size_t>(rows));
  kinds.resize(static_cast<size_t>(rows), static_cast<int32_t>(GgufTokenKind::kUnused));
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (kinds[id] == static_cast<int32_t>(GgufTokenKind::kUnused)) tokens[id] = fmt::format("[PAD{}]", id);  // names must differ
  }
  std::vector<GgufKey> out = {{"tokenizer.ggml.model", std::string("gpt2")},
                              {"tokenizer.ggml.pre", vocabulary.pre},
                              {"tokenizer.ggml.tokens", std::move(tokens)},
                              {"tokenizer.ggml.token_type", std::move(kinds)},
                              {"tokenizer.ggml.merges", vocabulary.merges}};
  const std::pair<const char*, std::optional<uint32_t>> ids[] = {{"bos", vocabulary.bos},         {"eos", vocabulary.eos},
                                                                 {"eot", vocabulary.eot},         {"eom", vocabulary.eom},
                                                                 {"unknown", vocabulary.unknown}, {"padding", vocabulary.padding}};
  for (const auto& [name, id] : ids) {
    if (id) out.push_back({fmt::format("tokenizer.ggml.{}_token_id", name), *id});
  }
  out.push_back({"tokenizer.ggml.add_bos_token", false});
  if (!vocabulary.chat_template.empty()) out.push_back({"tokenizer.chat_template", vocabulary.chat_template});
  return out;
}

std::vector<GgufKey> gguf_no_vocabulary_keys() { return {{"tokenizer.ggml.model", std::string("no_vocab")}}; }

}  // namespace lathe::weights
