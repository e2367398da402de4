#pragma once
// The adapter that params structs call to list their views: v.in(name, view or matrix or stack), v.out, v.inout.

#include "ops/op.h"

namespace lathe::ops {

/// Forwards every present view to a ViewVisitor.
struct VisitAdapter {
  ViewVisitor& visitor;

  void in(const char* name, View& view) { pass(name, Role::kIn, view); }
  void out(const char* name, View& view) { pass(name, Role::kOut, view); }
  void inout(const char* name, View& view) { pass(name, Role::kInOut, view); }
  void in(const char* name, MatrixView& matrix) {
    pass(name, Role::kIn, matrix.values);
    pass(name, Role::kIn, matrix.scales);
  }
  /// Item by item. Items live in the model and are const: if the visitor replaces a view, the stack gets a copy of all items that the visitor owns.
  void in(const char* name, MatrixStack& stack);

 private:
  void pass(const char* name, Role role, View& view) {
    if (view.present()) visitor.view(name, role, view);
  }
};

/// The same for params that must not change: f(name, role, const View&) for every present view.
template <class F>
struct ConstVisitAdapter {
  F& f;

  void in(const char* name, const View& view) { pass(name, Role::kIn, view); }
  void out(const char* name, const View& view) { pass(name, Role::kOut, view); }
  void inout(const char* name, const View& view) { pass(name, Role::kInOut, view); }
  void in(const char* name, const MatrixView& matrix) {
    pass(name, Role::kIn, matrix.values);
    pass(name, Role::kIn, matrix.scales);
  }
  void in(const char* name, const MatrixStack& stack) {
    for (int32_t i = 0; i < stack.count; ++i) in(name, stack.items[i]);
  }

 private:
  void pass(const char* name, Role role, const View& view) {
    if (view.present()) f(name, role, view);
  }
};

template <class Params, class F>
void for_each_view(const Params& params, F&& f) {
  ConstVisitAdapter<F> adapter{f};
  Params::visit(params, adapter);
}

}  // namespace lathe::ops
