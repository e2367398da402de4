// Expressions, by descent through Jinja2's levels of precedence: ternary, or, and, not, comparison, + -, ~, * / // %, **,
// filters and tests, sign, suffixes.
#include <charconv>

#include "text/template_operations.h"
#include "text/template_parser_state.h"

namespace lathe::text::jinja {
namespace {

using State = ParserState;
using Nest = ParserState::Nest;

template <class Node>
ExprPtr make(Node node) {
  return std::make_unique<Expr>(Expr{std::move(node)});
}

Result<ExprPtr> parse_or(State& s);

Result<ExprPtr> parse_number(State& s) {
  const Token& token = s.peek();
  std::string digits(token.text);
  std::erase(digits, '_');
  Value value;
  if (token.kind == TokenKind::kInteger) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc()) return s.fail("the integer {} is too large", token.text.substr(0, 40));
    value = Value(number);
  } else {
    double number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc()) return s.fail("the number {} is out of range", token.text.substr(0, 40));
    value = Value(number);
  }
  s.next();
  return make(ConstantNode{std::move(value)});
}

/// Adjacent strings are one.
Result<ExprPtr> parse_string(State& s) {
  std::string text;
  while (s.peek().kind == TokenKind::kString) {
    LATHE_TRY(const std::string part, string_token_text(s.next()));
    text += part;
  }
  return make(ConstantNode{Value::literal_string(std::move(text))});
}

/// Items up to `close`; a trailing comma is allowed.
Result<std::vector<ExprPtr>> parse_items(State& s, std::string_view close, bool* trailing_comma = nullptr) {
  std::vector<ExprPtr> items;
  bool comma = false;
  while (!s.is_operator(close)) {
    if (!items.empty() && !comma) return s.fail("expected ',' or '{}', found {}", close, State::describe(s.peek()));
    LATHE_TRY(ExprPtr item, parse_expression(s));
    items.push_back(std::move(item));
    comma = s.skip_operator(",");
  }
  s.next();
  if (trailing_comma != nullptr) *trailing_comma = comma;
  return items;
}

Result<ExprPtr> parse_dict(State& s) {
  DictNode node;
  bool comma = true;
  while (!s.is_operator("}")) {
    if (!comma) return s.fail("expected ',' or '}}', found {}", State::describe(s.peek()));
    LATHE_TRY(ExprPtr key, parse_expression(s));
    LATHE_TRY_VOID(s.expect_operator(":"));
    LATHE_TRY(ExprPtr value, parse_expression(s));
    node.entries.emplace_back(std::move(key), std::move(value));
    comma = s.skip_operator(",");
  }
  s.next();
  return make(std::move(node));
}

/// ( … ): a group or a tuple.
Result<ExprPtr> parse_group(State& s) {
  bool comma = false;
  LATHE_TRY(std::vector<ExprPtr> items, parse_items(s, ")", &comma));
  if (items.size() == 1 && !comma) return std::move(items[0]);
  return make(ListNode{.items = std::move(items), .kind = ListKind::kTuple});
}

Result<ExprPtr> parse_primary(State& s) {
  const Token& token = s.peek();
  switch (token.kind) {
    case TokenKind::kInteger:
    case TokenKind::kFloat: return parse_number(s);
    case TokenKind::kString: return parse_string(s);
    case TokenKind::kName: {
      s.next();
      if (token.text == "true" || token.text == "True") return make(ConstantNode{Value(true)});
      if (token.text == "false" || token.text == "False") return make(ConstantNode{Value(false)});
      if (token.text == "none" || token.text == "None") return make(ConstantNode{Value(None{})});
      return make(s.variable(std::string(token.text)));
    }
    case TokenKind::kOperator:
      if (s.skip_operator("(")) return parse_group(s);
      if (s.skip_operator("[")) {
        LATHE_TRY(std::vector<ExprPtr> items, parse_items(s, "]"));
        return make(ListNode{.items = std::move(items)});
      }
      if (s.skip_operator("{")) return parse_dict(s);
      break;
    default: break;
  }
  return s.fail("expected an expression, found {}", State::describe(token));
}

