#pragma once
// The syntax tree of a chat template. Chains of operators, suffixes and elifs are lists, not nested nodes, so the depth of a tree
// is the nesting that a person sees and is limited by the parser; walks may recurse.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/template_operations.h"
#include "text/template_value.h"

namespace lathe::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;
using NameId = uint32_t;

struct ArgumentNodes {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
};

struct ConstantNode {
  Value value;
};
struct NameNode {
  std::string name;
  NameId id = 0;
};
struct ListNode {
  std::vector<ExprPtr> items;
  ListKind kind = ListKind::kList;
};
struct DictNode {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
enum class UnaryOp : uint8_t { kNot, kMinus, kPlus };
struct UnaryNode {
  UnaryOp op = UnaryOp::kNot;
  ExprPtr operand;
};
/// first op a op b …, from left to right (arithmetic of one precedence).
struct ArithmeticNode {
  ExprPtr first;
  std::vector<std::pair<Op, ExprPtr>> rest;
};
/// a < b <= c … as Python chains it.
struct CompareNode {
  ExprPtr first;
  std::vector<std::pair<Op, ExprPtr>> rest;
};
struct LogicNode {
  bool all = true;  ///< and; else or
  std::vector<ExprPtr> operands;
};
struct ConcatNode {
  std::vector<ExprPtr> operands;
};
/// value if condition else value if condition else … otherwise (null: undefined).
struct TernaryNode {
  struct Branch {
    ExprPtr value;
    ExprPtr condition;
  };
  std::vector<Branch> branches;
  ExprPtr otherwise;
};
struct Suffix {
  enum class Kind : uint8_t { kAttribute, kIndex, kSlice, kCall, kFilter, kTest };
  Kind kind = Kind::kAttribute;
  uint32_t line = 0;
  bool negated = false;           ///< `is not`
  std::string name;               ///< attribute, filter or test
  ExprPtr index[3];               ///< kIndex: [0]; kSlice: begin, end, step, each may be null
  ArgumentNodes arguments;        ///< call, filter, test
  Operation operation = nullptr;  ///< filter, test
};
/// base.attribute[index](arguments)|filter …
struct PostfixNode {
  ExprPtr base;
  std::vector<Suffix> suffixes;
};

struct Expr {
  std::variant<ConstantNode, NameNode, ListNode, DictNode, UnaryNode, ArithmeticNode, CompareNode, LogicNode, ConcatNode, TernaryNode, PostfixNode>
      node;
};

struct Stmt;
using Block = std::vector<Stmt>;

struct TextNode {
  std::string text;
};
struct OutputNode {
  ExprPtr value;
};
struct IfNode {
  struct Branch {
    ExprPtr condition;  ///< null: else
    Block body;
  };
  std::vector<Branch> branches;
};
/// What is assigned: a name, names to unpack into, or namespace.attribute.
struct Target {
  std::vector<NameNode> names;
  bool unpack = false;
  std::string attribute;
};
struct ForNode {
  Target target;
  ExprPtr items;
  ExprPtr condition;  ///< may be null
  Block body;
  Block otherwise;
  bool uses_loop = false;  ///< does the body name `loop`?
};
struct SetNode {
  Target target;
  ExprPtr value;   ///< null: block form
  Block body;      ///< block form
  ExprPtr filter;  ///< block form: filters to apply to it (a PostfixNode without base) or null
};
struct MacroNode {
  struct Parameter {
    NameNode name;
    ExprPtr fallback;  ///< may be null
  };
  NameNode name;
  std::vector<Parameter> parameters;
  Block body;
  bool uses_varargs = false;  ///< takes more positional arguments than it names
  bool uses_kwargs = false;   ///< takes arguments by any name
};
struct CallNode {
  MacroNode caller;
  ExprPtr call;  ///< a PostfixNode that ends in a call
};
struct FilterNode {
  ExprPtr filter;  ///< a PostfixNode without base
  Block body;
};
struct WithNode {
  std::vector<std::pair<Target, ExprPtr>> values;
  Block body;
};
struct GroupNode {
  Block body;  ///< `generation`: a mark for training, no effect here
};
struct BreakNode {};
struct ContinueNode {};

struct Stmt {
  uint32_t line = 0;
  std::variant<TextNode, OutputNode, IfNode, ForNode, SetNode, MacroNode, CallNode, FilterNode, WithNode, GroupNode, BreakNode, ContinueNode> node;
};

/// Names with a meaning of their own; every program has them under these ids.
inline constexpr NameId kLoopId = 0;
inline constexpr NameId kVarargsId = 1;
inline constexpr NameId kKwargsId = 2;
inline constexpr NameId kCallerId = 3;

/// A parsed template. Immutable; may be rendered by several threads at once.
struct Program {
  Block body;
  std::vector<std::string> names;  ///< of variables, by NameId
  std::unordered_map<std::string, NameId> ids;
};

/// a op b, for the arithmetic operators.
Result<Value> arithmetic(Runtime& runtime, Op op, const Value& a, const Value& b);

}  // namespace lathe::text::jinja
