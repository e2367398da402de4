#include <gtest/gtest.h>

#include "evaluate/bench_rival_server.h"

namespace lathe::evaluate {
namespace {

const std::string kToken = "data: {\"content\":\"a\",\"stop\":false}\n\n";
const std::string kEnd = "data: {\"content\":\"\",\"stop\":true}\n\n";

TEST(RivalServer, TokensAreTimedByWhatHadCome) {
  const size_t one = kToken.size();
  const net::HttpResponse response{
      .status = 200,
      .body = kToken + kToken + kToken + kEnd,
      .arrivals = {
          {.ns = 10, .bytes = one}, {.ns = 20, .bytes = 2 * one - 5}, {.ns = 30, .bytes = 3 * one}, {.ns = 40, .bytes = 3 * one + kEnd.size()}}};
  const auto times = token_times(response);
  ASSERT_TRUE(times.has_value()) << times.error().message;
  EXPECT_EQ(*times, (std::vector<int64_t>{10, 30, 30}));
}

TEST(RivalServer, OtherStreamsAreRefused) {
  for (const char* body : {"event: x\n", "data: {\n", "data: {\"content\":\"a\"}\n", "data: [1]\n", "error: {\"message\":\"no\"}\n"}) {
    const net::HttpResponse response{.status = 200, .body = body, .arrivals = {{.ns = 1, .bytes = 1000}}};
    EXPECT_FALSE(token_times(response).has_value()) << body;
  }
  EXPECT_FALSE(token_times({.status = 200, .body = kToken, .arrivals = {{.ns = 1, .bytes = 5}}}).has_value());
}

TEST(RivalServer, RateCountsWhileAllWrite) {
  // From 100 to 400: two tokens of the first, three of the second.
  const auto rate = common_rate({{0, 100, 200, 400}, {100, 250, 300, 350, 500}});
  ASSERT_TRUE(rate.has_value());
  EXPECT_DOUBLE_EQ(*rate, 5 / 300e-9);
  EXPECT_DOUBLE_EQ(*common_rate({{100, 200, 300}}), 2 / 200e-9);
  EXPECT_FALSE(common_rate({{0, 100}, {100, 200}}).has_value());
  EXPECT_FALSE(common_rate({{0}, {0, 100}}).has_value());
}

}  // namespace
}  // namespace lathe::evaluate
