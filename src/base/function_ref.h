#pragma once
// A non-owning reference to a callable: hot loops take callbacks without allocation. Valid while the callable lives.

#include <type_traits>
#include <utility>

namespace lathe::base {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, FunctionRef>>>
  FunctionRef(F&& callable)  // NOLINT(google-explicit-constructor): call sites pass lambdas
      : object_(const_cast<void*>(static_cast<const void*>(&callable))),
        call_([](void* object, Args... args) -> R { return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...); }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace lathe::base
