#include "apps/model_checks.h"

#include <algorithm>
#include <string_view>

#include "apps/settings.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "config/json.h"

namespace lathe::apps {
namespace {

using config::Json;

/// Contents of the added tokens that tokenizer_config.json lists. A file that cannot be read is told by who needs it.
std::vector<std::string> listed_tokens(const std::string& directory) {
  const std::string file = directory + "/tokenizer_config.json";
  std::vector<std::string> out;
  if (!base::file_exists(file)) return out;
  const auto json = config::read_json_file(file, base::kLimits.config_bytes);
  const Json* decoder = json ? json->find("added_tokens_decoder") : nullptr;
  if (decoder == nullptr || !decoder->is_object()) return out;
  for (const auto& [id, token] : decoder->as_object()) {
    const Json* content = token.find("content");
    if (content != nullptr && content->is_string() && !content->as_string().empty()) out.push_back(content->as_string());
  }
  return out;
}

/// `<|name|>` in the text, by place.
void find_bracketed(const std::string& text, std::vector<std::pair<size_t, std::string>>& found) {
  constexpr size_t kNameMax = 64;
  for (size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at + 2)) {
    const size_t end = text.find_first_of("|<> \n", at + 2);
    if (end == std::string::npos || end == at + 2 || end - at > kNameMax || text.compare(end, 2, "|>") != 0) continue;
    found.emplace_back(at, text.substr(at, end + 2 - at));
  }
}

Result<text::MarkedText> sample_prompt(const text::ChatTemplate& chat) {
  const Json messages = Json::Array{Json::Object{{"role", "user"}, {"content", "qx"}}, Json::Object{{"role", "assistant"}, {"content", "qx"}},
                                    Json::Object{{"role", "user"}, {"content", "qx"}}};
  return chat.render({.messages = &messages});
}

}  // namespace

Result<void> check_defaults(const std::string& directory, const models::GenerationDefaults& defaults) {
  const std::string file = directory + "/generation_config.json";
  const auto valid = base::file_content(sampling_params(config::Settings(registry()), defaults).validate(0));
  if (!valid) return base::forward_error(valid, file);
  for (const std::string& warning : defaults.warnings) base::log(base::LogLevel::kWarning, "{}: {}", file, warning);
  return {};
}

Result<void> check_stop_tokens(const std::string& file, std::span<const TokenId> ids, const text::Tokenizer& tokenizer) {
  for (const TokenId id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size())
      return err(Code::kDataLoss, "{}: eos_token_id is {}, the tokenizer has ids 0 to {}", file, id, tokenizer.vocab_size() - 1);
  }
  return {};
}

std::vector<std::string> split_tokens(const std::string& directory, const text::ChatTemplate& chat, const text::Tokenizer& tokenizer) {
  const auto prompt = sample_prompt(chat);
  if (!prompt) return {};
  std::vector<std::pair<size_t, std::string>> found;
  find_bracketed(prompt->text, found);
  for (std::string& token : listed_tokens(directory)) {
    if (const size_t at = prompt->text.find(token); at != std::string::npos) found.emplace_back(at, std::move(token));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (auto& [at, token] : found) {
    const auto id = tokenizer.find(token);
    const bool whole = id && tokenizer.is_added(*id);
    if (!whole && std::find(out.begin(), out.end(), token) == out.end()) out.push_back(std::move(token));
  }
  return out;
}

}  // namespace lathe::apps
