// Goal: every task runs exactly once for any number of threads and tasks, also back to back and after sleeping.
#include "base/threads.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lathe::base {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int64_t tasks : {0, 1, 2, 3, 1000}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(tasks));
        pool.for_each(tasks, [&](int64_t task, int worker) {
          ASSERT_LT(worker, threads);
          seen[static_cast<size_t>(task)].fetch_add(1);
        });
        for (auto& count : seen) ASSERT_EQ(count.load(), 1);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // helpers are asleep now
    std::atomic<int> sum{0};
    pool.for_each(100, [&](int64_t, int) { sum.fetch_add(1); });
    EXPECT_EQ(sum.load(), 100);
  }
}

}  // namespace
}  // namespace lathe::base
