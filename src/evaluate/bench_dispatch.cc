#include "evaluate/bench_dispatch.h"

#include <array>

#include "backend/dispatch.h"
#include "evaluate/bench_statistics.h"
#include "ops/basic.h"

namespace lathe::evaluate {
namespace {

constexpr int kRounds = 9;
constexpr int64_t kCalls = 50'000;  // some 0.1 ms: far above the clock, far below a scheduling quantum

bool always(const void*) { return true; }
void nothing(const void*, const ops::LaunchContext&) {}
constexpr std::array<ops::Variant, 1> kTable = {{{ops::OpId::kAdd, "nothing", always, nothing, nullptr}}};

class IdleDevice final : public backend::Device {
 public:
  const char* name() const override { return "idle"; }
  bool host_visible() const override { return true; }
  Result<void*> allocate(int64_t) override { return err(Code::kUnimplemented, "the idle device has no memory"); }
  void release(void*, int64_t) override {}
  void copy_to_device(void*, const void*, int64_t) override {}
  void copy_to_host(void*, const void*, int64_t) override {}
  void copy_on_device(void*, const void*, int64_t) override {}
  void fill_zero(void*, int64_t) override {}
  std::span<const ops::Variant> table() const override { return kTable; }
  void launch(const ops::Variant& variant, const void* params, ops::OpCounters*) override { variant.run(params, {}); }
  void synchronise() override {}
  std::string describe() const override { return "idle"; }
};

}  // namespace

Result<double> dispatch_call_ns() {
  IdleDevice device;
  LATHE_TRY(const auto dispatch, backend::Dispatch::create(device, {}));
  std::array<float, 2> data{};
  const View view = tensor::make_view(data.data(), DType::kF32, {1, 2});
  const ops::AddParams params{.a = view, .b = view, .out = view};
  backend::OpSite site{.name = "idle"};
  dispatch->begin_plan();
  dispatch->run(site, params);
  LATHE_TRY_VOID(dispatch->end_plan());
  SampleClock clock;
  std::vector<Sample> samples;
  for (int round = 0; round < kRounds; ++round) {
    samples.push_back(clock.take(kCalls, [&] {
      for (int64_t i = 0; i < kCalls; ++i) dispatch->run(site, params);
    }));
  }
  return summarise(samples).median;
}

}  // namespace lathe::evaluate
