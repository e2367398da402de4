#include "text/template_parser.h"

#include "text/template_parser_state.h"

namespace lathe::text::jinja {
namespace {

using State = ParserState;
using Nest = ParserState::Nest;

/// Statements up to a block tag whose name is among `ends` (left unread, behind its '{%'), or the end of the template if there are none.
Result<Block> parse_block(State& s, std::initializer_list<std::string_view> ends, uint32_t opened);

Result<void> end_tag(State& s) {
  if (s.peek().kind == TokenKind::kBlockEnd) {
    s.next();
    return {};
  }
  return s.fail("expected the end of the tag, found {}", State::describe(s.peek()));
}

/// A body and its closing tag: `{% endmacro %}`, with an optional name behind it.
Result<Block> parse_body(State& s, std::string_view end) {
  const uint32_t opened = s.line();
  LATHE_TRY_VOID(end_tag(s));
  LATHE_TRY(Block body, parse_block(s, {end}, opened));
  s.next();
  if (s.peek().kind == TokenKind::kName) s.next();
  LATHE_TRY_VOID(end_tag(s));
  return body;
}

Result<Target> parse_target(State& s) {
  Target target;
  const bool group = s.skip_operator("(");
  do {
    if (target.unpack && s.peek().kind != TokenKind::kName) break;  // a trailing comma
    LATHE_TRY(std::string name, s.any_name("the name of a variable"));
    target.names.push_back(s.variable(std::move(name)));
    target.unpack = target.unpack || s.is_operator(",");
  } while (s.skip_operator(","));
  if (group) LATHE_TRY_VOID(s.expect_operator(")"));
  if (!target.unpack && s.skip_operator(".")) {
    LATHE_TRY(target.attribute, s.any_name("the name of an attribute"));
  }
  return target;
}

Result<Stmt> parse_if(State& s, uint32_t line) {
  IfNode node;
  for (;;) {
    LATHE_TRY(ExprPtr condition, parse_expression_or_tuple(s));
    LATHE_TRY_VOID(end_tag(s));
    LATHE_TRY(Block body, parse_block(s, {"elif", "else", "endif"}, line));
    node.branches.push_back({std::move(condition), std::move(body)});
    if (!s.skip_name("elif")) break;
  }
  if (s.skip_name("else")) {
    LATHE_TRY_VOID(end_tag(s));
    LATHE_TRY(Block body, parse_block(s, {"endif"}, line));
    node.branches.push_back({nullptr, std::move(body)});
  }
  LATHE_TRY_VOID(s.expect_name("endif"));
  LATHE_TRY_VOID(end_tag(s));
  return Stmt{.line = line, .node = std::move(node)};
}

Result<Stmt> parse_for(State& s, uint32_t line) {
  ForNode node;
  LATHE_TRY(node.target, parse_target(s));
  if (!node.target.attribute.empty()) return s.fail("a loop variable is a plain name");
  LATHE_TRY_VOID(s.expect_name("in"));
  LATHE_TRY(node.items, parse_without_ternary(s));
  if (s.skip_name("if")) {
    LATHE_TRY(node.condition, parse_expression(s));
  }
  if (s.is_name("recursive")) return template_error(Code::kUnimplemented, line, "recursive loops are not supported");
  LATHE_TRY_VOID(end_tag(s));
  ++s.loops;
  const bool outer_uses_loop = std::exchange(s.used[kLoopId], false);
  LATHE_TRY(node.body, parse_block(s, {"else", "endfor"}, line));
  --s.loops;
  node.uses_loop = s.used[kLoopId];
  s.used[kLoopId] = node.uses_loop || outer_uses_loop;
  if (s.skip_name("else")) {
    LATHE_TRY_VOID(end_tag(s));
    LATHE_TRY(node.otherwise, parse_block(s, {"endfor"}, line));
  }
  s.next();
  LATHE_TRY_VOID(end_tag(s));
  return Stmt{.line = line, .node = std::move(node)};
}

Result<Stmt> parse_set(State& s, uint32_t line) {
  SetNode node;
  LATHE_TRY(node.target, parse_target(s));
  if (s.skip_operator("=")) {
    LATHE_TRY(node.value, parse_expression_or_tuple(s));
    LATHE_TRY_VOID(end_tag(s));
  } else {
    if (node.target.unpack) return s.fail("expected '=', found {}", State::describe(s.peek()));
    if (s.skip_operator("|")) {
      LATHE_TRY(node.filter, parse_filter_chain(s));
    }
    LATHE_TRY(node.body, parse_body(s, "endset"));
  }
  return Stmt{.line = line, .node = std::move(node)};
}

/// ( name, name = default, … )
Result<std::vector<MacroNode::Parameter>> parse_parameters(State& s) {
  std::vector<MacroNode::Parameter> parameters;
  LATHE_TRY_VOID(s.expect_operator("("));
  bool comma = true;
  while (!s.is_operator(")")) {
    if (!comma) return s.fail("expected ',' or ')', found {}", State::describe(s.peek()));
    LATHE_TRY(std::string name, s.any_name("the name of a parameter"));
    MacroNode::Parameter parameter{.name = s.variable(std::move(name)), .fallback = nullptr};
    if (s.skip_operator("=")) {
      LATHE_TRY(parameter.fallback, parse_expression(s));
    }
    parameters.push_back(std::move(parameter));
    comma = s.skip_operator(",");
  }
  s.next();
  return parameters;
}

/// The body of a macro or a call block, which begins a new function: loops around it and names used in it are its own.
Result<void> parse_macro_body(State& s, MacroNode& macro, std::string_view end) {
  const int loops = std::exchange(s.loops, 0);
  const auto used = std::exchange(s.used, {});
  LATHE_TRY(macro.body, parse_body(s, end));
  macro.uses_varargs = s.used[kVarargsId];
  macro.uses_kwargs = s.used[kKwargsId];
  s.loops = loops;
  s.used[kLoopId] = s.used[kLoopId] || used[kLoopId];
  s.used[kVarargsId] = used[kVarargsId];
  s.used[kKwargsId] = used[kKwargsId];
  return {};
}

Result<Stmt> parse_macro(State& s, uint32_t line) {
  MacroNode node;
  LATHE_TRY(std::string name, s.any_name("the name of the macro"));
  node.name = s.variable(std::move(name));
  LATHE_TRY(node.parameters, parse_parameters(s));
  LATHE_TRY_VOID(parse_macro_body(s, node, "endmacro"));
  return Stmt{.line = line, .node = std::move(node)};
}

Result<Stmt> parse_call(State& s, uint32_t line) {
  CallNode node;
  node.caller.name = s.variable("caller");
  if (s.is_operator("(")) {
    LATHE_TRY(node.caller.parameters, parse_parameters(s));
  }
  LATHE_TRY(node.call, parse_expression(s));
  const auto* postfix = std::get_if<PostfixNode>(&node.call->node);
  if (postfix == nullptr || postfix->suffixes.back().kind != Suffix::Kind::kCall) return s.fail("a call block needs the call of a macro");
  LATHE_TRY_VOID(parse_macro_body(s, node.caller, "endcall"));
  return Stmt{.line = line, .node = std::move(node)};
}

Result<Stmt> parse_with(State& s, uint32_t line) {
  WithNode node;
  while (s.peek().kind == TokenKind::kName) {
    Target target;
    LATHE_TRY(std::string name, s.any_name("the name of a variable"));
    target.names.push_back(s.variable(std::move(name)));
    LATHE_TRY_VOID(s.expect_operator("="));
    LATHE_TRY(ExprPtr value, parse_expression(s));
    node.values.emplace_back(std::move(target), std::move(value));
    if (!s.skip_operator(",")) break;
  }
  LATHE_TRY(node.body, parse_body(s, "endwith"));
  return Stmt{.line = line, .node = std::move(node)};
}

/// Behind '{%'.
Result<Stmt> parse_statement(State& s) {
  const uint32_t line = s.line();
  LATHE_TRY(const std::string word, s.any_name("the name of a tag"));
  if (word == "if") return parse_if(s, line);
  if (word == "for") return parse_for(s, line);
  if (word == "set") return parse_set(s, line);
  if (word == "macro") return parse_macro(s, line);
  if (word == "call") return parse_call(s, line);
  if (word == "with") return parse_with(s, line);
  if (word == "filter") {
    FilterNode node;
    LATHE_TRY(node.filter, parse_filter_chain(s));
    LATHE_TRY(node.body, parse_body(s, "endfilter"));
    return Stmt{.line = line, .node = std::move(node)};
  }
  if (word == "generation") {
    LATHE_TRY(Block body, parse_body(s, "endgeneration"));
    return Stmt{.line = line, .node = GroupNode{std::move(body)}};
  }
  if (word == "break" || word == "continue") {
    if (s.loops == 0) return template_error(Code::kInvalidArgument, line, fmt::format("'{}' stands outside a loop", word));
    LATHE_TRY_VOID(end_tag(s));
    if (word == "break") return Stmt{.line = line, .node = BreakNode{}};
    return Stmt{.line = line, .node = ContinueNode{}};
  }
  for (const std::string_view known : {"include", "import", "from", "extends", "block", "autoescape", "trans", "do"}) {
    if (word == known) return template_error(Code::kUnimplemented, line, fmt::format("the tag '{}' is not supported in chat templates", word));
  }
  return template_error(Code::kInvalidArgument, line, fmt::format("there is no tag '{}' here", word.substr(0, 40)));
}

Result<Block> parse_block(State& s, std::initializer_list<std::string_view> ends, uint32_t opened) {
  const Nest nest(s);
  LATHE_TRY_VOID(nest.check());
  Block block;
  for (;;) {
    const Token& token = s.peek();
    switch (token.kind) {
      case TokenKind::kText:
        block.push_back({.line = token.line, .node = TextNode{std::string(token.text)}});
        s.next();
        break;
      case TokenKind::kOutputBegin: {
        s.next();
        LATHE_TRY(ExprPtr value, parse_expression_or_tuple(s));
        if (s.peek().kind != TokenKind::kOutputEnd) return s.fail("expected '}}}}', found {}", State::describe(s.peek()));
        s.next();
        block.push_back({.line = token.line, .node = OutputNode{std::move(value)}});
        break;
      }
      case TokenKind::kBlockBegin: {
        s.next();
        for (const std::string_view end : ends) {
          if (s.is_name(end)) return block;
        }
        LATHE_TRY(Stmt statement, parse_statement(s));
        block.push_back(std::move(statement));
        break;
      }
      default:
        if (ends.size() == 0) return block;
        return template_error(Code::kInvalidArgument, opened, fmt::format("the block that begins here is never closed by '{}'", *(ends.end() - 1)));
    }
  }
}

}  // namespace

Result<Program> parse_template(std::string_view source, const base::Limits& limits) {
  if (source.size() > limits.template_bytes) {
    return err(Code::kResourceExhausted, "the chat template has {} bytes, more than the limit of {}", source.size(), limits.template_bytes);
  }
  const std::string text = normalise_newlines(source);
  LATHE_TRY(std::vector<Token> tokens, tokenize(text));
  ParserState state(std::move(tokens), limits.template_depth);
  LATHE_TRY(state.program.body, parse_block(state, {}, 1));
  return std::move(state.program);
}

}  // namespace lathe::text::jinja
