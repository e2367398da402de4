#include "engine/request_key.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lathe::engine {
namespace {

TEST(RequestKey, IsThePromptAndTheSeed) {
  const std::vector<TokenId> prompt = {5, 6, 7};
  EXPECT_EQ(request_key(prompt, 1), request_key(std::vector<TokenId>{5, 6, 7}, 1));
  std::set<uint64_t> keys = {request_key(prompt, 1), request_key(prompt, 2), request_key(std::vector<TokenId>{5, 6}, 1),
                             request_key(std::vector<TokenId>{5, 7, 6}, 1), request_key(std::vector<TokenId>{0, 5, 6, 7}, 1)};
  EXPECT_EQ(keys.size(), 5u);
}

}  // namespace
}  // namespace lathe::engine
