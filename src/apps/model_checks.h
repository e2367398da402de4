#pragma once
// What makes a model folder inconsistent, told at load: defaults that no sampler takes, tokens that cannot be drawn, control tokens that would be split.

#include <span>

#include "base/result.h"
#include "config/settings.h"
#include "media/image.h"
#include "models/generation_config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lathe::apps {

/// Defaults of generation_config.json, by the ranges of the sampler; what the file asks for in vain is a warning. Errors: data_loss naming the file.
Result<void> check_defaults(const std::string& directory, const models::GenerationDefaults& defaults);

/// Ids that end an answer must be ids that can be drawn, or no answer ends. Errors: data_loss naming file, id and range.
Result<void> check_stop_tokens(const std::string& file, std::span<const TokenId> ids, const text::Tokenizer& tokenizer);

/// Control tokens that the template writes and the tokenizer would cut into pieces, in the order of the text: those that tokenizer_config.json lists,
/// and what looks like `<|name|>`. Empty if the template refuses plain messages.
std::vector<std::string> split_tokens(const std::string& directory, const text::ChatTemplate& chat, const text::Tokenizer& tokenizer);

/// Optional files of the folder that are links to nothing: told, not taken for absent. Error: not_found naming the link.
Result<void> check_links(const std::string& directory);

/// Does the template show what the user says? False only if it renders a short conversation without it.
bool shows_user(const text::ChatTemplate& chat);

/// Pictures are cut as the vision tower of config.json wants them. Error: data_loss naming both files, key and values.
Result<void> check_preprocess(const std::string& directory, const media::PreprocessConfig& preprocess);

/// The ids of config.json that stand for pictures and videos are no words of the tokenizer. Error: data_loss naming file, key and id.
Result<void> check_special_ids(const std::string& directory, const text::Tokenizer& tokenizer);

}  // namespace lathe::apps
