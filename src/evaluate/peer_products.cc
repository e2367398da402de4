#include "evaluate/peer_products.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "backend/dispatch.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "evaluate/peer_abi.h"
#include "ops/basic.h"
#include "ops/cases/problem.h"

namespace lathe::evaluate {
namespace {

using config::Json;

constexpr int64_t kSampleNs = 5'000'000;  // shortest sample
struct MatrixSize {
  int64_t outputs, channels;
};
constexpr MatrixSize kSizes[] = {{8192, 4096}, {4096, 8192}, {24576, 4096}};

/// A loaded module. It stays loaded: threads of its library may still run.
struct Module {
  decltype(&lathe_peer_name) name = nullptr;
  decltype(&lathe_peer_create) create = nullptr;
  decltype(&lathe_peer_run) run = nullptr;
  decltype(&lathe_peer_destroy) destroy = nullptr;
};

Result<Module> load_module(const std::string& path) {
  if (!base::file_exists(path))
    return err(Code::kFailedPrecondition, "there is no module '{}': expected a build that found the library (package libdnnl-dev)", path);
  // Threads of OpenMP that spin after a product would take processors from ours.
  ::setenv("OMP_WAIT_POLICY", "passive", 0);
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return err(Code::kFailedPrecondition, "cannot load '{}': {}", path, base::one_line(::dlerror()));
  Module out;
  out.name = reinterpret_cast<decltype(out.name)>(::dlsym(handle, "lathe_peer_name"));
  out.create = reinterpret_cast<decltype(out.create)>(::dlsym(handle, "lathe_peer_create"));
  out.run = reinterpret_cast<decltype(out.run)>(::dlsym(handle, "lathe_peer_run"));
  out.destroy = reinterpret_cast<decltype(out.destroy)>(::dlsym(handle, "lathe_peer_destroy"));
  if (out.name == nullptr || out.create == nullptr || out.run == nullptr || out.destroy == nullptr)
    return err(Code::kFailedPrecondition, "'{}' lacks the functions of a peer", path);
  return out;
}

/// Seconds of one call.
double time_call(int64_t calls, base::FunctionRef<void()> call) {
  const int64_t begin = base::now_ns();
  for (int64_t i = 0; i < calls; ++i) call();
  return static_cast<double>(base::now_ns() - begin) / 1e9 / static_cast<double>(calls);
}

int64_t calls_of(base::FunctionRef<void()> call) {
  call();  // pages, scratch and caches
  const double seconds = time_call(1, call);
  return std::clamp(static_cast<int64_t>(static_cast<double>(kSampleNs) / 1e9 / seconds) + 1, int64_t{1}, int64_t{1000});
}

class PeerRun {
 public:
  PeerRun(const PeerProductsOptions& options, const Module& module, backend::Device& device) : options_(options), module_(module), device_(device) {}

  Result<PeerProduct> run(const MatrixSize& size, int64_t tokens, ops::Compute compute) {
    const bool int8 = compute == ops::Compute::kInt8;
    PeerProduct out{.name = fmt::format("{} {}x{}", int8 ? "int8" : "bf16", size.outputs, size.channels), .tokens = tokens};
    out.operations = 2.0 * static_cast<double>(tokens) * static_cast<double>(size.outputs) * static_cast<double>(size.channels);
    out.weight_bytes = static_cast<double>(size.outputs * size.channels) * (int8 ? 1 : 2);
    ops::cases::Problem problem(1);
    auto& params = problem.make<ops::MatmulParams>();
    const ops::cases::Weights kind{.dtype = int8 ? DType::kI8 : DType::kBF16, .scaled = int8};
    params.x = problem.in(DType::kF32, {tokens, size.channels});
    params.part_count = 1, params.compute = compute;
    params.parts[0].weight = problem.matrix(kind, size.outputs, size.channels);
    params.parts[0].y = problem.out(DType::kF32, {tokens, size.outputs});
    const backend::Choice choice = backend::choose(device_.table(), ops::OpId::kMatmul, problem.params(), "");
    if (choice.variant == nullptr) return err(Code::kUnimplemented, "no kernel for {}: {}", out.name, choice.reason);
    const auto ours = [&] { device_.launch(*choice.variant, problem.params(), nullptr), device_.synchronise(); };
    const LathePeerProduct product{
        .int8 = int8 ? 1 : 0, .threads = options_.cpu.threads, .rows = tokens, .outputs = size.outputs, .channels = size.channels};
    char why[256] = "";
    const std::unique_ptr<void, decltype(module_.destroy)> peer(module_.create(&product, why, sizeof why), module_.destroy);
    if (peer == nullptr) return err(Code::kFailedPrecondition, "{} has no {} of {} rows: {}", module_.name(), out.name, tokens, base::one_line(why));
    const auto theirs = [&] { module_.run(peer.get()); };
    const int64_t our_calls = calls_of(ours), their_calls = calls_of(theirs);
    const auto once = [&](ArmRun& run) -> Result<BenchFigures> {
      return BenchFigures{{"calls a second", 1 / (run.is_b ? time_call(our_calls, ours) : time_call(their_calls, theirs))}};
    };
    LATHE_TRY(const AbBench bench, bench_pairs(options_.pairs, once, [](int, int) {}));
    LATHE_TRY_VOID(device_.take_error());
    out.rates = bench.metrics.front();
    return out;
  }

