#include "apps/model_checks.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

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

Result<void> check_links(const std::string& directory) {
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json", "generation_config.json", "preprocessor_config.json"}) {
    const std::string path = directory + "/" + name;
    std::error_code error;
    if (std::filesystem::is_symlink(path, error) && !base::file_exists(path))
      return err(Code::kNotFound, "'{}' is a link to a file that is not there: expected the file, or no link", path);
  }
  return {};
}

bool shows_user(const text::ChatTemplate& chat) {
  const auto prompt = sample_prompt(chat);
  return !prompt || prompt->text.find("qx") != std::string::npos;
}

Result<void> check_preprocess(const std::string& directory, const media::PreprocessConfig& preprocess) {
  const std::string file = directory + "/config.json";
  LATHE_TRY(const Json config, config::read_json_file(file, base::kLimits.config_bytes));
  const Json* const vision = config.find("vision_config");
  if (vision == nullptr) return {};
  const struct {
    const char *ours, *theirs;
    int64_t value;
  } pairs[] = {{"patch_size", "patch_size", preprocess.patch_size},
               {"temporal_patch_size", "temporal_patch_size", preprocess.temporal_patch_size},
               {"merge_size", "spatial_merge_size", preprocess.merge_size}};
  for (const auto& [ours, theirs, value] : pairs) {
    const Json* const wanted = vision->find(theirs);
    if (wanted == nullptr || !wanted->is_int() || wanted->as_int() == value) continue;
    return err(Code::kDataLoss, "{}/preprocessor_config.json: '{}' is {}, but '{}' in the vision_config of {} is {}", directory, ours, value, theirs,
               file, wanted->as_int());
  }
  return {};
}

Result<void> check_special_ids(const std::string& directory, const text::Tokenizer& tokenizer) {
  const std::string file = directory + "/config.json";
  LATHE_TRY(const Json config, config::read_json_file(file, base::kLimits.config_bytes));
  for (const char* key :
       {"image_token_id", "image_start_token_id", "image_end_token_id", "video_token_id", "video_start_token_id", "video_end_token_id"}) {
    const Json* const id = config.find(key);
    if (id == nullptr || !id->is_int() || id->as_int() < 0 || id->as_int() >= tokenizer.vocab_size()) continue;  // no text becomes such an id
    if (!tokenizer.is_added(static_cast<TokenId>(id->as_int())))
      return err(Code::kDataLoss, "{}: {} is {}, expected one of the added tokens of {}/tokenizer.json", file, key, id->as_int(), directory);
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
