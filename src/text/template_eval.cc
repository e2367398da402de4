// Expressions of the interpreter.
#include <algorithm>

#include "text/template_interpreter.h"

namespace lathe::text::jinja {

Result<Value> Interpreter::eval(const Expr& expr) {
  LATHE_TRY_VOID(charge(1));
  if (const auto* constant = std::get_if<ConstantNode>(&expr.node)) return constant->value;
  if (const auto* name = std::get_if<NameNode>(&expr.node)) return lookup(*name);
  const Level level(*this);
  LATHE_TRY_VOID(level.check());
  return std::visit(
      [this](const auto& node) -> Result<Value> {
        using Node = std::decay_t<decltype(node)>;
        if constexpr (std::is_same_v<Node, ConstantNode> || std::is_same_v<Node, NameNode>) {
          return Value();  // handled above
        } else {
          return eval(node);
        }
      },
      expr.node);
}

Result<Value> Interpreter::eval(const ListNode& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExprPtr& item : node.items) {
    LATHE_TRY(Value value, eval(*item));
    items.push_back(std::move(value));
  }
  return list(std::move(items), node.kind);
}

Result<Value> Interpreter::eval(const DictNode& node) {
  Dict out;
  for (const auto& [key_expr, value_expr] : node.entries) {
    LATHE_TRY(Value key, eval(*key_expr));
    LATHE_TRY(Value value, eval(*value_expr));
    if (!key.is_string() && !key.is_number() && !key.is_none()) return fail("{} cannot be the key of a dict", key.kind_name());
    LATHE_TRY_VOID(charge(8 + key.weight() + (key.is_string() ? 0 : out.size())));
    out.set(std::move(key), std::move(value));
  }
  return dict(std::move(out));
}

Result<Value> Interpreter::eval(const UnaryNode& node) {
  LATHE_TRY(const Value value, eval(*node.operand));
  if (node.op == UnaryOp::kNot) return Value(!value.truthy());
  if (!value.is_number()) return fail("a sign before {}", value.kind_name());
  if (value.is_float()) return Value(node.op == UnaryOp::kMinus ? -value.as_double() : value.as_double());
  if (node.op == UnaryOp::kPlus) return Value(value.as_int());
  return arithmetic(*this, Op::kSubtract, Value(int64_t{0}), Value(value.as_int()));
}

Result<Value> Interpreter::eval(const ArithmeticNode& node) {
  LATHE_TRY(Value value, eval(*node.first));
  for (const auto& [op, operand] : node.rest) {
    LATHE_TRY(const Value right, eval(*operand));
    LATHE_TRY(value, arithmetic(*this, op, value, right));
  }
  return value;
}

Result<bool> Interpreter::compare(Op op, const Value& a, const Value& b) {
  const auto negated = [](Result<bool> result) { return result.map([](bool holds) { return !holds; }); };
  switch (op) {
    case Op::kEqual: return same(a, b);
    case Op::kNotEqual: return negated(same(a, b));
    case Op::kLess: return before(a, b);
    case Op::kGreater: return before(b, a);
    case Op::kLessEqual: return negated(before(b, a));
    case Op::kGreaterEqual: return negated(before(a, b));
    case Op::kIn: return contains(b, a);
    default: return negated(contains(b, a));
  }
}

