#include "config/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/src.hpp>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "base/file.h"

namespace lathe::config {
namespace {

namespace bj = boost::json;

/// Collects parser events into a Json value.
class Builder {
 public:
  // Names and signatures are those that the library's event parser calls.
  // NOLINTBEGIN(readability-identifier-naming)
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  // NOLINTEND(readability-identifier-naming)

  bool on_document_begin(bj::error_code&) { return true; }
  bool on_document_end(bj::error_code&) { return true; }
  bool on_array_begin(bj::error_code&) { return push(Json::Array{}); }
  bool on_array_end(std::size_t, bj::error_code&) { return pop(); }
  bool on_object_begin(bj::error_code&) { return push(Json::Object{}); }
  bool on_object_end(std::size_t, bj::error_code& code) {
    if (!keys_are_unique(stack_.back().as_object())) {
      code = bj::error::syntax;
      return false;
    }
    return pop();
  }
  bool on_string_part(bj::string_view part, std::size_t, bj::error_code&) { return append(part); }
  bool on_string(bj::string_view part, std::size_t, bj::error_code&) {
    append(part);
    return add(Json(std::exchange(text_, {})));
  }
  bool on_key_part(bj::string_view part, std::size_t, bj::error_code&) { return append(part); }
  bool on_key(bj::string_view part, std::size_t, bj::error_code&) {
    append(part);
    stack_.back().as_object().emplace_back(std::exchange(text_, {}), Json());
    return true;
  }
  bool on_number_part(bj::string_view part, bj::error_code&) { return append(part); }
  bool on_int64(int64_t value, bj::string_view, bj::error_code&) {
    text_.clear();
    return add(Json(value));
  }
  bool on_uint64(uint64_t value, bj::string_view, bj::error_code&) {
    text_.clear();
    return add(value <= INT64_MAX ? Json(static_cast<int64_t>(value)) : Json(static_cast<double>(value)));
  }
  // The library's own value may be off in its last bits.
  bool on_double(double value, bj::string_view part, bj::error_code& code) {
    append(part);
    const std::string text = std::exchange(text_, {});
    double exact = value;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exact);
    if (error != std::errc()) exact = std::abs(value) < 1 ? 0.0 : HUGE_VAL;
    if (!std::isfinite(exact)) {  // beyond a double: it could not be written again
      code = bj::error::exponent_overflow;
      return false;
    }
    return add(Json(exact));
  }
  bool on_bool(bool value, bj::error_code&) { return add(Json(value)); }
  bool on_null(bj::error_code&) { return add(Json()); }
  bool on_comment_part(bj::string_view, bj::error_code&) { return true; }
  bool on_comment(bj::string_view, bj::error_code&) { return true; }

  Json take() { return std::move(root_); }
  const std::string& duplicate() const { return duplicate_; }

 private:
  bool append(bj::string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool push(Json container) {
    stack_.push_back(std::move(container));
    return true;
  }
  bool pop() {
    Json done = std::move(stack_.back());
    stack_.pop_back();
    return add(std::move(done));
  }
  bool add(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().as_array().push_back(std::move(value));
    } else {
      stack_.back().as_object().back().second = std::move(value);
    }
    return true;
  }
  bool keys_are_unique(const Json::Object& object) {
    std::unordered_set<std::string_view> keys;
    for (const auto& [key, value] : object) {
      if (!keys.insert(key).second) {
        duplicate_ = key;
        return false;
      }
    }
    return true;
  }

  Json root_;
  std::vector<Json> stack_;
  std::string text_;
  std::string duplicate_;
};

std::pair<size_t, size_t> line_and_column(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view head = text.substr(0, offset);
  const size_t line = static_cast<size_t>(std::count(head.begin(), head.end(), '\n')) + 1;
  const size_t start = head.rfind('\n');
  return {line, start == std::string_view::npos ? offset + 1 : offset - start};
}

void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";  // JSON has no other word for it
    return;
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".eE") == std::string::npos) text += ".0";
  out += text;
}

