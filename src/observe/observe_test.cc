// Goal: traces are bounded and well formed; the log sink is installed and removed.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "observe/logging.h"
#include "observe/timeline.h"

namespace lathe::observe {
namespace {

TEST(Timeline, WritesChromeJson) {
  Timeline timeline(2);
  timeline.span(
      {.name = "matmul", .category = "op", .detail = "avx512", .ready_ns = 1000, .start_ns = 2000, .end_ns = 5000, .layer = 3, .tokens = 7});
  timeline.span({.name = "pool", .category = "piece", .ready_ns = 2000, .start_ns = 2500, .end_ns = 4000, .worker = 1});
  timeline.span({.name = "lost", .category = "op"});
  EXPECT_EQ(timeline.dropped(), 1);
  const std::string json = timeline.to_chrome_json("done");
  EXPECT_NE(
      json.find(
          R"("name":"matmul","cat":"op","pid":0,"tid":0,"ts":1.000,"dur":3.000,"args":{"ready_us":0.000,"wait_us":1.000,"layer":3,"tokens":7,"detail":"avx512"})"),
      std::string::npos)
      << json;
  EXPECT_NE(json.find("\"dropped_spans\":1"), std::string::npos);
  EXPECT_EQ(json.find("lost"), std::string::npos);
}

TEST(Timeline, ShowsWhereRecordersWaitForEachOther) {
  Timeline timeline;
  std::vector<std::thread> threads;
  std::atomic<bool> go{false};
  constexpr int kEach = 2000;
  for (int worker = 1; worker <= 2; ++worker) {
    threads.emplace_back([&timeline, &go, worker] {
      base::this_thread_place().worker = worker;
      while (!go) std::this_thread::yield();
      for (int i = 0; i < kEach; ++i) timeline.span({.name = "x", .category = "op", .worker = worker});
    });
  }
  go = true;
  for (std::thread& thread : threads) thread.join();
  int ops = 0;
  for (const base::Span& span : timeline.spans()) {
    if (std::string(span.category) == "op") {
      ++ops;
      continue;
    }
    EXPECT_STREQ(span.category, "lock");
    EXPECT_STREQ(span.name, "timeline");
    EXPECT_LE(span.ready_ns, span.start_ns);
    EXPECT_LE(span.start_ns, span.end_ns);
    EXPECT_GE(span.worker, 1);
  }
  EXPECT_EQ(ops, 2 * kEach) << "a wait loses nothing";
}

TEST(Logging, JsonLines) {
  testing::internal::CaptureStderr();
  {
    const Logging logging({.level = base::LogLevel::kInfo, .json = true});
    base::log(base::LogLevel::kInfo, "a \"quoted\" {}", 1);
    base::log(base::LogLevel::kDebug, "too quiet");
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(R"("message":"a \"quoted\" 1")"), std::string::npos) << text;
  EXPECT_EQ(text.find("quiet"), std::string::npos);
}

}  // namespace
}  // namespace lathe::observe
