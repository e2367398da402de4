// Every variant of every table against the reference, one test per op and variant. `conformance_test --support` prints who supports what.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "harness.h"
#include "kernels/cpu/cpu_variants.h"
#include "kernels/ref/reference.h"

namespace lathe::conformance {
namespace {

using Table = std::pair<std::string, std::span<const Variant>>;

/// Every table that this machine can run.
std::vector<Table> tables() {
  namespace cpu = kernels::cpu;
  std::vector<Table> out = {{"ref", kernels::ref::reference_variants()}, {"scalar", cpu::scalar_variants()}};
  if (cpu::has_avx2()) out.emplace_back("avx2", cpu::avx2_variants());
  if (cpu::has_avx512()) out.emplace_back("avx512", cpu::avx512_variants());
  if (cpu::has_avx512vnni()) out.emplace_back("avx512vnni", cpu::avx512vnni_variants());
  if (cpu::has_avx512bf16()) out.emplace_back("avx512bf16", cpu::avx512bf16_variants());
  return out;
}

Runners& runners() {
  static HostRunner one(1);
  static HostRunner several(3);
  static Runners both{one, several};
  return both;
}

class VariantTest : public testing::Test {
 public:
  explicit VariantTest(std::span<const Variant> variant) : variant_(variant) {}
  void TestBody() override {
    const Report report = run_conformance(variant_, runners());
    for (const std::string& text : report.failures) ADD_FAILURE() << text;
    EXPECT_GT(report.ran, 0) << "no case of the table fits this variant: it is not tested";
  }

 private:
  std::span<const Variant> variant_;
};

/// Gives shared memory if it may, and no worker its own.
class RefusingScratch final : public ops::Scratch {
 public:
  explicit RefusingScratch(bool shared) : gives_(shared) {}
  void* shared(int64_t bytes) override { return gives_ ? memory_.shared(bytes) : nullptr; }
  void* local(int /*worker*/, int64_t /*bytes*/) override { return nullptr; }

 private:
  bool gives_;
  PoisonedScratch memory_{1};
};

/// A kernel that gets no scratch returns: it harms nothing, whatever its outputs are.
TEST(Scratch, RefusedIsNoHarm) {
  base::ThreadPool pool(2);
  int ran = 0;
  for (const Case& item : ops::cases::all_cases()) {
    const std::unique_ptr<Problem> problem = build(item);  // one for all: each run may leave what it likes in the outputs
    for (const Table& table : tables()) {
      for (const Variant& variant : table.second) {
        if (variant.op != item.op || !variant.supports(problem->params())) continue;
        for (const bool shared : {false, true}) {
          RefusingScratch scratch(shared);
          variant.run(problem->params(), {.pool = &pool, .scratch = &scratch});
          ++ran;
        }
        EXPECT_EQ(problem->damage(), "") << ops::op_info(item.op).name << "/" << item.name << " on " << variant.name;
      }
    }
  }
  EXPECT_GT(ran, 100);
}

void register_tests() {
  for (const Table& table : tables()) {
    for (size_t i = 0; i < table.second.size(); ++i) {
      const std::span<const Variant> variant = table.second.subspan(i, 1);
      const std::string name = fmt::format("{}/{}", ops::op_info(variant[0].op).name, variant[0].name);
      testing::RegisterTest(("Conformance/" + table.first).c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [variant]() -> testing::Test* { return new VariantTest(variant); });
    }
  }
}

}  // namespace
}  // namespace lathe::conformance

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--support") {
    std::fputs(lathe::conformance::support_page(lathe::conformance::tables()).c_str(), stdout);
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  lathe::conformance::register_tests();
  return RUN_ALL_TESTS();
}