Result<Value> Interpreter::eval(const CompareNode& node) {
  LATHE_TRY(Value left, eval(*node.first));
  for (const auto& [op, operand] : node.rest) {
    LATHE_TRY(Value right, eval(*operand));
    LATHE_TRY(const bool holds, compare(op, left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::eval(const LogicNode& node) {
  Value value;
  for (const ExprPtr& operand : node.operands) {
    LATHE_TRY(value, eval(*operand));
    if (value.truthy() != node.all) break;  // as in Python, the deciding operand is the result
  }
  return value;
}

Result<Value> Interpreter::eval(const ConcatNode& node) {
  MarkedText out;
  for (const ExprPtr& operand : node.operands) {
    LATHE_TRY(const Value value, eval(*operand));
    LATHE_TRY_VOID(append_text(out, value));
  }
  return string(std::move(out));
}

Result<Value> Interpreter::eval(const TernaryNode& node) {
  for (const TernaryNode::Branch& branch : node.branches) {
    LATHE_TRY(const Value condition, eval(*branch.condition));
    if (condition.truthy()) return eval(*branch.value);
  }
  if (node.otherwise == nullptr) return Value();
  return eval(*node.otherwise);
}

Result<Value> Interpreter::eval(const PostfixNode& node) {
  LATHE_TRY(Value value, eval(*node.base));
  return apply_suffixes(node, std::move(value));
}

Result<Value> Interpreter::apply_suffixes(const PostfixNode& node, Value value) {
  const auto& suffixes = node.suffixes;
  for (size_t i = 0; i < suffixes.size(); ++i) {
    line = suffixes[i].line;
    LATHE_TRY_VOID(charge(1));
    // value.method(…) at once, without a method object in between.
    const bool is_call = suffixes[i].kind == Suffix::Kind::kAttribute && i + 1 < suffixes.size() && suffixes[i + 1].kind == Suffix::Kind::kCall;
    if (is_call && has_method(value, suffixes[i].name)) {
      LATHE_TRY(const CallArgs args, eval_arguments(suffixes[i + 1].arguments));
      line = suffixes[i].line;
      LATHE_TRY(value, call_method(*this, value, suffixes[i].name, args));
      ++i;
      continue;
    }
    if (is_call && attribute_is_missing(value, suffixes[i].name)) return fail("{} has no method '{}'", value.kind_name(), suffixes[i].name);
    LATHE_TRY(value, apply_suffix(suffixes[i], value));
  }
  return value;
}

/// Strings, numbers and the like have only methods.
bool Interpreter::attribute_is_missing(const Value& value, const std::string& name) const {
  return !value.is_undefined() && value.dict() == nullptr && value.names() == nullptr && value.loop() == nullptr && !has_method(value, name);
}

Result<Value> Interpreter::apply_suffix(const Suffix& suffix, const Value& value) {
  switch (suffix.kind) {
    case Suffix::Kind::kAttribute: return attribute(value, suffix.name);
    case Suffix::Kind::kIndex: {
      LATHE_TRY(const Value key, eval(*suffix.index[0]));
      return item(value, key);
    }
    case Suffix::Kind::kSlice: return slice(suffix, value);
    case Suffix::Kind::kCall: {
      LATHE_TRY(const CallArgs args, eval_arguments(suffix.arguments));
      line = suffix.line;
      return call(value, args);
    }
    case Suffix::Kind::kFilter:
    case Suffix::Kind::kTest: {
      LATHE_TRY(const CallArgs args, eval_arguments(suffix.arguments));
      line = suffix.line;
      LATHE_TRY(Value result, suffix.operation(*this, value, args));
      if (suffix.negated) return Value(!result.truthy());
      return result;
    }
  }
  return Value();
}

namespace {

/// Positions that a slice of `length` elements takes, in its order.
struct Positions {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 1;
  int64_t count() const {
    if (step > 0) return begin < end ? (end - begin - 1) / step + 1 : 0;
    return begin > end ? (begin - end - 1) / -step + 1 : 0;
  }
};

/// Python's rules for missing, negative and far bounds.
Positions positions(const std::optional<int64_t> (&bounds)[3], int64_t length) {
  Positions out;
  out.step = std::clamp<int64_t>(bounds[2].value_or(1), -length - 1, length + 1);
  const int64_t low = out.step > 0 ? 0 : -1;
  const int64_t high = out.step > 0 ? length : length - 1;
  const auto place = [&](const std::optional<int64_t>& bound, int64_t fallback) {
    if (!bound) return fallback;
    const int64_t from_start = *bound < 0 ? std::max(*bound, -length - 1) + length : *bound;
    return std::clamp(from_start, low, high);
  };
  out.begin = place(bounds[0], out.step > 0 ? low : high);
  out.end = place(bounds[1], out.step > 0 ? high : low);
  return out;
}

}  // namespace

Result<Value> Interpreter::slice(const Suffix& suffix, const Value& value) {
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (suffix.index[i] == nullptr) continue;
    LATHE_TRY(const Value bound, eval(*suffix.index[i]));
    if (bound.is_none()) continue;
    if (!bound.is_number() || bound.is_float()) return fail("a slice needs integers, not {}", bound.kind_name());
    bounds[i] = bound.as_int();
  }
  if (bounds[2] == 0) return fail("the step of a slice is 0");
  if (const List* from = value.list()) {
    const Positions at = positions(bounds, static_cast<int64_t>(from->items.size()));
    LATHE_TRY_VOID(charge(static_cast<uint64_t>(at.count())));
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(at.count()));
    for (int64_t i = 0; i < at.count(); ++i) items.push_back(from->items[static_cast<size_t>(at.begin + i * at.step)]);
    return list(std::move(items), from->kind);
  }
  const MarkedText* text = value.string();
  if (text == nullptr) return fail("{} cannot be sliced", value.kind_name());
  LATHE_TRY_VOID(charge(text->text.size()));
  const std::vector<size_t> offsets = code_point_offsets(text->text);
  const Positions at = positions(bounds, static_cast<int64_t>(offsets.size()) - 1);
  if (at.step == 1)
    return string(at.count() == 0 ? MarkedText() : substring(*text, offsets[static_cast<size_t>(at.begin)], offsets[static_cast<size_t>(at.end)]));
  LATHE_TRY_VOID(charge(static_cast<uint64_t>(at.count()) * (1 + static_cast<uint64_t>(std::bit_width(text->literal.size())) / 4)));
  MarkedText out;
  for (int64_t i = 0; i < at.count(); ++i) {
    const auto point = static_cast<size_t>(at.begin + i * at.step);
    append_range(out, *text, offsets[point], offsets[point + 1]);
  }
  return string(std::move(out));
}

Result<CallArgs> Interpreter::eval_arguments(const ArgumentNodes& nodes) {
  CallArgs args;
  args.positional.reserve(nodes.positional.size());
  for (const ExprPtr& expr : nodes.positional) {
    LATHE_TRY(Value value, eval(*expr));
    args.positional.push_back(std::move(value));
  }
  args.keyword.reserve(nodes.keyword.size());
  for (const auto& [name, expr] : nodes.keyword) {
    LATHE_TRY(Value value, eval(*expr));
    args.keyword.emplace_back(name, std::move(value));
  }
  return args;
}

}  // namespace lathe::text::jinja
