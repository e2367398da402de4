#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "harness.h"
#include "ops/visit.h"

namespace lathe::conformance {
namespace {

using ops::Role;

struct Named {
  std::string name;
  Role role;
  View view;
};

std::vector<Named> outputs(Problem& problem) {
  std::vector<Named> out;
  ops::cases::with_params(problem.op(), problem.params(), [&](const auto& params) {
    ops::for_each_view(params, [&](const char* name, Role role, const View& view) {
      if (role != Role::kIn) out.push_back({name, role, view});
    });
  });
  return out;
}

/// "y[3, 17]"
std::string place(const Named& named, int64_t offset) {
  std::string text;
  for (int axis = 0; axis < named.view.rank; ++axis) {
    const int64_t step = std::max<int64_t>(named.view.step(axis), 1);
    text += fmt::format("{}{}", axis > 0 ? ", " : "", offset / step);
    offset %= step;
  }
  return named.name + "[" + text + "]";
}

double value(const View& view, int64_t offset) {
  if (view.dtype == DType::kI32) return static_cast<double>(view.i32()[offset]);
  return static_cast<double>(tensor::load_as_float(view.dtype, view.data, offset));
}

uint32_t bits(const View& view, int64_t offset) {
  if (tensor::dtype_bytes(view.dtype) == 1) return static_cast<const uint8_t*>(view.data)[offset];
  if (tensor::dtype_bytes(view.dtype) == 2) return static_cast<const uint16_t*>(view.data)[offset];
  return static_cast<const uint32_t*>(view.data)[offset];
}

bool both_nan(const View& a, const View& b, int64_t offset) {
  return a.dtype != DType::kI32 && std::isnan(value(a, offset)) && std::isnan(value(b, offset));
}

bool within(const ops::cases::Tolerance& t, double got, double want, double largest) {
  if (std::isnan(got) || std::isnan(want) || std::isinf(got) || std::isinf(want)) {
    if (t.same_class) return std::isfinite(got) == std::isfinite(want);
    return (std::isnan(got) && std::isnan(want)) || got == want;
  }
  return std::abs(got - want) <= t.absolute + t.relative * std::abs(want) + t.scaled * largest;
}

/// What is rounded to a narrow type may land beside.
void add_neighbour(ops::cases::Tolerance& tolerance, DType dtype) {
  if (dtype == DType::kBF16) tolerance.relative += 0x1p-7;
  if (dtype == DType::kF16) tolerance.relative += 0x1p-10, tolerance.absolute += 0x1p-24;
  if (dtype == DType::kF8E4M3) tolerance.relative += 0x1p-3, tolerance.absolute += 0x1p-9;
  if (dtype == DType::kI8) tolerance.absolute += 1;
}

}  // namespace

std::string compare(const Case& item, Problem& reference, Problem& got) {
  if (item.judge) {
    if (std::string wrong = item.judge(reference, got); !wrong.empty()) return wrong;
  }
  const std::vector<Named> want = outputs(reference);
  const std::vector<Named> have = outputs(got);
  const bool exact = item.tolerance.relative == 0 && item.tolerance.scaled == 0 && item.tolerance.absolute == 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const Named& w = want[i];
    if (std::find(item.judged.begin(), item.judged.end(), w.name) != item.judged.end()) continue;
    double largest = 0;
    ops::cases::each_element(w.view, [&](int64_t at) {
      if (std::isfinite(value(w.view, at))) largest = std::max(largest, std::abs(value(w.view, at)));
    });
    ops::cases::Tolerance tolerance = item.tolerance;
    if (w.view.dtype == DType::kI32 || exact) tolerance = {.same_class = item.tolerance.same_class};
    if (!exact) add_neighbour(tolerance, w.view.dtype);
    std::string wrong;
    ops::cases::each_element(w.view, [&](int64_t at) {
      const double a = value(have[i].view, at);
      const double b = value(w.view, at);
      if (wrong.empty() && !within(tolerance, a, b, largest))
        wrong = fmt::format("{} is {}, expected {} (largest of the view {})", place(w, at), a, b, largest);
    });
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string compare_bits(Problem& whole, Problem& got, const std::vector<std::string>& skip) {
  const std::vector<Named> want = outputs(whole);
  const std::vector<Named> have = outputs(got);
  for (const Named& w : want) {
    if (std::find(skip.begin(), skip.end(), w.name) != skip.end()) continue;
    const auto other = std::find_if(have.begin(), have.end(), [&](const Named& named) { return named.name == w.name; });
    const auto nth = std::count_if(want.data(), &w, [&](const Named& named) { return named.name == w.name; });
    const View& view = (other + nth)->view;
    LATHE_CHECK((other + nth)->name == w.name || nth == 0, "{} out of order", w.name);
    std::string wrong;
    ops::cases::each_element(w.view, [&](int64_t at) {
      if (wrong.empty() && bits(view, at) != bits(w.view, at) && !both_nan(view, w.view, at)) {
        wrong = fmt::format("{} has other bits: {:.9g} instead of {:.9g}", place(w, at), value(view, at), value(w.view, at));
      }
    });
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string unwritten(Problem& problem) {
  for (const Named& named : outputs(problem)) {
    if (named.role != Role::kOut || tensor::dtype_bytes(named.view.dtype) != 4) continue;
    std::string wrong;
    ops::cases::each_element(named.view, [&](int64_t at) {
      if (wrong.empty() && bits(named.view, at) == 0x7FB5A5C3u) wrong = place(named, at) + " was not written";
    });
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace lathe::conformance