Result<ArgumentNodes> parse_arguments(State& s) {
  ArgumentNodes arguments;
  bool comma = true;
  while (!s.is_operator(")")) {
    if (!comma) return s.fail("expected ',' or ')', found {}", State::describe(s.peek()));
    if (s.peek().kind == TokenKind::kName && s.is_operator("=", 1)) {
      std::string name(s.next().text);
      s.next();
      LATHE_TRY(ExprPtr value, parse_expression(s));
      arguments.keyword.emplace_back(std::move(name), std::move(value));
    } else {
      if (!arguments.keyword.empty()) return s.fail("a positional argument stands behind a named one");
      LATHE_TRY(ExprPtr value, parse_expression(s));
      arguments.positional.push_back(std::move(value));
    }
    comma = s.skip_operator(",");
  }
  s.next();
  return arguments;
}

/// […] behind a value: an index or a slice.
Result<Suffix> parse_subscript(State& s, uint32_t line) {
  Suffix suffix;
  suffix.kind = Suffix::Kind::kIndex;
  suffix.line = line;
  size_t part = 0;
  for (;;) {
    if (s.skip_operator(":")) {
      suffix.kind = Suffix::Kind::kSlice;
      if (++part > 2) return s.fail("a slice has at most three parts");
    } else if (s.skip_operator("]")) {
      break;
    } else {
      if (suffix.index[part] != nullptr) return s.fail("expected ']', found {}", State::describe(s.peek()));
      LATHE_TRY(suffix.index[part], parse_expression_or_tuple(s));
    }
  }
  if (suffix.kind == Suffix::Kind::kIndex && suffix.index[0] == nullptr) return s.fail("an index is missing between '[' and ']'");
  return suffix;
}

Result<Suffix> parse_attribute(State& s, uint32_t line) {
  Suffix suffix;
  suffix.line = line;
  if (s.peek().kind == TokenKind::kInteger) {
    suffix.kind = Suffix::Kind::kIndex;
    LATHE_TRY(suffix.index[0], parse_number(s));
    return suffix;
  }
  suffix.kind = Suffix::Kind::kAttribute;
  LATHE_TRY(suffix.name, s.any_name("a name behind '.'"));
  return suffix;
}

/// Wraps `base` unless it already is a chain of suffixes.
PostfixNode& postfix(ExprPtr& base) {
  if (!std::holds_alternative<PostfixNode>(base->node)) {
    PostfixNode node;
    node.base = std::move(base);
    base = make(std::move(node));
  }
  return std::get<PostfixNode>(base->node);
}

/// .name, [index] and (arguments).
Result<void> parse_postfix(State& s, ExprPtr& base) {
  for (;;) {
    const uint32_t line = s.line();
    if (s.skip_operator(".")) {
      LATHE_TRY(Suffix suffix, parse_attribute(s, line));
      postfix(base).suffixes.push_back(std::move(suffix));
    } else if (s.skip_operator("[")) {
      LATHE_TRY(Suffix suffix, parse_subscript(s, line));
      postfix(base).suffixes.push_back(std::move(suffix));
    } else if (s.skip_operator("(")) {
      Suffix suffix;
      suffix.kind = Suffix::Kind::kCall;
      suffix.line = line;
      LATHE_TRY(suffix.arguments, parse_arguments(s));
      postfix(base).suffixes.push_back(std::move(suffix));
    } else {
      return {};
    }
  }
}

Result<Suffix> parse_filter(State& s) {
  Suffix suffix;
  suffix.kind = Suffix::Kind::kFilter;
  suffix.line = s.line();
  LATHE_TRY(suffix.name, s.any_name("the name of a filter"));
  suffix.operation = find_filter(suffix.name);
  if (suffix.operation == nullptr) return template_error(Code::kInvalidArgument, suffix.line, fmt::format("there is no filter '{}'", suffix.name));
  if (s.skip_operator("(")) {
    LATHE_TRY(suffix.arguments, parse_arguments(s));
  }
  return suffix;
}

