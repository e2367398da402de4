#pragma once
// What the two halves of the parser share: the token stream, names, depth.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/template_ast.h"
#include "text/template_lexer.h"

namespace lathe::text::jinja {

class ParserState {
 public:
  ParserState(std::vector<Token> tokens, size_t depth_max) : tokens_(std::move(tokens)), depth_max_(depth_max) {
    for (const char* name : {"loop", "varargs", "kwargs", "caller"}) variable(name);  // in the order of their ids
    used = {};
  }

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  uint32_t line() const { return peek().line; }

  bool is_operator(std::string_view op, size_t ahead = 0) const { return peek(ahead).kind == TokenKind::kOperator && peek(ahead).text == op; }
  bool is_name(std::string_view name, size_t ahead = 0) const { return peek(ahead).kind == TokenKind::kName && peek(ahead).text == name; }
  bool skip_operator(std::string_view op) { return is_operator(op) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }

  Result<void> expect_operator(std::string_view op) {
    if (skip_operator(op)) return {};
    return fail("expected '{}', found {}", op, describe(peek()));
  }
  Result<void> expect_name(std::string_view name) {
    if (skip_name(name)) return {};
    return fail("expected '{}', found {}", name, describe(peek()));
  }
  Result<std::string> any_name(std::string_view what) {
    if (peek().kind == TokenKind::kName) return std::string(next().text);
    return fail("expected {}, found {}", what, describe(peek()));
  }

  NameNode variable(std::string name) {
    const auto [it, fresh] = program.ids.emplace(name, static_cast<NameId>(program.names.size()));
    if (fresh) program.names.push_back(name);
    if (it->second < used.size()) used[it->second] = true;
    return {.name = std::move(name), .id = it->second};
  }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kText: return "text";
      case TokenKind::kOutputBegin: return "'{{'";
      case TokenKind::kOutputEnd: return "'}}'";
      case TokenKind::kBlockBegin: return "'{%'";
      case TokenKind::kBlockEnd: return "'%}'";
      case TokenKind::kEnd: return "the end of the template";
      default: return fmt::format("'{}'", token.text.substr(0, 40));
    }
  }

  template <class... Args>
  tl::unexpected<Error> fail(fmt::format_string<Args...> format, Args&&... args) const {
    return template_error(Code::kInvalidArgument, line(), fmt::format(format, std::forward<Args>(args)...));
  }

  /// Counts nesting while it lives.
  class Nest {
   public:
    explicit Nest(ParserState& state) : state_(state) { ++state_.depth_; }
    ~Nest() { --state_.depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    Result<void> check() const {
      if (state_.depth_ <= state_.depth_max_) return {};
      return template_error(Code::kResourceExhausted, state_.line(), fmt::format("nested deeper than {} levels", state_.depth_max_));
    }

   private:
    ParserState& state_;
  };

  Program program;
  std::array<bool, 4> used{};  ///< were the names of these ids seen in the body being parsed?
  int loops = 0;               ///< open loops in the macro being parsed

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  size_t depth_ = 0;
  size_t depth_max_;
};

/// One expression; with `tuples`, `a, b` without brackets is a tuple.
Result<ExprPtr> parse_expression(ParserState& state);
Result<ExprPtr> parse_expression_or_tuple(ParserState& state);
/// An expression without a ternary at its end: `for x in items if condition` needs the `if` for itself.
Result<ExprPtr> parse_without_ternary(ParserState& state);
/// `name(arguments)|name…` behind `filter` or `|`: a PostfixNode without base.
Result<ExprPtr> parse_filter_chain(ParserState& state);

}  // namespace lathe::text::jinja
