#pragma once
// What makes a model folder inconsistent, told at load: defaults that no sampler takes, tokens that cannot be drawn, control tokens that would be split.

#include <span>

#include "base/result.h"
#include "config/settings.h"
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

}  // namespace lathe::apps
