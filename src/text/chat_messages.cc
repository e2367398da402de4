#include "text/chat_messages.h"

#include <fmt/format.h>

#include <utility>

namespace lathe::text {
namespace {

using config::Json;

const config::JsonStyle kPythonStyle{.item_separator = ", ", .key_separator = ": ", .indent = -1, .ensure_ascii = false};

/// A function of a tool or tool call, which may be wrapped as {"type": "function", "function": …}.
template <class J>
J* function_in(J* wrapped) {
  for (auto& [key, value] : wrapped->as_object()) {
    if (key == "function") return &value;
  }
  return wrapped;
}

Result<void> check_object(const Json& json, std::string_view what, size_t index) {
  if (json.is_object()) return {};
  return err(Code::kInvalidArgument, "{} {} must be an object, not {}", what, index, json.kind_name());
}

Result<void> check_string(const Json& object, const char* key) {
  const Json* const value = object.find(key);
  if (value != nullptr && value->is_string()) return {};
  return err(Code::kInvalidArgument, "'{}' is {}, expected a string", key, value == nullptr ? "missing" : value->kind_name());
}

Result<void> check_string_if_given(const Json& object, const char* key) {
  const Json* const value = object.find(key);
  if (value == nullptr || value->is_null()) return {};
  return check_string(object, key);
}

bool is_none(const Json* value) { return value == nullptr || value->is_null(); }

Result<void> check_call(const Json& call) {
  LATHE_TRY_VOID(check_string_if_given(call, "id"));
  const Json& function = *function_in(&call);
  if (!function.is_object()) return err(Code::kInvalidArgument, "'function' is {}, expected an object", function.kind_name());
  LATHE_TRY_VOID(check_string(function, "name"));
  const Json* const arguments = function.find("arguments");
  if (is_none(arguments) || arguments->is_string() || arguments->is_object()) return {};
  return err(Code::kInvalidArgument, "'arguments' is {}, expected an object or JSON text of one", arguments->kind_name());
}

Result<void> check_calls(const Json* calls) {
  if (is_none(calls)) return {};
  if (!calls->is_array()) return err(Code::kInvalidArgument, "'tool_calls' is {}, expected an array", calls->kind_name());
  for (size_t i = 0; i < calls->as_array().size(); ++i) {
    LATHE_TRY_VOID(check_object(calls->as_array()[i], "tool call", i));
    if (const auto checked = check_call(calls->as_array()[i]); !checked) return base::forward_error(checked, fmt::format("tool call {}", i));
  }
  return {};
}

Result<void> check_part(const Json& part, size_t index) {
  if (part.is_string()) return {};
  LATHE_TRY_VOID(check_object(part, "part", index));
  const Json* const type = part.find("type");
  auto checked = check_string_if_given(part, "type");
  if (checked && type != nullptr && *type == Json("text")) checked = check_string(part, "text");
  if (!checked) return base::forward_error(checked, fmt::format("part {}", index));
  return {};
}

Result<void> check_content(const Json* content) {
  if (is_none(content) || content->is_string()) return {};
  if (!content->is_array()) return err(Code::kInvalidArgument, "'content' is {}, expected a string or an array of parts", content->kind_name());
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    if (const auto checked = check_part(content->as_array()[i], i); !checked) return base::forward_error(checked, "'content'");
  }
  return {};
}

Result<void> check_message(const Json& message) {
  LATHE_TRY_VOID(check_string(message, "role"));
  for (const char* const key : {"name", "reasoning_content", "tool_call_id"}) LATHE_TRY_VOID(check_string_if_given(message, key));
  LATHE_TRY_VOID(check_content(message.find("content")));
  return check_calls(message.find("tool_calls"));
}

/// A list of text parts as one text, a newline between parts.
Result<std::string> joined_text(const Json& parts) {
  std::string text;
  bool first = true;
  for (const Json& part : parts.as_array()) {
    const Json* const piece = part.is_string() ? &part : part.find("text");
    if (piece == nullptr || !piece->is_string()) {
      const Json* const type = part.find("type");
      return err(Code::kInvalidArgument, "the chat template takes text only, not a part of type '{}'",
                 is_none(type) ? std::string(part.kind_name()) : type->as_string());
    }
    if (!std::exchange(first, false)) text += '\n';
    text += piece->as_string();
  }
  return text;
}

/// The arguments of a call in another form than they have; nothing if they are to stay.
std::optional<Json> converted_arguments(const Json* arguments, MessageForm::Arguments form) {
  if (is_none(arguments)) return form == MessageForm::Arguments::kObject ? Json(Json::Object{}) : Json("{}");
  if (form == MessageForm::Arguments::kText) return arguments->is_object() ? std::optional(Json(arguments->dump(kPythonStyle))) : std::nullopt;
  if (!arguments->is_string()) return std::nullopt;
  if (arguments->as_string().empty()) return Json(Json::Object{});
  Result<Json> parsed = config::parse_json(arguments->as_string());
  if (!parsed || !parsed->is_object()) return std::nullopt;
  return std::move(*parsed);
}

}  // namespace

Result<void> check_messages(const Json& messages) {
  if (!messages.is_array()) return err(Code::kInvalidArgument, "messages must be an array, not {}", messages.kind_name());
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    LATHE_TRY_VOID(check_object(messages.as_array()[i], "message", i));
    if (const auto checked = check_message(messages.as_array()[i]); !checked) return base::forward_error(checked, fmt::format("message {}", i));
  }
  return {};
}

Result<void> check_tools(const Json& tools) {
  if (tools.is_null()) return {};
  if (!tools.is_array()) return err(Code::kInvalidArgument, "tools must be an array, not {}", tools.kind_name());
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const Json& tool = tools.as_array()[i];
    LATHE_TRY_VOID(check_object(tool, "tool", i));
    const Json& function = *function_in(&tool);
    if (!function.is_object()) return err(Code::kInvalidArgument, "tool {}: 'function' is {}, expected an object", i, function.kind_name());
  }
  return {};
}

Result<std::optional<Json>> adapt_message(const Json& message, const MessageForm& form) {
  std::optional<Json> changed;
  const Json* const content = message.find("content");
  if (form.content == MessageForm::Content::kText && content != nullptr && content->is_array()) {
    LATHE_TRY(std::string text, joined_text(*content));
    changed = message;
    changed->set("content", Json(std::move(text)));
  }
  const Json* const calls = message.find("tool_calls");
  if (is_none(calls)) return changed;
  for (size_t i = 0; i < calls->as_array().size(); ++i) {
    std::optional<Json> arguments = converted_arguments(function_in(&calls->as_array()[i])->find("arguments"), form.arguments);
    if (!arguments) continue;
    if (!changed) changed = message;
    for (auto& [key, value] : changed->as_object()) {
      if (key == "tool_calls") function_in(&value.as_array()[i])->set("arguments", std::move(*arguments));
    }
  }
  return changed;
}

std::string unreadable_arguments(const Json& messages) {
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const Json* const calls = messages.as_array()[i].find("tool_calls");
    for (size_t j = 0; !is_none(calls) && j < calls->as_array().size(); ++j) {
      const Json* const arguments = function_in(&calls->as_array()[j])->find("arguments");
      if (is_none(arguments) || !arguments->is_string() || converted_arguments(arguments, MessageForm::Arguments::kObject)) continue;
      return fmt::format("message {}: tool call {}: 'arguments'", i, j);
    }
  }
  return "";
}

}  // namespace lathe::text
