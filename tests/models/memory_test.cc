// Goal: the caches of a million tokens are what inspect says, and they become resident only as far as they are written.

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "apps/inspect.h"
#include "engine/engine.h"
#include "models/glm5_next_cache.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

constexpr int64_t kContext = 1048576;

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(CacheMemory, AMillionTokensAreReservedAsSaidAndTouchedWhenUsed) {
  engine::EngineOptions options;
  options.model = data_path("builtin");
  options.precision = Precision::kExact;
  options.context_tokens = kContext;
  options.cpu.threads = 1;
  const config::Json inspected = must(apps::inspect_facts(options, 1), "inspect");
  const int64_t said = inspected.find("cache_bytes")->find("total")->as_int();
  const auto engine = must(engine::Engine::create(options), "engine");
  EXPECT_EQ(engine->store().bytes(), said);

  // Once more by itself, so that what it takes is seen.
  const int64_t before = resident_bytes();
  const auto store =
      must(cache::Store::create(engine->device(), engine->model().cache_families(), engine::store_options(options, engine->info())), "store");
  EXPECT_EQ(store->bytes(), said);
  EXPECT_GT(said, int64_t{512} << 20);
#ifdef LATHE_SANITIZED
  GTEST_SKIP() << "what is resident cannot be read under a sanitizer: its own shadow memory counts";
#endif
  constexpr int64_t kSmall = int64_t{8} << 20;  // block lists, one cleared slot, and what the allocator keeps
  EXPECT_LT(resident_bytes() - before, kSmall);
  const SequenceId sequence = must(store->open(), "open");
  must(store->append(sequence, kContext, 0), "append");
  EXPECT_LT(resident_bytes() - before, kSmall);
  // What is written becomes resident: a sixteenth of the latents of one layer.
  const View latents = store->plane(3, kDsaFamilies.latent);
  const int64_t part = latents.extent_bytes() / 16;
  std::fill_n(static_cast<char*>(latents.data), part, char{1});
  const int64_t grown = resident_bytes() - before;
  EXPECT_GT(grown, part - kSmall);
  EXPECT_LT(grown, part + kSmall);
}

}  // namespace
}  // namespace lathe::models::golden