/// May a test's argument without brackets begin here? (`x is divisibleby 3`)
bool starts_argument(const State& s) {
  switch (s.peek().kind) {
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kString: return true;
    case TokenKind::kName:
      for (const std::string_view word : {"else", "or", "and", "is", "if", "not", "in"}) {
        if (s.is_name(word)) return false;
      }
      return true;
    default: return s.is_operator("[") || s.is_operator("{");
  }
}

/// Behind `is`.
Result<Suffix> parse_test(State& s) {
  Suffix suffix;
  suffix.kind = Suffix::Kind::kTest;
  suffix.line = s.line();
  suffix.negated = s.skip_name("not");
  LATHE_TRY(suffix.name, s.any_name("the name of a test"));
  suffix.operation = find_test(suffix.name);
  if (suffix.operation == nullptr) return template_error(Code::kInvalidArgument, suffix.line, fmt::format("there is no test '{}'", suffix.name));
  if (s.skip_operator("(")) {
    LATHE_TRY(suffix.arguments, parse_arguments(s));
  } else if (starts_argument(s)) {
    LATHE_TRY(ExprPtr argument, parse_primary(s));
    LATHE_TRY_VOID(parse_postfix(s, argument));
    suffix.arguments.positional.push_back(std::move(argument));
  }
  return suffix;
}

Result<void> parse_filters_and_tests(State& s, ExprPtr& base) {
  for (;;) {
    Suffix suffix;
    if (s.skip_operator("|")) {
      LATHE_TRY(suffix, parse_filter(s));
    } else if (s.skip_name("is")) {
      LATHE_TRY(suffix, parse_test(s));
    } else {
      return {};
    }
    postfix(base).suffixes.push_back(std::move(suffix));
  }
}

enum class Behind : uint8_t { kAll, kNoFilters };
Result<ExprPtr> parse_unary(State& s, Behind behind) {
  ExprPtr expr;
  if (s.is_operator("-") || s.is_operator("+")) {
    const Nest nest(s);
    LATHE_TRY_VOID(nest.check());
    UnaryNode node;
    node.op = s.next().text == "-" ? UnaryOp::kMinus : UnaryOp::kPlus;
    LATHE_TRY(node.operand, parse_unary(s, Behind::kNoFilters));
    expr = make(std::move(node));
  } else {
    LATHE_TRY(expr, parse_primary(s));
    LATHE_TRY_VOID(parse_postfix(s, expr));
  }
  if (behind == Behind::kAll) LATHE_TRY_VOID(parse_filters_and_tests(s, expr));
  return expr;
}

/// first (op operand)*, all operators of one precedence.
template <class Node, class Operand, class NextOp>
Result<ExprPtr> parse_chain(State& s, Operand operand, NextOp next_op) {
  LATHE_TRY(ExprPtr first, operand(s));
  Op op = Op::kAdd;
  if (!next_op(s, op)) return first;
  Node node;
  node.first = std::move(first);
  do {
    LATHE_TRY(ExprPtr right, operand(s));
    node.rest.emplace_back(op, std::move(right));
  } while (next_op(s, op));
  return make(std::move(node));
}

bool take_operator(State& s, Op& op, std::initializer_list<std::pair<std::string_view, Op>> table) {
  for (const auto& [text, value] : table) {
    if (s.skip_operator(text)) {
      op = value;
      return true;
    }
  }
  return false;
}

/// Unlike Python, Jinja2 takes powers from left to right and signs first.
Result<ExprPtr> parse_power(State& s) {
  return parse_chain<ArithmeticNode>(
      s, [](State& t) { return parse_unary(t, Behind::kAll); }, [](State& t, Op& op) { return take_operator(t, op, {{"**", Op::kPower}}); });
}