void append_break(std::string& out, const JsonStyle& style, int level) {
  if (style.indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(style.indent) * static_cast<size_t>(level), ' ');
}

void append_value(std::string& out, const Json& value, const JsonStyle& style, int level) {
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_double()) {
    append_number(out, value.as_double());
  } else if (value.is_string()) {
    append_json_string(out, value.as_string(), style);
  } else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& item : value.as_array()) {
      if (!std::exchange(first, false)) out += style.item_separator;
      append_break(out, style, level + 1);
      append_value(out, item, style, level + 1);
    }
    if (!first) append_break(out, style, level);
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.as_object()) {
      if (!std::exchange(first, false)) out += style.item_separator;
      append_break(out, style, level + 1);
      append_json_string(out, key, style);
      out += style.key_separator;
      append_value(out, item, style, level + 1);
    }
    if (!first) append_break(out, style, level);
    out += '}';
  }
}

/// Decodes one code point of valid UTF-8 at `at`, advancing it.
uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0u; };
  const uint32_t lead = byte(at);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t point = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) point = (point << 6) | (byte(at + i) & 0x3Fu);
  at += length;
  return point;
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : as_object()) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  for (auto& [name, old] : as_object()) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  as_object().emplace_back(std::string(key), std::move(value));
}

std::string_view Json::kind_name() const {
  if (is_null()) return "null";
  if (is_bool()) return "a boolean";
  if (is_int()) return "an integer";
  if (is_double()) return "a number";
  if (is_string()) return "a string";
  return is_array() ? "an array" : "an object";
}

std::string Json::dump(const JsonStyle& style) const {
  std::string out;
  append_value(out, *this, style, 0);
  return out;
}

void append_json_string(std::string& out, std::string_view text, const JsonStyle& style) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
      ++at;
    } else if (c < 0x20) {
      static constexpr std::string_view kShort = "\b\f\n\r\t";
      static constexpr std::string_view kLetter = "bfnrt";
      const size_t which = kShort.find(static_cast<char>(c));
      if (which != std::string_view::npos) {
        out += '\\';
        out += kLetter[which];
      } else {
        out += fmt::format("\\u{:04x}", c);
      }
      ++at;
    } else if (c >= 0x80 && style.ensure_ascii) {
      const uint32_t point = next_code_point(text, at);
      if (point < 0x10000) {
        out += fmt::format("\\u{:04x}", point);
      } else {
        out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((point - 0x10000) >> 10), 0xDC00 + ((point - 0x10000) & 0x3FF));
      }
    } else {
      out += static_cast<char>(c);
      ++at;
    }
  }
  out += '"';
}

Result<Json> parse_json(std::string_view text, size_t depth_max) {
  bj::parse_options options;
  options.max_depth = depth_max;
  bj::basic_parser<Builder> parser(options);
  bj::error_code code;
  const size_t used = parser.write_some(false, text.data(), text.size(), code);
  if (!code && !parser.done()) code = bj::error::incomplete;
  if (!code && used < text.size() && text.find_first_not_of(" \t\r\n", used) != std::string_view::npos) code = bj::error::extra_data;
  if (code) {
    const auto [line, column] = line_and_column(text, used);
    if (!parser.handler().duplicate().empty()) {
      return err(Code::kInvalidArgument, "JSON line {} column {}: duplicate key '{}'", line, column, parser.handler().duplicate());
    }
    return err(Code::kInvalidArgument, "JSON line {} column {}: {}", line, column, code.message());
  }
  return parser.handler().take();
}

Result<Json> read_json_file(const std::string& path, size_t bytes_max) {
  LATHE_TRY(const std::string text, base::read_file(path, bytes_max));
  auto parsed = parse_json(text);
  if (!parsed) return base::file_content<Json>(base::forward_error(parsed, path));
  return parsed;
}

}  // namespace lathe::config
