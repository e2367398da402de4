// Planning: which variant, else which composition, else the host reference, and why.

#include <fmt/format.h>

#include <algorithm>

#include "backend/dispatch.h"
#include "backend/dispatch_impl.h"
#include "base/check.h"

namespace lathe::backend {
namespace {

/// "x f32, weight bf16": what a variant looked at when it declined.
class DTypes final : public ops::ViewVisitor {
 public:
  void view(const char* name, ops::Role /*role*/, View& view) override {
    const std::string item = fmt::format("{} {}", name, tensor::dtype_name(view.dtype));
    if (std::find(items_.begin(), items_.end(), item) == items_.end()) items_.push_back(item);
  }
  std::string text() const { return fmt::format("{}", fmt::join(items_, ", ")); }

 private:
  std::vector<std::string> items_;
};

std::string dtypes(ops::OpId op, const void* params) {
  DTypes visitor;
  ops::op_info(op).visit(const_cast<void*>(params), visitor);  // NOLINT(cppcoreguidelines-pro-type-const-cast): this visitor changes nothing
  return visitor.text();
}

std::string passed_over(const std::vector<std::string>& names, ops::OpId op, const void* params) {
  if (names.empty()) return "";
  return fmt::format("; not supporting ({}): {}", dtypes(op, params), fmt::join(names, ", "));
}

bool has_op(std::span<const ops::Variant> table, ops::OpId op) {
  return std::any_of(table.begin(), table.end(), [&](const ops::Variant& variant) { return variant.op == op; });
}

/// Every name that --kernel may give for `op`.
std::vector<std::string> kernel_names(std::span<const ops::Variant> table, std::span<const ops::Variant> host, ops::OpId op) {
  std::vector<std::string> names;
  for (const ops::Variant& variant : table) {
    if (variant.op == op) names.emplace_back(variant.name);
  }
  for (const Composition& composition : compositions()) {
    if (composition.op == op) names.emplace_back(composition.name);
  }
  if (has_op(host, op)) names.emplace_back(kHostName);
  return names;
}

}  // namespace

Choice choose(std::span<const ops::Variant> table, ops::OpId op, const void* params, const std::string& forced) {
  const auto supports = [&](const ops::Variant& variant) { return variant.supports == nullptr || variant.supports(params); };
  std::string prefix;
  if (!forced.empty()) {
    const auto named = std::find_if(table.begin(), table.end(), [&](const ops::Variant& v) { return v.op == op && forced == v.name; });
    if (named != table.end() && supports(*named)) return {&*named, "forced by --kernel"};
    prefix = named == table.end() ? fmt::format("forced '{}' is no variant of this table, ", forced)
                                  : fmt::format("forced '{}' does not support it, ", forced);
  }
  std::vector<std::string> passed;
  for (const ops::Variant& variant : table) {
    if (variant.op != op) continue;
    if (supports(variant)) return {&variant, prefix + "first that supports it" + passed_over(passed, op, params)};
    passed.emplace_back(variant.name);
  }
  return {nullptr, prefix + "no native variant" + passed_over(passed, op, params)};
}

Result<std::unique_ptr<Dispatch>> Dispatch::create(Device& device, DispatchOptions options) {
  for (const auto& [op_name, variant] : options.kernels) {
    const std::optional<ops::OpId> op = ops::op_by_name(op_name);
    if (!op) {
      std::vector<std::string> known;
      for (int i = 0; i < ops::kOpCount; ++i) known.emplace_back(ops::op_info(static_cast<ops::OpId>(i)).name);
      return err(Code::kInvalidArgument, "--kernel {}={}: no op is called '{}'; known ops: {}", op_name, variant, op_name, fmt::join(known, ", "));
    }
    const std::vector<std::string> known = kernel_names(device.table(), options.host_reference, *op);
    if (std::find(known.begin(), known.end(), variant) == known.end()) {
      return err(Code::kInvalidArgument, "--kernel {}={}: no variant of {} on device {} is called '{}'; known ones: {}", op_name, variant, op_name,
                 device.name(), variant, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    }
  }
  return std::unique_ptr<Dispatch>(new Dispatch(device, std::move(options)));
}

Result<void> Dispatch::plan_site(OpSite& site, ops::OpId op, const void* params) {
  LATHE_CHECK(site.op == ops::OpId::kCount || site.op == op, "site '{}' is used for two ops: {} and {}", site.name, ops::op_info(site.op).name,
              ops::op_info(op).name);
  const Result<void> valid = ops::op_info(op).validate(params);
  if (!valid) return base::forward_error(valid, place(site, op));
  forget_parts(site);
  site.op = op;
  site.route = Route::kUnplanned;
  const auto found = options_.kernels.find(ops::op_info(op).name);
  std::string forced = found == options_.kernels.end() ? "" : found->second;
  bool not_native = !forced.empty() && std::none_of(device_.table().begin(), device_.table().end(),
                                                    [&](const ops::Variant& v) { return v.op == op && forced == v.name; });
  if (not_native && impl_->depth > 0) forced = "", not_native = false;  // a forced composition whose parts are the same op
  Choice native = not_native ? Choice{nullptr, fmt::format("forced '{}'", forced)} : choose(device_.table(), op, params, forced);
  if (native.variant != nullptr) {
    site.route = Route::kNative;
    site.variant = native.variant;
    site.composition = nullptr;
    site.reason = std::move(native.reason);
  } else if (impl_->depth > 0) {
    return err(Code::kUnimplemented, "{}: {}", ops::op_info(op).name, native.reason);
  } else {
    LATHE_TRY_VOID(plan_fallback(site, params, native.reason, not_native ? forced : ""));
  }
  if (impl_->depth == 0) list(site);
  return {};
}

void Dispatch::list(const OpSite& site) {
  if (impl_->known.insert(&site).second) sites_.push_back(&site);
  if (site.route != Route::kComposition) return;
  for (const OpSite& part : *site.parts) list(part);
}

void Dispatch::forget_parts(OpSite& site) {
  if (site.parts == nullptr) return;
  for (const OpSite& part : *site.parts) {
    if (impl_->known.erase(&part) > 0) std::erase(sites_, &part);
  }
  site.parts.reset();
}

Result<void> Dispatch::plan_fallback(OpSite& site, const void* params, const std::string& why_not_native, const std::string& forced) {
  std::string why = why_not_native;
  const auto refused = [&](const std::string& what) {
    return err(Code::kFailedPrecondition, "{}: device {} would need {} ({}), and fallbacks are not allowed (--no-fallback)", place(site, site.op),
               device_.name(), what, why);
  };
  for (const Composition& composition : compositions()) {
    if (composition.op != site.op || (!forced.empty() && forced != composition.name)) continue;
    if (const Result<void> planned = plan_composition(site, composition, params); !planned) {
      why += fmt::format("; composition {}: {}", composition.name, planned.error().message);
      continue;
    }
    if (options_.no_fallback) return refused(fmt::format("the composition {}", composition.name));
    site.route = Route::kComposition;
    site.variant = nullptr;
    site.composition = &composition;
    site.reason = std::move(why);
    return {};
  }
  site.parts.reset();
  const Choice host = choose(options_.host_reference, site.op, params, "");
  if (host.variant == nullptr) {
    return err(Code::kUnimplemented, "{}: device {} cannot run it and there is no host reference ({})", place(site, site.op), device_.name(), why);
  }
  if (options_.no_fallback) return refused("the host reference");
  site.route = Route::kHostReference;
  site.variant = host.variant;
  site.composition = nullptr;
  site.reason = std::move(why);
  return {};
}

Result<void> Dispatch::plan_composition(OpSite& site, const Composition& composition, const void* params) {
  for (const ops::OpId need : composition.needs) {
    if (!has_op(device_.table(), need)) return err(Code::kUnimplemented, "needs {}, which the device lacks", ops::op_info(need).name);
  }
  if (composition.supports != nullptr && !composition.supports(params)) {
    return err(Code::kUnimplemented, "does not support it ({})", dtypes(site.op, params));
  }
  site.parts = std::make_unique<std::vector<OpSite>>();
  impl_->part_error = {};
  ++impl_->depth;
  composition.run(params, site, *this);
  --impl_->depth;
  return impl_->part_error;
}

}  // namespace lathe::backend