 private:
  const PeerProductsOptions& options_;
  const Module& module_;
  backend::Device& device_;
};

}  // namespace

Result<PeerProducts> bench_peer_products(const PeerProductsOptions& options, Roofs& roofs, base::FunctionRef<void(int, int)> progress) {
  for (const int64_t tokens : options.tokens) {
    if (tokens < 1 || tokens > base::kLimits.benchmark_tokens)
      return err(Code::kInvalidArgument, "{} tokens: expected 1 to {}", tokens, base::kLimits.benchmark_tokens);
  }
  LATHE_TRY(const Module module, load_module(options.module));
  LATHE_TRY(const std::unique_ptr<backend::Device> device, backend::make_cpu_device(options.cpu));
  PeerRun run(options, module, *device);
  PeerProducts out{.library = module.name(), .products = {}};
  const int total = static_cast<int>(2 * std::size(kSizes) * options.tokens.size());
  for (const ops::Compute compute : {ops::Compute::kInt8, ops::Compute::kBF16}) {
    const double roof = compute == ops::Compute::kInt8 ? roofs.int8_operations() : roofs.bf16_flops();
    for (const MatrixSize& size : kSizes) {
      for (const int64_t tokens : options.tokens) {
        progress(static_cast<int>(out.products.size()), total);
        LATHE_TRY(PeerProduct product, run.run(size, tokens, compute));
        product.roof = roof;
        out.products.push_back(std::move(product));
      }
    }
  }
  return out;
}

std::string peer_page(const PeerProducts& peers) {
  std::string out =
      fmt::format("A: {}\nB: lathe, which also makes the codes of its activations\n\n  {:<18} {:>6} {:>10} {:>10} {:>9} {:>9} {:>8}  {}\n",
                  peers.library, "outputs x channels", "rows", "A GOP/s", "B GOP/s", "B % peak", "B GB/s", "B / A", "95 % interval");
  for (const PeerProduct& p : peers.products) {
    const double a = 1 / median(p.rates.a), b = 1 / median(p.rates.b);
    const std::string share = p.roof > 0 ? fmt::format("{:.0f}", 100 * p.operations / b / p.roof) : "–";
    out += fmt::format("  {:<18} {:>6} {:>10.0f} {:>10.0f} {:>9} {:>9.1f} {:>8.2f}  [{:.2f}, {:.2f}]\n", p.name, p.tokens, p.operations / a / 1e9,
                       p.operations / b / 1e9, share, p.weight_bytes / b / 1e9, p.rates.ratio.ratio, p.rates.ratio.low, p.rates.ratio.high);
  }
  return out;
}

Json peer_json(const PeerProducts& peers) {
  const auto values = [](const std::vector<double>& list) { return Json::Array(list.begin(), list.end()); };
  Json::Array products;
  for (const PeerProduct& p : peers.products) {
    products.push_back(Json::Object{{"name", p.name},
                                    {"tokens", p.tokens},
                                    {"operations", p.operations},
                                    {"weight_bytes", p.weight_bytes},
                                    {"roof", p.roof},
                                    {"a_calls_per_second", values(p.rates.a)},
                                    {"b_calls_per_second", values(p.rates.b)},
                                    {"ratio", p.rates.ratio.ratio},
                                    {"interval", Json::Array{p.rates.ratio.low, p.rates.ratio.high}}});
  }
  return Json::Object{{"a", peers.library}, {"b", "lathe"}, {"products", std::move(products)}};
}

}  // namespace lathe::evaluate
