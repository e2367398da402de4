#include "apps/text_model.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "apps/model_checks.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "evaluate/pictures.h"

namespace lathe::apps {
Result<TextModel> TextModel::load(const engine::EngineOptions& given) {
  const int64_t begin = base::now_ns();
  TextModel model;
  model.directory = given.model;
  LATHE_TRY(model.tokenizer, base::file_content(text::Tokenizer::load(given.model + "/tokenizer.json")));
  LATHE_TRY_VOID(check_links(given.model));
  auto chat = base::file_content(text::ChatTemplate::load(given.model));
  if (chat) {
    model.chat = std::move(*chat);
  } else if (chat.error().code != Code::kNotFound) {
    return base::forward_error(chat);
  }
  LATHE_TRY(model.preprocess, base::file_content(media::read_preprocess_config(given.model)));
  LATHE_TRY_VOID(check_preprocess(given.model, model.preprocess));
  LATHE_TRY(model.defaults, models::read_generation_config(given.model));
  LATHE_TRY_VOID(check_defaults(given.model, model.defaults));
  LATHE_TRY_VOID(check_stop_tokens(given.model + "/generation_config.json", model.defaults.eos, *model.tokenizer));
  if (model.chat) {
    if (!shows_user(*model.chat)) base::log(base::LogLevel::kWarning, "the chat template of {} leaves out what the user says", given.model);
    if (const auto split = split_tokens(given.model, *model.chat, *model.tokenizer); !split.empty()) {
      base::log(base::LogLevel::kWarning, "{}/tokenizer.json lacks control tokens of the chat template, which will be cut into pieces: {}",
                given.model, fmt::join(split, " "));
    }
  }
  engine::EngineOptions options = given;
  options.sampled_vocabulary = model.tokenizer->vocab_size();
  LATHE_TRY(model.engine, engine::Engine::create(options));
  const models::ModelInfo& info = model.engine->info();
  if (model.tokenizer->vocab_size() > info.vocabulary) {
    return err(Code::kDataLoss, "the tokenizer of {} has ids up to {}, the model has only {} rows", given.model, model.tokenizer->vocab_size() - 1,
               info.vocabulary);
  }
  LATHE_TRY_VOID(check_special_ids(given.model, *model.tokenizer));
  model.stop_tokens = info.stop_tokens;
  for (const TokenId id : model.defaults.eos) {
    if (std::find(model.stop_tokens.begin(), model.stop_tokens.end(), id) == model.stop_tokens.end()) model.stop_tokens.push_back(id);
  }
  model.think_open = model.tokenizer->find("<think>").value_or(-1);
  model.think_close = model.tokenizer->find("</think>").value_or(-1);
  model.load_ns = base::now_ns() - begin;
  return model;
}

Result<Prompt> TextModel::chat_prompt(const config::Json& messages, const config::Json::Object& variables,
                                      const std::vector<std::string>& image_files) {
  if (!chat) return err(Code::kFailedPrecondition, "{} has no chat template: use --raw", directory);
  LATHE_TRY(const text::MarkedText rendered, chat->render({.messages = &messages, .variables = variables}));
  LATHE_TRY(const std::vector<TokenId> ids, tokenizer->encode_marked(rendered));
  Prompt prompt;
  prompt.ids = ids;
  if (!image_files.empty()) {
    const TokenId placeholder = engine->info().image_token;
    if (!tokenizer->is_added(placeholder))
      return err(Code::kDataLoss, "{}/config.json: image_token_id is {}, expected an added token of tokenizer.json", directory, placeholder);
    LATHE_TRY(std::vector<models::ImageRows> pictures, base::file_content(evaluate::encode_files(*engine, image_files, preprocess)));
    LATHE_TRY_VOID(evaluate::expand_placeholders(prompt.ids, placeholder, evaluate::row_counts(pictures)));
    LATHE_TRY(prompt.images, evaluate::place_pictures(prompt.ids, placeholder, std::move(pictures)));
  }
  prompt.opens_reasoning = think_open >= 0 && !prompt.ids.empty() && prompt.ids.back() == think_open;
  return prompt;
}

Result<Prompt> TextModel::raw_prompt(const std::string& text) {
  Prompt prompt;
  LATHE_TRY(prompt.ids, tokenizer->encode(text));
  prompt.opens_reasoning = think_open >= 0 && !prompt.ids.empty() && prompt.ids.back() == think_open;
  return prompt;
}

}  // namespace lathe::apps
