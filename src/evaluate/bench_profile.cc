#include "evaluate/bench_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/cases/cases.h"

namespace lathe::evaluate {
namespace {

bool is_linear(const std::string& op) { return op == "matmul" || op == "gate_up" || op == "moe" || op == "mla_absorb" || op == "mla_unabsorb"; }

}  // namespace

ops::Compute compute_of(ops::OpId op, const void* params) {
  ops::Compute compute = ops::Compute::kF32;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): with_params is shared with builders; nothing is changed here
  ops::cases::with_params(op, const_cast<void*>(params), [&](auto& p) {
    if constexpr (requires { p.compute; }) compute = p.compute;
  });
  return compute;
}

Work work_of(const ops::Cost& cost, ops::Compute compute) {
  return {.bytes_read = static_cast<double>(cost[ops::Counter::kBytesRead]),
          .bytes_written = static_cast<double>(cost[ops::Counter::kBytesWritten]),
          .flops = static_cast<double>(cost[ops::Counter::kFlops]),
          .compute = compute};
}

double Profile::time_ns() const {
  double sum = 0;
  for (const SiteTime& site : sites) sum += site.time_ns;
  return sum;
}

double Profile::time_of(const std::string& op) const {
  double sum = 0;
  for (const SiteTime& site : sites) sum += site.op == op ? site.time_ns : 0;
  return sum;
}

double Profile::linear_time_ns() const {
  double sum = 0;
  for (const SiteTime& site : sites) sum += is_linear(site.op) ? site.time_ns : 0;
  return sum;
}

double Profile::linear_flops() const {
  double sum = 0;
  for (const SiteTime& site : sites) sum += is_linear(site.op) ? site.work.flops : 0;
  return sum;
}

double Profile::state_bytes() const {
  double sum = 0;
  for (const SiteTime& site : sites) {
    const bool states = site.op == "kda_recurrence" || site.op == "kda_verify" || site.op == "kda_flush";
    sum += states ? site.work.bytes_read + site.work.bytes_written : 0;
  }
  return sum;
}

void ProfileObserver::after(backend::OpCall& call, backend::Device& /*device*/) {
  const void* const on_host = mirror_.map(call);
  if (on_host == nullptr) return;
  SiteTime& site = sites_[{call.info->name, call.site->name}];
  const Work work = work_of(call.info->cost(on_host), compute_of(call.info->id, call.params));
  site.variant = call.variant;
  ++site.calls;
  site.time_ns += static_cast<double>(call.end_ns - call.start_ns);
  site.work.bytes_read += work.bytes_read, site.work.bytes_written += work.bytes_written, site.work.flops += work.flops;
  site.work.compute = work.compute;
}

void take_floors(Profile& profile, Roofs& roofs) {
  for (SiteTime& site : profile.sites) site.floor_ns = roofs.floor_ns(site.work, profile.working_set);
}

Profile ProfileObserver::profile(int64_t steps, double wall_ns, double working_set) const {
  Profile out{.steps = steps, .wall_ns = wall_ns, .working_set = working_set, .sites = {}};
  for (const auto& [key, seen] : sites_) {
    SiteTime site = seen;
    site.op = key.first, site.site = key.second;
    out.sites.push_back(std::move(site));
  }
  std::sort(out.sites.begin(), out.sites.end(), [](const SiteTime& a, const SiteTime& b) { return a.time_ns > b.time_ns; });
  return out;
}

config::Json profile_json(const Profile& profile) {
  config::Json::Array sites;
  for (const SiteTime& s : profile.sites) {
    sites.push_back(config::Json::Object{{"op", s.op},
                                         {"site", s.site},
                                         {"variant", s.variant},
                                         {"calls", s.calls},
                                         {"time_ns", s.time_ns},
                                         {"floor_ns", s.floor_ns},
                                         {"bytes_read", s.work.bytes_read},
                                         {"bytes_written", s.work.bytes_written},
                                         {"flops", s.work.flops}});
  }
  return config::Json::Object{{"steps", profile.steps}, {"wall_ns", profile.wall_ns}, {"sites", std::move(sites)}};
}

std::string profile_page(const Profile& profile, size_t rows) {
  const double steps = static_cast<double>(std::max<int64_t>(profile.steps, 1));
  const double all = std::max(profile.time_ns(), 1.0);
  std::string out =
      fmt::format("    {:<38} {:<11} {:>6} {:>10} {:>7} {:>8} {:>8}\n", "op at site", "kernel", "calls", "µs a step", "share", "% floor", "GFLOP/s");
  for (size_t i = 0; i < std::min(rows, profile.sites.size()); ++i) {
    const SiteTime& s = profile.sites[i];
    out += fmt::format("    {:<38} {:<11} {:>6.0f} {:>10.1f} {:>6.1f}% {:>8} {:>8.1f}\n", s.op + " " + s.site, s.variant,
                       static_cast<double>(s.calls) / steps, s.time_ns / steps / 1e3, 100 * s.time_ns / all, share_text(s.floor_ns / s.time_ns),
                       s.work.flops / s.time_ns);
  }
  out += fmt::format("    {:<38} {:<11} {:>6} {:>10.1f} {:>7} {:>8}  ops; {:.1f} µs with the host's part\n", "all", "", "", all / steps / 1e3, "", "",
                     profile.wall_ns / steps / 1e3);
  return out;
}

}  // namespace lathe::evaluate