Result<ExprPtr> parse_product(State& s) {
  return parse_chain<ArithmeticNode>(s, parse_power, [](State& t, Op& op) {
    return take_operator(t, op, {{"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}});
  });
}

Result<ExprPtr> parse_concat(State& s) {
  LATHE_TRY(ExprPtr first, parse_product(s));
  if (!s.is_operator("~")) return first;
  ConcatNode node;
  node.operands.push_back(std::move(first));
  while (s.skip_operator("~")) {
    LATHE_TRY(ExprPtr right, parse_product(s));
    node.operands.push_back(std::move(right));
  }
  return make(std::move(node));
}

Result<ExprPtr> parse_sum(State& s) {
  return parse_chain<ArithmeticNode>(s, parse_concat, [](State& t, Op& op) { return take_operator(t, op, {{"+", Op::kAdd}, {"-", Op::kSubtract}}); });
}

Result<ExprPtr> parse_compare(State& s) {
  return parse_chain<CompareNode>(s, parse_sum, [](State& t, Op& op) {
    if (t.is_name("not") && t.is_name("in", 1)) {
      t.next();
      t.next();
      op = Op::kNotIn;
      return true;
    }
    if (t.skip_name("in")) {
      op = Op::kIn;
      return true;
    }
    return take_operator(
        t, op, {{"==", Op::kEqual}, {"!=", Op::kNotEqual}, {"<=", Op::kLessEqual}, {">=", Op::kGreaterEqual}, {"<", Op::kLess}, {">", Op::kGreater}});
  });
}

Result<ExprPtr> parse_not(State& s) {
  if (!s.is_name("not")) return parse_compare(s);
  const Nest nest(s);
  LATHE_TRY_VOID(nest.check());
  s.next();
  UnaryNode node;
  LATHE_TRY(node.operand, parse_not(s));
  return make(std::move(node));
}

template <class Operand>
Result<ExprPtr> parse_logic(State& s, std::string_view word, Operand operand) {
  LATHE_TRY(ExprPtr first, operand(s));
  if (!s.is_name(word)) return first;
  LogicNode node;
  node.all = word == "and";
  node.operands.push_back(std::move(first));
  while (s.skip_name(word)) {
    LATHE_TRY(ExprPtr right, operand(s));
    node.operands.push_back(std::move(right));
  }
  return make(std::move(node));
}

Result<ExprPtr> parse_or(State& s) {
  return parse_logic(s, "or", [](State& t) { return parse_logic(t, "and", parse_not); });
}

}  // namespace

Result<ExprPtr> parse_without_ternary(ParserState& state) {
  const Nest nest(state);
  LATHE_TRY_VOID(nest.check());
  return parse_or(state);
}

Result<ExprPtr> parse_expression(ParserState& state) {
  const Nest nest(state);
  LATHE_TRY_VOID(nest.check());
  LATHE_TRY(ExprPtr value, parse_or(state));
  if (!state.is_name("if")) return value;
  TernaryNode node;
  while (state.skip_name("if")) {
    LATHE_TRY(ExprPtr condition, parse_or(state));
    if (value == nullptr) return state.fail("a second 'if' needs an 'else' before it");
    node.branches.push_back({std::move(value), std::move(condition)});
    if (state.skip_name("else")) {
      LATHE_TRY(value, parse_or(state));
    }
  }
  node.otherwise = std::move(value);
  return make(std::move(node));
}

Result<ExprPtr> parse_expression_or_tuple(ParserState& state) {
  LATHE_TRY(ExprPtr first, parse_expression(state));
  if (!state.is_operator(",")) return first;
  ListNode node;
  node.kind = ListKind::kTuple;
  node.items.push_back(std::move(first));
  while (state.skip_operator(",")) {
    const TokenKind kind = state.peek().kind;
    if (kind == TokenKind::kBlockEnd || kind == TokenKind::kOutputEnd || state.is_operator("]")) break;
    LATHE_TRY(ExprPtr item, parse_expression(state));
    node.items.push_back(std::move(item));
  }
  return make(std::move(node));
}

Result<ExprPtr> parse_filter_chain(ParserState& state) {
  PostfixNode node;
  do {
    LATHE_TRY(Suffix suffix, parse_filter(state));
    node.suffixes.push_back(std::move(suffix));
  } while (state.skip_operator("|"));
  return make(std::move(node));
}

}  // namespace lathe::text::jinja
