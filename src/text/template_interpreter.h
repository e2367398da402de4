#pragma once
// Runs a parsed template. Scopes follow Jinja2: `if` has none of its own, a loop body, macro, block set and `with` have; macros see
// the scope in which they were defined.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template_ast.h"
#include "text/template_operations.h"

namespace lathe::text::jinja {

/// Variables of one scope. The outermost one is indexed by NameId, inner ones are short lists.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<NameId, Value>> variables;
  bool captured = false;  ///< a macro was defined in it and may outlive it
};

/// One render. Not thread-safe; the program must outlive it.
class Interpreter final : public Runtime {
 public:
  Interpreter(const Program& program, const base::Limits& limits, std::optional<int64_t> now);
  ~Interpreter() override;
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Sets a variable of the template's context. A name that the template never uses is ignored.
  void set_variable(const std::string& name, Value value);
  Result<MarkedText> run();

  Result<Value> call(const Value& function, const CallArgs& args) override;

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class Capture;

  // Statements (template_interpreter.cc).
  Result<Flow> execute(const Block& block);
  Result<Flow> execute(const Stmt& statement);
  Result<void> write(const Value& value);
  Result<Flow> execute_if(const IfNode& node);
  Result<Flow> execute_for(const ForNode& node);
  Result<ListPtr> filtered(const ForNode& node, ListPtr items);
  Result<void> execute_set(const SetNode& node);
  Result<void> execute_call(const CallNode& node);
  Result<Flow> execute_with(const WithNode& node);
  Result<Value> capture(const Block& body);
  Value closure(const MacroNode& macro);
  Result<void> assign(const Target& target, Value value);
  Result<Value> call_macro(const Callable& callable, const CallArgs& args);
  Result<void> bind_parameters(const MacroNode& macro, const CallArgs& args);
  Result<void> bind_rest(const MacroNode& macro, const CallArgs& args, const std::vector<bool>& used);

  // Scopes.
  Scope* push_scope(Scope* parent);
  void pop_scope(Scope* previous);
  void set(NameId id, Value value);
  Result<Value> lookup(const NameNode& name);

  // Expressions (template_eval.cc).
  Result<Value> eval(const Expr& expr);
  Result<Value> eval(const ListNode& node);
  Result<Value> eval(const DictNode& node);
  Result<Value> eval(const UnaryNode& node);
  Result<Value> eval(const ArithmeticNode& node);
  Result<Value> eval(const CompareNode& node);
  Result<Value> eval(const LogicNode& node);
  Result<Value> eval(const ConcatNode& node);
  Result<Value> eval(const TernaryNode& node);
  Result<Value> eval(const PostfixNode& node);
  Result<bool> compare(Op op, const Value& a, const Value& b);
  Result<Value> apply_suffixes(const PostfixNode& node, Value value);
  bool attribute_is_missing(const Value& value, const std::string& name) const;
  Result<Value> apply_suffix(const Suffix& suffix, const Value& value);
  Result<Value> slice(const Suffix& suffix, const Value& value);
  Result<CallArgs> eval_arguments(const ArgumentNodes& nodes);
  Result<Value> make_namespace(const CallArgs& args);

  const Program& program_;
  std::vector<Value> globals_;
  std::vector<bool> is_set_;  ///< by NameId: does globals_ hold a value?
  Scope* scope_ = nullptr;    ///< null: the outermost
  std::vector<std::unique_ptr<Scope>> free_scopes_;
  std::vector<std::unique_ptr<Scope>> live_scopes_;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;  ///< of macros, until the end of the render
  std::vector<NamespacePtr> namespaces_;             ///< emptied at the end: they are what could hold a cycle
  MarkedText* out_ = nullptr;
  size_t macro_depth_ = 0;
};

}  // namespace lathe::text::jinja
