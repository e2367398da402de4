#include "text/template_interpreter.h"

#include <algorithm>

#include "base/check.h"

namespace lathe::text::jinja {

/// Sends output into a text of its own while it lives.
class Interpreter::Capture {
 public:
  Capture(Interpreter& interpreter, MarkedText& into) : interpreter_(interpreter), previous_(std::exchange(interpreter.out_, &into)) {}
  ~Capture() { interpreter_.out_ = previous_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  Interpreter& interpreter_;
  MarkedText* previous_;
};

Interpreter::Interpreter(const Program& program, const base::Limits& limits, std::optional<int64_t> now)
    : Runtime(limits, now), program_(program), globals_(program.names.size()), is_set_(program.names.size(), false) {
  for (NameId id = 0; id < program.names.size(); ++id) {
    const std::string& name = program.names[id];
    if (!has_function(*this, name)) continue;
    globals_[id] = Value(std::make_shared<const Callable>(Callable{.name = name, .macro = nullptr, .scope = nullptr, .self = nullptr}));
    is_set_[id] = true;
  }
}

Interpreter::~Interpreter() {
  for (const NamespacePtr& names : namespaces_) names->attributes = Dict();
}

void Interpreter::set_variable(const std::string& name, Value value) {
  const auto it = program_.ids.find(name);
  if (it == program_.ids.end()) return;
  globals_[it->second] = std::move(value);
  is_set_[it->second] = true;
}

Result<MarkedText> Interpreter::run() {
  MarkedText text;
  const Capture to(*this, text);
  LATHE_TRY_VOID(execute(program_.body));
  return text;
}

Scope* Interpreter::push_scope(Scope* parent) {
  if (free_scopes_.empty()) free_scopes_.push_back(std::make_unique<Scope>());
  live_scopes_.push_back(std::move(free_scopes_.back()));
  free_scopes_.pop_back();
  Scope* previous = scope_;
  scope_ = live_scopes_.back().get();
  scope_->parent = parent;
  return previous;
}

void Interpreter::pop_scope(Scope* previous) {
  std::unique_ptr<Scope> done = std::move(live_scopes_.back());
  live_scopes_.pop_back();
  scope_ = previous;
  if (done->captured) {
    kept_scopes_.push_back(std::move(done));
    return;
  }
  done->variables.clear();
  free_scopes_.push_back(std::move(done));
}

void Interpreter::set(NameId id, Value value) {
  if (scope_ == nullptr) {
    globals_[id] = std::move(value);
    is_set_[id] = true;
    return;
  }
  for (auto& [name, old] : scope_->variables) {
    if (name == id) {
      old = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(id, std::move(value));
}

Result<Value> Interpreter::lookup(const NameNode& name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    LATHE_TRY_VOID(charge(1 + scope->variables.size() / 8));  // an empty scope is walked, too
    for (const auto& [id, value] : scope->variables) {
      if (id == name.id) return value;
    }
  }
  if (is_set_[name.id]) return globals_[name.id];
  return Value(Undefined{&name.name});
}

Result<Interpreter::Flow> Interpreter::execute(const Block& block) {
  const Level level(*this);
  LATHE_TRY_VOID(level.check());
  for (const Stmt& statement : block) {
    line = statement.line;
    LATHE_TRY_VOID(charge(4));
    LATHE_TRY(const Flow flow, execute(statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute(const Stmt& statement) {
  const auto& node = statement.node;
  if (const auto* text = std::get_if<TextNode>(&node)) {
    if (out_->text.size() + text->text.size() > bytes_max()) return too_large();
    LATHE_TRY_VOID(charge(text->text.size() / 8));
    append(*out_, text->text, Mark::kLiteral);
    return Flow::kNext;
  }
  if (const auto* output = std::get_if<OutputNode>(&node)) {
    LATHE_TRY(const Value value, eval(*output->value));
    LATHE_TRY_VOID(write(value));
    return Flow::kNext;
  }
  if (const auto* branch = std::get_if<IfNode>(&node)) return execute_if(*branch);
  if (const auto* loop = std::get_if<ForNode>(&node)) return execute_for(*loop);
  if (const auto* with = std::get_if<WithNode>(&node)) return execute_with(*with);
  if (const auto* group = std::get_if<GroupNode>(&node)) return execute(group->body);
  if (std::holds_alternative<BreakNode>(node)) return Flow::kBreak;
  if (std::holds_alternative<ContinueNode>(node)) return Flow::kContinue;
  if (const auto* assignment = std::get_if<SetNode>(&node)) {
    LATHE_TRY_VOID(execute_set(*assignment));
  } else if (const auto* macro = std::get_if<MacroNode>(&node)) {
    LATHE_TRY_VOID(charge(16));
    set(macro->name.id, closure(*macro));
  } else if (const auto* call_block = std::get_if<CallNode>(&node)) {
    LATHE_TRY_VOID(execute_call(*call_block));
  } else if (const auto* filter = std::get_if<FilterNode>(&node)) {
    LATHE_TRY(Value body, capture(filter->body));
    LATHE_TRY(const Value filtered, apply_suffixes(std::get<PostfixNode>(filter->filter->node), std::move(body)));
    LATHE_TRY_VOID(write(filtered));
  }
  return Flow::kNext;
}

Result<void> Interpreter::write(const Value& value) { return append_text(*out_, value); }

Result<Interpreter::Flow> Interpreter::execute_if(const IfNode& node) {
  for (const IfNode::Branch& branch : node.branches) {
    if (branch.condition != nullptr) {
      LATHE_TRY(const Value condition, eval(*branch.condition));
      if (!condition.truthy()) continue;
    }
    return execute(branch.body);
  }
  return Flow::kNext;
}

Result<ListPtr> Interpreter::filtered(const ForNode& node, ListPtr items) {
  if (node.condition == nullptr) return items;
  std::vector<Value> kept;
  Scope* previous = push_scope(scope_);
  for (const Value& item : items->items) {
    scope_->variables.clear();
    Result<void> assigned = charge(8).and_then([&] { return assign(node.target, item); });
    Result<Value> condition = assigned ? eval(*node.condition) : Result<Value>(tl::unexpected<Error>(assigned.error()));
    if (!condition) {
      pop_scope(previous);
      return base::forward_error(condition);
    }
    if (condition->truthy()) kept.push_back(item);
  }
  pop_scope(previous);
  LATHE_TRY(const Value list_value, list(std::move(kept)));
  return *list_value.get<ListPtr>();
}

Result<Interpreter::Flow> Interpreter::execute_for(const ForNode& node) {
  LATHE_TRY(const Value source, eval(*node.items));
  LATHE_TRY(ListPtr items, elements(source));
  LATHE_TRY(items, filtered(node, std::move(items)));
  if (items->items.empty()) return execute(node.otherwise);
  Result<Flow> result = Flow::kNext;
  for (size_t i = 0; i < items->items.size(); ++i) {
    Scope* previous = push_scope(scope_);
    Result<void> ready = charge(8);
    if (ready && node.uses_loop) {
      set(kLoopId, Value(std::make_shared<const Loop>(Loop{.items = items, .index = i})));
    }
    if (ready) ready = assign(node.target, items->items[i]);
    result = ready ? execute(node.body) : Result<Flow>(tl::unexpected<Error>(ready.error()));
    pop_scope(previous);
    if (!result || *result == Flow::kBreak) break;
  }
  if (!result) return result;
  return Flow::kNext;
}

Result<void> Interpreter::execute_set(const SetNode& node) {
  if (node.value != nullptr) {
    LATHE_TRY(Value value, eval(*node.value));
    return assign(node.target, std::move(value));
  }
  LATHE_TRY(Value value, capture(node.body));
  if (node.filter != nullptr) {
    LATHE_TRY(value, apply_suffixes(std::get<PostfixNode>(node.filter->node), std::move(value)));
  }
  return assign(node.target, std::move(value));
}

Result<Value> Interpreter::capture(const Block& body) {
  MarkedText text;
  const Capture to(*this, text);
  Scope* previous = push_scope(scope_);
  const Result<Flow> done = execute(body);
  pop_scope(previous);
  LATHE_TRY_VOID(done);
  return string(std::move(text));
}

Value Interpreter::closure(const MacroNode& macro) {
  if (scope_ != nullptr) {
    // The macro may be called after its scope and those around it have ended.
    for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  }
  return Value(std::make_shared<const Callable>(Callable{.name = macro.name.name, .macro = &macro, .scope = scope_, .self = nullptr}));
}

Result<void> Interpreter::execute_call(const CallNode& node) {
  const PostfixNode& postfix = std::get<PostfixNode>(node.call->node);
  const Suffix& last = postfix.suffixes.back();
  LATHE_TRY(Value function, eval(*postfix.base));
  for (size_t i = 0; i + 1 < postfix.suffixes.size(); ++i) {
    LATHE_TRY(function, apply_suffix(postfix.suffixes[i], function));
  }
  LATHE_TRY(CallArgs args, eval_arguments(last.arguments));
  args.keyword.emplace_back("caller", closure(node.caller));
  LATHE_TRY(const Value text, call(function, args));
  return write(text);
}

Result<Interpreter::Flow> Interpreter::execute_with(const WithNode& node) {
  std::vector<Value> values;  // all are evaluated outside
  for (const auto& [target, expr] : node.values) {
    LATHE_TRY(Value value, eval(*expr));
    values.push_back(std::move(value));
  }
  LATHE_TRY_VOID(charge(4 + values.size() * (1 + values.size() / 16)));  // set() scans what is set already
  Scope* previous = push_scope(scope_);
  for (size_t i = 0; i < values.size(); ++i) set(node.values[i].first.names[0].id, std::move(values[i]));
  Result<Flow> flow = execute(node.body);
  pop_scope(previous);
  return flow;
}

Result<void> Interpreter::assign(const Target& target, Value value) {
  LATHE_TRY_VOID(charge(scope_ == nullptr ? 0 : scope_->variables.size() / 8));  // set() scans them
  if (!target.attribute.empty()) {
    LATHE_TRY(const Value owner, lookup(target.names[0]));
    Namespace* names = owner.names();
    if (names == nullptr) return fail("cannot set '{}' of {}: only a namespace has attributes to set", target.attribute, owner.kind_name());
    if (value.depth() >= kValueDepthMax) return error(Code::kResourceExhausted, fmt::format("a value nested deeper than {} levels", kValueDepthMax));
    names->attributes.set(Value::literal_string(target.attribute), std::move(value));
    return {};
  }
  if (!target.unpack) {
    set(target.names[0].id, std::move(value));
    return {};
  }
  LATHE_TRY(const ListPtr parts, elements(value));
  if (parts->items.size() != target.names.size()) return fail("{} values for {} names", parts->items.size(), target.names.size());
  const size_t count = parts->items.size();
  LATHE_TRY_VOID(charge(count * (1 + (count + (scope_ == nullptr ? 0 : scope_->variables.size())) / 8)));
  for (size_t i = 0; i < target.names.size(); ++i) set(target.names[i].id, parts->items[i]);
  return {};
}

Result<void> Interpreter::bind_parameters(const MacroNode& macro, const CallArgs& args) {
  const std::string& name = macro.name.name;
  const size_t positional = args.positional.size();
  if (positional > macro.parameters.size() && !macro.uses_varargs) {
    return fail("the macro '{}' takes {} arguments, {} are given", name, macro.parameters.size(), positional);
  }
  LATHE_TRY_VOID(charge(8 + macro.parameters.size() * (1 + args.keyword.size() + macro.parameters.size() / 16)));
  std::vector<bool> used(args.keyword.size(), false);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const MacroNode::Parameter& parameter = macro.parameters[i];
    const Value* given = i < positional ? &args.positional[i] : nullptr;
    for (size_t k = 0; k < args.keyword.size(); ++k) {
      if (args.keyword[k].first != parameter.name.name) continue;
      if (given != nullptr) return fail("the argument '{}' of the macro '{}' is given twice", parameter.name.name, name);
      given = &args.keyword[k].second;
      used[k] = true;
    }
    Value value = given != nullptr ? *given : Value(Undefined{&parameter.name.name});
    if (given == nullptr && parameter.fallback != nullptr) {
      LATHE_TRY(value, eval(*parameter.fallback));
    }
    set(parameter.name.id, std::move(value));
  }
  return bind_rest(macro, args, used);
}

/// Arguments that no parameter took: `caller`, varargs, kwargs.
Result<void> Interpreter::bind_rest(const MacroNode& macro, const CallArgs& args, const std::vector<bool>& used) {
  Dict others;
  for (size_t k = 0; k < args.keyword.size(); ++k) {
    const auto& [keyword, value] = args.keyword[k];
    if (used[k]) continue;
    if (keyword == "caller") {
      set(kCallerId, value);
    } else if (macro.uses_kwargs) {
      LATHE_TRY_VOID(charge(16));
      others.set(Value::literal_string(keyword), value);
    } else {
      return fail("the macro '{}' has no argument '{}'", macro.name.name, keyword);
    }
  }
  if (macro.uses_kwargs) {
    LATHE_TRY(Value value, dict(std::move(others)));
    set(kKwargsId, std::move(value));
  }
  if (macro.uses_varargs) {
    const size_t named = std::min(macro.parameters.size(), args.positional.size());
    LATHE_TRY(Value value, list({args.positional.begin() + static_cast<ptrdiff_t>(named), args.positional.end()}, ListKind::kTuple));
    set(kVarargsId, std::move(value));
  }
  return {};
}

Result<Value> Interpreter::call_macro(const Callable& callable, const CallArgs& args) {
  const Level level(*this);
  LATHE_TRY_VOID(level.check());
  if (macro_depth_ >= limits().template_depth)
    return error(Code::kResourceExhausted, fmt::format("macros call each other more than {} deep", limits().template_depth));
  const uint32_t call_line = line;
  MarkedText text;
  const Capture to(*this, text);
  ++macro_depth_;
  Scope* previous = push_scope(callable.scope);
  Result<void> done = bind_parameters(*callable.macro, args);
  if (done) {
    if (Result<Flow> flow = execute(callable.macro->body); !flow) done = tl::unexpected<Error>(flow.error());
  }
  pop_scope(previous);
  --macro_depth_;
  LATHE_TRY_VOID(done);
  line = call_line;
  return string(std::move(text));
}

Result<Value> Interpreter::call(const Value& function, const CallArgs& args) {
  LATHE_TRY_VOID(charge(8));
  const Callable* callable = function.callable();
  if (callable == nullptr) {
    const Undefined* undefined = function.get<Undefined>();
    if (undefined != nullptr && undefined->name != nullptr) return fail("'{}' is undefined and cannot be called", *undefined->name);
    return fail("{} cannot be called", function.kind_name());
  }
  if (callable->macro != nullptr) return call_macro(*callable, args);
  if (callable->self != nullptr) return call_method(*this, *callable->self, callable->name, args);
  if (callable->name == "namespace") return make_namespace(args);
  return call_function(*this, callable->name, args);
}

Result<Value> Interpreter::make_namespace(const CallArgs& args) {
  LATHE_TRY_VOID(charge(32));
  LATHE_TRY(const Value values, call_function(*this, "dict", args));
  auto names = std::make_shared<Namespace>(Namespace{*values.dict()});
  namespaces_.push_back(names);
  return Value(std::move(names));
}

}  // namespace lathe::text::jinja
