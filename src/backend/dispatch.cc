#include "backend/dispatch.h"

#include <algorithm>
#include <bit>

#include "backend/dispatch_impl.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/recorder.h"

namespace lathe::backend {
namespace {

class FirstRows final : public ops::ViewVisitor {
 public:
  void view(const char* /*name*/, ops::Role /*role*/, View& view) override {
    if (rows < 0) rows = view.dim(0);
  }
  int64_t rows = -1;
};

}  // namespace

std::string place(const OpSite& site, ops::OpId op) {
  const char* const op_name = ops::op_info(op).name;
  return site.layer < 0 ? fmt::format("{} ({})", site.name, op_name) : fmt::format("layer {} {} ({})", site.layer, site.name, op_name);
}

int64_t rows_of(const ops::OpInfo& info, const void* params) {
  FirstRows first;
  info.visit(const_cast<void*>(params), first);  // NOLINT(cppcoreguidelines-pro-type-const-cast): this visitor changes nothing
  return std::max<int64_t>(first.rows, 0);
}

Dispatch::Dispatch(Device& device, DispatchOptions options) : device_(device), options_(std::move(options)), impl_(std::make_unique<Impl>(device)) {
  size_t bytes = 0;
  for (int op = 0; op < ops::kOpCount; ++op) bytes = std::max(bytes, ops::op_info(static_cast<ops::OpId>(op)).params_bytes);
  impl_->params.resize((bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
}

Dispatch::~Dispatch() { device_.synchronise(); }

void Dispatch::update_fast() { fast_ = !planning_ && impl_->failure.has_value() && impl_->observer == nullptr && impl_->recorder == nullptr; }

void Dispatch::fail(Error error) {
  if (!impl_->failure.has_value()) return;
  impl_->failure = tl::unexpected<Error>(std::move(error));
  update_fast();
}

const Error* Dispatch::failure() {
  if (impl_->failure.has_value()) {
    if (Result<void> launched = device_.take_error(); !launched) fail(std::move(launched.error()));
  }
  return impl_->failure.has_value() ? nullptr : &impl_->failure.error();
}

Result<void> Dispatch::take_error() {
  // What went wrong first. A device that failed as well must forget it too.
  Result<void> launched = device_.take_error();
  if (impl_->failure.has_value()) return launched;
  Result<void> failure = std::exchange(impl_->failure, Result<void>{});
  update_fast();
  return failure;
}

void Dispatch::begin_plan() {
  LATHE_CHECK(!planning_, "begin_plan() within a plan pass");
  planning_ = true;
  impl_->pass_error = {};
  update_fast();
}

Result<void> Dispatch::end_plan() {
  LATHE_CHECK(planning_, "end_plan() without begin_plan()");
  planning_ = false;
  update_fast();
  return std::exchange(impl_->pass_error, Result<void>{});
}

void Dispatch::set_observer(OpObserver* observer) {
  impl_->observer = observer;
  update_fast();
}

void Dispatch::set_recorder(base::Recorder* recorder) {
  impl_->recorder = recorder;
  if (recorder != nullptr) base::this_thread_place().rank = options_.rank;
  device_.set_recorder(recorder);
  update_fast();
}

void Dispatch::run_slow(OpSite& site, ops::OpId op, const void* params, size_t bytes) {
  if (planning_) {
    Result<void> planned = plan_site(site, op, params);
    Result<void>& error = impl_->depth > 0 ? impl_->part_error : impl_->pass_error;
    if (!planned && error) error = std::move(planned);
    return;
  }
  if (!impl_->failure) return;
  if (site.route == Route::kUnplanned) {
    begin_plan();
    const Result<void> planned = plan_site(site, op, params);
    LATHE_CHECK(planned.has_value(), "unplanned call failed: {}", planned.error().message);
    LATHE_CHECK(end_plan().has_value());
  }
  LATHE_CHECK(site.op == op, "site '{}' is planned for {}, not {}", site.name, ops::op_info(site.op).name, ops::op_info(op).name);
  if (impl_->observer != nullptr && impl_->depth == 0) {
    run_observed(site, params, bytes);
  } else {
    run_planned(site, params, impl_->active_counters);
  }
}

void Dispatch::run_planned(OpSite& site, const void* params, ops::OpCounters* counters) {
  switch (site.route) {
    case Route::kNative: run_native(site, params, counters); return;
    case Route::kComposition:
      ++site.fallback_calls, ++fallback_calls_;
      ++impl_->depth;
      site.composition->run(params, site, *this);
      --impl_->depth;
      return;
    case Route::kHostReference:
      ++site.fallback_calls, ++fallback_calls_;
      run_host_reference(site, params, counters);
      return;
    case Route::kUnplanned: break;
  }
  LATHE_CHECK(false, "site '{}' has no plan", site.name);
}

void Dispatch::run_native(OpSite& site, const void* params, ops::OpCounters* counters) {
  if (impl_->recorder != nullptr) {
    device_.annotate({.layer = site.layer, .rank = options_.rank, .tokens = rows_of(ops::op_info(site.op), params)});
  }
  const bool counted = counters != nullptr && site.variant->run_counted != nullptr;
  if (!counted) impl_->counters_complete = false;
  device_.launch(*site.variant, params, counted ? counters : nullptr);
}

void Dispatch::run_host_reference(OpSite& site, const void* params, ops::OpCounters* counters) {
  const ops::OpInfo& info = ops::op_info(site.op);
  const int64_t ready = impl_->recorder != nullptr ? base::now_ns() : 0;
  if (impl_->host == nullptr) impl_->host = std::make_unique<HostContext>(1);
  const int64_t start = impl_->recorder != nullptr ? base::now_ns() : 0;
  const bool counted = counters != nullptr && site.variant->run_counted != nullptr;
  if (!counted) impl_->counters_complete = false;
  if (const void* const on_host = impl_->mirror.map(info, params); on_host != nullptr) {
    impl_->host->run(*site.variant, on_host, counted ? counters : nullptr);
    impl_->mirror.copy_back();
    if (const auto ran = impl_->host->take_error(); !ran) fail(ran.error().with_context(place(site, site.op)));
  } else {
    fail({Code::kResourceExhausted, fmt::format("{}: no memory on the host for copies of its inputs and outputs", place(site, site.op))});
  }
  if (impl_->recorder != nullptr) {
    impl_->recorder->span({.name = info.name,
                           .category = "op",
                           .detail = kHostName,
                           .ready_ns = ready,
                           .start_ns = start,
                           .end_ns = base::now_ns(),
                           .layer = site.layer,
                           .rank = options_.rank,
                           .tokens = rows_of(info, params)});
  }
}

void* Dispatch::temporary(int index, int64_t bytes) {
  const auto at = static_cast<size_t>(index);
  if (impl_->temporaries.size() <= at) impl_->temporaries.resize(at + 1);
  Buffer& buffer = impl_->temporaries[at];
  if (buffer.data() != nullptr && buffer.bytes() >= bytes) return buffer.data();
  device_.synchronise();  // earlier launches may still read the old memory
  Result<Buffer> grown = Buffer::create(device_, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(bytes, 64)))));
  if (!grown && planning_) {
    if (impl_->part_error) impl_->part_error = base::forward_error(grown);
    return nullptr;
  }
  LATHE_CHECK(grown.has_value(), "temporary of a fallback: {}", grown.error().message);
  buffer = std::move(*grown);
  return buffer.data();
}

