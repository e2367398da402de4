// Goal: traces are bounded and well formed; the log sink is installed and removed.
#include <gtest/gtest.h>

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
  const std::string json = timeline.to_chrome_json();
  EXPECT_NE(
      json.find(
          R"("name":"matmul","cat":"op","pid":0,"tid":0,"ts":1.000,"dur":3.000,"args":{"ready_us":0.000,"wait_us":1.000,"layer":3,"tokens":7,"detail":"avx512"})"),
      std::string::npos)
      << json;
  EXPECT_NE(json.find("\"dropped_spans\":1"), std::string::npos);
  EXPECT_EQ(json.find("lost"), std::string::npos);
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
