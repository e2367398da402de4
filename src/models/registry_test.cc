// Goal: what is told of a model does not depend on having weights, and kernels can be planned from a config alone.
#include "models/registry.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_device.h"
#include "base/file.h"
#include "models/glm5_next_test_config.h"
#include "models/model_description.h"

namespace lathe::models {
namespace {

std::string written(const std::string& name, const config::Json& json) {
  const std::string path = testing::TempDir() + "lathe_registry_" + name + ".json";
  EXPECT_TRUE(base::write_file(path, json.dump()).has_value());
  return path;
}

TEST(Registry, DescribesTheReleaseFromItsConfig) {
  const std::string path = written("release", release_config());
  const auto model = describe_model(path, {.context = 4096, .model = {}});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->facts.find("total")->find("parameters")->as_int(), 321'323'031'390);
  EXPECT_EQ(model->facts.find("total")->find("bytes")->as_int(), 328'326'771'576);
  EXPECT_EQ(model->facts.find("layers")->as_array().size(), 46u);
  EXPECT_EQ(model->info.max_positions, 1 << 20);
  EXPECT_EQ(model->context, 4096);
  EXPECT_FALSE(model->weights);
  EXPECT_FALSE(model->cache_families.empty());
  EXPECT_GT(model->facts.find("prefill_token_bytes")->find("total")->as_double(), 0);
}

TEST(Registry, ContextBeyondTheModelIsAnErrorUnlessNobodyAskedForIt) {
  const std::string path = written("context", release_config());
  const auto refused = describe_model(path, {.context = (1 << 20) + 1, .model = {}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("1048577"), std::string::npos) << refused.error().message;
  EXPECT_EQ(describe_model(path, {.context = 1 << 21, .context_at_most = true, .model = {}})->context, 1 << 20);
  EXPECT_EQ(describe_model(path, {.model = {}})->context, 1 << 20);
}

TEST(Registry, PlansKernelsWithoutWeights) {
  const std::string path = written("plan", release_config());
  const auto device = backend::make_cpu_device({.threads = 1, .isa = {}}).value();
  const auto dispatch =
      backend::Dispatch::create(*device, {.no_fallback = false, .kernels = {}, .host_reference = backend::reference_table()}).value();
  ModelOptions options{.max_batch_tokens = 16, .shards = {}, .groups = {}};
  EXPECT_EQ(load_model(path, *dispatch, options).error().code, Code::kFailedPrecondition) << "a config has no weights";
  options.weights = false;
  const auto model = load_model(path, *dispatch, options);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ((*model)->info().layers, 45);
  EXPECT_GT((*model)->info().weight_bytes, 328'000'000'000);
  EXPECT_GT(dispatch->sites().size(), 1000u);
  for (const backend::OpSite* site : dispatch->sites()) {
    EXPECT_NE(site->route, backend::Route::kUnplanned) << site->name;
    EXPECT_FALSE(site->reason.empty()) << site->name;
  }
}

TEST(Registry, SaysWhatIsMissingOrUnknown) {
  EXPECT_EQ(describe_model(testing::TempDir() + "no_such_model", {.model = {}}).error().code, Code::kNotFound);
  config::Json other = release_config();
  other.set("model_type", "llama");
  const auto refused = describe_model(written("other", other), {.model = {}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnimplemented);
  EXPECT_NE(refused.error().message.find("glm5_next"), std::string::npos);
  other.set("model_type", 7);
  EXPECT_EQ(describe_model(written("type", other), {.model = {}}).error().code, Code::kDataLoss);
}

}  // namespace
}  // namespace lathe::models