float* Dispatch::constant(float value, int64_t count) {
  auto found = std::find_if(impl_->constants.begin(), impl_->constants.end(), [&](const Impl::Constant& c) { return c.value == value; });
  if (found == impl_->constants.end()) found = impl_->constants.insert(found, Impl::Constant{.value = value, .count = 0, .buffer = {}});
  if (found->count >= count && found->buffer.data() != nullptr) return static_cast<float*>(found->buffer.data());
  device_.synchronise();
  const std::vector<float> host(std::bit_ceil(static_cast<size_t>(std::max<int64_t>(count, 16))), value);
  const auto bytes = static_cast<int64_t>(host.size() * sizeof(float));
  Result<Buffer> grown = Buffer::create(device_, bytes);
  if (!grown && planning_) {
    if (impl_->part_error) impl_->part_error = base::forward_error(grown);
    return nullptr;
  }
  LATHE_CHECK(grown.has_value(), "constant of a fallback: {}", grown.error().message);
  found->buffer = std::move(*grown);
  found->count = static_cast<int64_t>(host.size());
  device_.copy_to_device(found->buffer.data(), host.data(), bytes);
  return static_cast<float*>(found->buffer.data());
}

void Dispatch::check_params(const OpSite& site, ops::OpId op, const void* params) {
  if (planning_ || !impl_->failure) return;  // reported, not fatal; after a failure nothing runs
  const Result<void> valid = ops::op_info(op).validate(params);
  LATHE_CHECK(valid.has_value(), "{}: {}", place(site, op), valid.error().message);
}

}  // namespace lathe::backend
