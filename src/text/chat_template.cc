#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "text/chat_messages.h"
#include "text/template_interpreter.h"
#include "text/template_parser.h"
#include "text/utf8.h"

namespace lathe::text {
namespace {

using config::Json;
using jinja::Interpreter;
using jinja::Value;

constexpr std::string_view kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/// The special tokens of a tokenizer_config.json as an object of strings; they stand there as strings or as objects with "content".
Json special_tokens_of(const Json& tokenizer_config) {
  Json tokens(Json::Object{});
  for (const std::string_view name : kSpecialTokens) {
    const Json* token = tokenizer_config.find(name);
    if (token != nullptr && token->is_object()) token = token->find("content");
    if (token != nullptr && token->is_string()) tokens.set(name, *token);
  }
  return tokens;
}

/// A template is text: a damaged one would make damaged prompts.
Result<void> check_text(const std::string& file, std::string_view source) {
  if (source.empty()) return err(Code::kDataLoss, "{} is empty, expected a chat template", file);
  for (size_t at = 0; at < source.size();) {
    const Utf8Step step = utf8_step(source, at);
    if (step.kind != Utf8::kValid || source[at] == '\0')
      return err(Code::kDataLoss, "{} has a byte at {} that is no text, expected UTF-8 without zero bytes", file, at);
    at += step.length;
  }
  return {};
}

Result<std::shared_ptr<const jinja::Program>> parse_program(std::string_view source, const base::Limits& limits) {
  LATHE_TRY(jinja::Program program, jinja::parse_template(source, limits));
  return std::make_shared<const jinja::Program>(std::move(program));
}

Json message(std::string_view role, Json content) {
  Json out(Json::Object{});
  out.set("role", Json(role));
  out.set("content", std::move(content));
  return out;
}

size_t count_ignoring_case(std::string text, std::string word) {
  const auto fold = [](std::string& s) {
    std::transform(s.begin(), s.end(), s.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  };
  fold(text);
  fold(word);
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

}  // namespace

bool ReasoningEfforts::supports(std::string_view effort) const {
  return echoes || effort == fallback || std::find(distinct.begin(), distinct.end(), effort) != distinct.end();
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const Json& special_tokens, const base::Limits& limits) {
  ChatTemplate out;
  out.limits_ = limits;
  LATHE_TRY(out.program_, parse_program(source, limits));
  out.source_ = source;
  out.special_tokens_ = special_tokens_of(special_tokens);
  out.probe();
  return out;
}

Result<ChatTemplate> ChatTemplate::load(const std::string& folder, const base::Limits& limits) {
  const std::string template_file = folder + "/chat_template.jinja";
  const std::string config_file = folder + "/tokenizer_config.json";
  Json config(Json::Object{});
  if (base::file_exists(config_file)) {
    LATHE_TRY(config, config::read_json_file(config_file, limits.config_bytes));
    if (!config.is_object()) return err(Code::kDataLoss, "{} holds {}, expected an object", config_file, config.kind_name());
  }
  ChatTemplate out;
  out.limits_ = limits;
  out.special_tokens_ = special_tokens_of(config);
  const auto add = [&](std::shared_ptr<const jinja::Program>& into, std::string_view source, const std::string& file) -> Result<void> {
    Result<std::shared_ptr<const jinja::Program>> program = parse_program(source, limits);
    if (!program) return base::forward_error(program, file);
    into = std::move(*program);
    if (&into == &out.program_) out.source_ = source;
    out.file_ = file;
    return {};
  };
  if (base::file_exists(template_file)) {
    LATHE_TRY(const std::string source, base::read_file(template_file, limits.template_bytes));
    LATHE_TRY_VOID(check_text(template_file, source));
    LATHE_TRY_VOID(add(out.program_, source, template_file));
  } else if (const Json* inside = config.find("chat_template"); inside != nullptr && inside->is_string()) {
    LATHE_TRY_VOID(add(out.program_, inside->as_string(), config_file));
  } else if (inside != nullptr && inside->is_array()) {
    for (const Json& entry : inside->as_array()) {
      const Json* name = entry.find("name");
      const Json* source = entry.find("template");
      if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) continue;
      if (name->as_string() == "default") LATHE_TRY_VOID(add(out.program_, source->as_string(), config_file));
      if (name->as_string() == "tool_use") LATHE_TRY_VOID(add(out.tool_program_, source->as_string(), config_file));
    }
  }
  if (out.program_ == nullptr)
    return err(Code::kNotFound, "there is no chat template: neither {} nor chat_template in {}", template_file, config_file);
  out.probe();
  return out;
}

Result<MarkedText> ChatTemplate::run(const jinja::Program& program, const RenderInput& input, const base::Limits& limits) const {
  Interpreter interpreter(program, limits, input.now_unix_s);
  if (special_tokens_.is_object()) {
    for (const auto& [name, token] : special_tokens_.as_object()) interpreter.set_variable(name, Value::literal_string(token.as_string()));
  }
  interpreter.set_variable("documents", Value(jinja::None{}));
  for (const auto& [name, value] : input.variables) {
    LATHE_TRY(Value converted, jinja::value_from_json(value));
    interpreter.set_variable(name, std::move(converted));
  }
  std::vector<Value> messages;
  if (input.messages != nullptr) {
    LATHE_TRY_VOID(check_messages(*input.messages));
    for (const Json& entry : input.messages->as_array()) {
      const auto changed = adapt_message(entry, form_);
      if (!changed) return base::forward_error(changed, fmt::format("message {}", messages.size()));
      LATHE_TRY(Value converted, jinja::value_from_json(*changed ? **changed : entry));
      messages.push_back(std::move(converted));
    }
  }
  interpreter.set_variable("messages", Value::list(std::move(messages)));
  Value tools(jinja::None{});
  if (input.tools != nullptr && !input.tools->is_null()) {
    LATHE_TRY_VOID(check_tools(*input.tools));
    LATHE_TRY(tools, jinja::value_from_json(*input.tools));
  }
  interpreter.set_variable("tools", std::move(tools));
  interpreter.set_variable("add_generation_prompt", Value(input.add_generation_prompt));
  auto text = interpreter.run();
  if (text || interpreter.refused) return text;
  if (input.messages != nullptr && form_.arguments == MessageForm::Arguments::kObject && text.error().code == Code::kInvalidArgument) {
    const std::string place = unreadable_arguments(*input.messages);
    if (!place.empty()) return err(Code::kInvalidArgument, "{} is no JSON object, which the chat template needs", place);
  }
  text = base::file_content(std::move(text));  // the file is at fault, unless it says itself that the input is
  if (file_.empty()) return text;
  return base::forward_error(text, file_);
}

Result<MarkedText> ChatTemplate::render(const RenderInput& input) const {
  const bool with_tools = tool_program_ != nullptr && input.tools != nullptr && input.tools->is_array() && !input.tools->as_array().empty();
  return run(with_tools ? *tool_program_ : *program_, input, limits_);
}

Result<MarkedText> ChatTemplate::render_probe(const RenderInput& input) const {
  base::Limits limits = limits_;
  limits.template_steps = std::min(limits.template_steps, limits.template_probe_steps);
  return run(*program_, input, limits);
}

void ChatTemplate::probe() {
  const auto rendered = [&](Json::Array messages) {
    const Json list(std::move(messages));
    const Result<MarkedText> text = render_probe({.messages = &list, .add_generation_prompt = false});
    return text ? text->text : std::string();
  };
  const auto has = [](const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; };
  constexpr std::string_view kWord = "qxprobe";

  Json part(Json::Object{});
  part.set("type", "text");
  part.set("text", Json(kWord));
  const std::string parts = rendered({message("user", Json(Json::Array{part}))});
  const bool printed_as_data = has(parts, "'type'") || has(parts, "\"type\"");
  // A template that refuses even plain text says nothing about parts.
  const bool takes_parts = (has(parts, kWord) && !printed_as_data) || !has(rendered({message("user", Json(kWord))}), kWord);
  form_.content = takes_parts ? MessageForm::Content::kParts : MessageForm::Content::kText;

  const auto with_call = [&](Json arguments) {
    Json function(Json::Object{});
    function.set("name", "qxfunction");
    function.set("arguments", std::move(arguments));
    Json call(Json::Object{});
    call.set("id", "call00001");
    call.set("type", "function");
    call.set("function", std::move(function));
    Json assistant = message("assistant", Json(""));
    assistant.set("tool_calls", Json(Json::Array{call}));
    return rendered({message("user", Json(kWord)), std::move(assistant)});
  };
  Json arguments(Json::Object{});
  arguments.set("qxkey", "qxvalue");
  const std::string from_object = with_call(arguments);
  if (has(from_object, "qxvalue") && !has(from_object, "{'qxkey'")) return;
  form_.arguments = MessageForm::Arguments::kText;  // so that text is handed over as text
  if (!has(with_call(Json(arguments.dump())), "qxvalue")) form_.arguments = MessageForm::Arguments::kObject;
}

Result<MarkedText> ChatTemplate::render_effort(const std::string* effort) const {
  const Json messages(Json::Array{message("user", Json("qxprobe"))});
  RenderInput input{.messages = &messages};
  if (effort != nullptr) input.variables.emplace_back("reasoning_effort", Json(*effort));
  return render_probe(input);
}

ReasoningEfforts ChatTemplate::reasoning_efforts(const std::vector<std::string>& candidates) const {
  ReasoningEfforts out;
  const std::string nonsense_value = "qzxvalue";
  const Result<MarkedText> nonsense = render_effort(&nonsense_value);
  const Result<MarkedText> unset = render_effort(nullptr);
  if (nonsense && nonsense->text.find(nonsense_value) != std::string::npos) {
    out.echoes = true;
    return out;
  }
  std::vector<std::string> distinct_texts;
  for (const std::string& candidate : candidates) {
    const Result<MarkedText> text = render_effort(&candidate);
    if (!text) continue;
    if (unset && text->text == unset->text && out.unset.empty()) out.unset = candidate;
    if (nonsense && text->text == nonsense->text) continue;
    out.distinct.push_back(candidate);
    distinct_texts.push_back(text->text);
  }
  // A template that falls back to one of its levels shows that level's name where the other levels show theirs.
  for (const std::string& candidate : candidates) {
    const Result<MarkedText> text = render_effort(&candidate);
    if (!text || !nonsense || text->text != nonsense->text || distinct_texts.empty()) continue;
    const size_t here = count_ignoring_case(nonsense->text, candidate);
    if (std::all_of(distinct_texts.begin(), distinct_texts.end(),
                    [&](const std::string& other) { return here > count_ignoring_case(other, candidate); })) {
      out.fallback = candidate;
      break;
    }
  }
  if (unset && nonsense && unset->text == nonsense->text) out.unset = out.fallback;
  return out;
}

bool ChatTemplate::depends_on(const std::string& variable, const Json& a, const Json& b) const {
  Json assistant = message("assistant", Json("qxanswer"));
  assistant.set("reasoning_content", "qxreason");
  const Json messages(Json::Array{message("user", Json("qxprobe")), std::move(assistant), message("user", Json("qxagain"))});
  const auto text = [&](const Json& value) {
    RenderInput input{.messages = &messages};
    input.variables.emplace_back(variable, value);
    const Result<MarkedText> result = render_probe(input);
    return result ? result->text : result.error().message;
  };
  return text(a) != text(b);
}

Result<MarkedText> render_template(std::string_view source, const Json& context, std::optional<int64_t> now_unix_s, const base::Limits& limits) {
  LATHE_TRY(const jinja::Program program, jinja::parse_template(source, limits));
  Interpreter interpreter(program, limits, now_unix_s);
  if (context.is_object()) {
    for (const auto& [name, json] : context.as_object()) {
      LATHE_TRY(Value value, jinja::value_from_json(json));
      interpreter.set_variable(name, std::move(value));
    }
  }
  return interpreter.run();
}

}  // namespace lathe::text
