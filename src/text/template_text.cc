// Values as text: str, repr and JSON; and JSON data as values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template_strings.h"
#include "text/template_value.h"

namespace lathe::text::jinja {
namespace {

std::string_view bool_text(bool value) { return value ? "True" : "False"; }

/// Python's repr of a string: single quotes unless only they occur, control characters escaped.
void append_quoted(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      static constexpr std::string_view kHex = "0123456789abcdef";
      out += "\\x";
      out += kHex[byte / 16u];
      out += kHex[byte % 16u];
    } else {
      out += c;
    }
  }
  out += quote;
}

bool append_repr_list(std::string& out, const List& list, size_t bytes_max) {
  const bool tuple = list.kind == ListKind::kTuple;
  out += tuple ? '(' : '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    if (!append_repr(out, list.items[i], bytes_max)) return false;
  }
  if (tuple && list.items.size() == 1) out += ',';
  out += tuple ? ')' : ']';
  return true;
}

bool append_repr_dict(std::string& out, const Dict& dict, size_t bytes_max) {
  out += '{';
  bool first = true;
  for (const auto& [key, item] : dict.entries()) {
    if (!std::exchange(first, false)) out += ", ";
    if (!append_repr(out, key, bytes_max)) return false;
    out += ": ";
    if (!append_repr(out, item, bytes_max)) return false;
  }
  out += '}';
  return true;
}

void append_break(std::string& out, const config::JsonStyle& style, int level) {
  if (style.indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(style.indent) * static_cast<size_t>(level), ' ');
}

/// JSON's key of a dict entry, as json.dumps writes it; false if it has none.
bool append_json_key(std::string& out, const Value& key, const JsonOptions& options) {
  if (const MarkedText* text = key.string()) {
    config::append_json_string(out, text->text, options.style);
    return true;
  }
  if (!key.is_number() && !key.is_none()) return false;
  out += '"';
  append_json(out, key, options);
  out += '"';
  return true;
}

bool append_json_level(std::string& out, const Value& value, const JsonOptions& options, int level);

bool append_json_list(std::string& out, const List& list, const JsonOptions& options, int level) {
  out += '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += options.style.item_separator;
    append_break(out, options.style, level + 1);
    if (!append_json_level(out, list.items[i], options, level + 1)) return false;
  }
  if (!list.items.empty()) append_break(out, options.style, level);
  out += ']';
  return true;
}

/// Can the keys be sorted? As in Python, all must be strings or all numbers; equal ones do not occur.
bool have_order(const Dict& dict) {
  return std::all_of(dict.entries().begin(), dict.entries().end(), [&](const auto& entry) {
    const Value& key = entry.first;
    const bool strings = dict.entries()[0].first.is_string();
    return strings ? key.is_string() : key.is_number() && !(key.is_float() && std::isnan(key.as_double()));
  });
}

bool append_json_dict(std::string& out, const Dict& dict, const JsonOptions& options, int level) {
  std::vector<const std::pair<Value, Value>*> entries;
  entries.reserve(dict.size());
  for (const auto& entry : dict.entries()) entries.push_back(&entry);
  if (options.sort_keys) {
    if (!have_order(dict)) return false;
    std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
      bool comparable = true;
      return less(a->first, b->first, comparable);
    });
  }
  out += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += options.style.item_separator;
    append_break(out, options.style, level + 1);
    if (!append_json_key(out, entries[i]->first, options)) return false;
    out += options.style.key_separator;
    if (!append_json_level(out, entries[i]->second, options, level + 1)) return false;
  }
  if (!entries.empty()) append_break(out, options.style, level);
  out += '}';
  return true;
}

bool append_json_level(std::string& out, const Value& value, const JsonOptions& options, int level) {
  if (out.size() > options.bytes_max) return false;
  if (const MarkedText* text = value.string()) {
    config::append_json_string(out, text->text, options.style);
  } else if (const List* list = value.list()) {
    return append_json_list(out, *list, options, level);
  } else if (const Dict* dict = value.dict()) {
    return append_json_dict(out, *dict, options, level);
  } else if (value.is_none()) {
    out += "null";
  } else if (const bool* b = value.get<bool>()) {
    out += *b ? "true" : "false";
  } else if (const int64_t* i = value.get<int64_t>()) {
    out += std::to_string(*i);
  } else if (const double* d = value.get<double>()) {
    out += std::isnan(*d) ? "NaN" : std::isinf(*d) ? (*d > 0 ? "Infinity" : "-Infinity") : float_text(*d);
  } else {
    return false;
  }
  return out.size() <= options.bytes_max;
}

Result<Value> value_from_json_level(const config::Json& json, uint32_t level) {
  if (level > kValueDepthMax) return err(Code::kInvalidArgument, "data for the chat template is nested deeper than {} levels", kValueDepthMax);
  if (json.is_null()) return Value(None{});
  if (json.is_bool()) return Value(json.as_bool());
  if (json.is_int()) return Value(json.as_int());
  if (json.is_double()) return Value(json.as_double());
  if (json.is_string()) return Value::data_string(json.as_string());
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const config::Json& item : json.as_array()) {
      LATHE_TRY(Value value, value_from_json_level(item, level + 1));
      items.push_back(std::move(value));
    }
    return Value::list(std::move(items));
  }
  Dict dict;
  for (const auto& [key, item] : json.as_object()) {
    LATHE_TRY(Value value, value_from_json_level(item, level + 1));
    dict.set(Value::data_string(key), std::move(value));
  }
  return Value::dict(std::move(dict));
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

bool append_repr(std::string& out, const Value& value, size_t bytes_max) {
  if (out.size() > bytes_max) return false;
  if (const MarkedText* text = value.string()) {
    append_quoted(out, text->text);
  } else if (const List* list = value.list()) {
    return append_repr_list(out, *list, bytes_max);
  } else if (const Dict* dict = value.dict()) {
    return append_repr_dict(out, *dict, bytes_max);
  } else if (const bool* b = value.get<bool>()) {
    out += bool_text(*b);
  } else if (const int64_t* i = value.get<int64_t>()) {
    out += std::to_string(*i);
  } else if (const double* d = value.get<double>()) {
    out += float_text(*d);
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (const Callable* callable = value.callable()) {
    out += fmt::format("<function {}>", callable->name);
  } else {
    out += value.names() != nullptr ? "<Namespace>" : "<Loop>";
  }
  return out.size() <= bytes_max;
}

bool append_str(MarkedText& out, const Value& value, size_t bytes_max) {
  if (const MarkedText* text = value.string()) {
    if (text->text.size() > bytes_max || out.text.size() > bytes_max - text->text.size()) return false;
    append(out, *text);
  } else if (!value.is_undefined()) {
    std::string printed;
    if (!append_repr(printed, value, bytes_max)) return false;
    append(out, printed, Mark::kValue);
  }
  return out.text.size() <= bytes_max;
}

bool append_json(std::string& out, const Value& value, const JsonOptions& options) { return append_json_level(out, value, options, 0); }

Result<Value> value_from_json(const config::Json& json) { return value_from_json_level(json, 1); }

}  // namespace lathe::text::jinja
