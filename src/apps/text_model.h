#pragma once
// A model with everything around it that makes text: engine, tokenizer, chat template, pictures, defaults.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "engine/engine.h"
#include "engine/image_rows.h"
#include "media/image.h"
#include "models/generation_config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lathe::apps {

/// A prompt ready for the engine.
struct Prompt {
  std::vector<TokenId> ids;
  std::vector<engine::PromptImage> images;
  bool opens_reasoning = false;  ///< the answer begins inside the reasoning span
};

struct TextModel {
  std::string directory;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat;
  media::PreprocessConfig preprocess;
  models::GenerationDefaults defaults;
  std::unique_ptr<engine::Engine> engine;
  std::vector<TokenId> stop_tokens;
  TokenId think_open = -1, think_close = -1;
  int64_t load_ns = 0;

  /// Loads all of it. Errors: those of the parts; invalid_argument if the tokenizer knows more ids than the model has rows.
  static Result<TextModel> load(const engine::EngineOptions& options);

  /// The template over messages, tokenised so that values never become control tokens, pictures in their places.
  Result<Prompt> chat_prompt(const config::Json& messages, const config::Json::Object& variables, const std::vector<std::string>& image_files);
  /// Text as it is; special tokens match.
  Result<Prompt> raw_prompt(const std::string& text);
};

}  // namespace lathe::apps
