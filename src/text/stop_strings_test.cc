// Goal: stop strings are found across any cut of the stream, and everything before them is shown exactly once.
#include "text/stop_strings.h"

#include <gtest/gtest.h>

namespace lathe::text {
namespace {

TEST(StopStrings, AnyCutGivesTheSameText) {
  const std::string text = "abcabcabd END of it";
  for (size_t step = 1; step < text.size(); ++step) {
    for (const auto& [stops, expected] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"abd"}, "abcabc"}, {{"END", "of"}, "abcabcabd "}, {{"it!"}, text}, {{}, text}, {{"", "cab"}, "ab"}, {{"a"}, ""}}) {
      StopStrings filter(stops);
      std::string shown;
      for (size_t at = 0; at < text.size(); at += step) shown += filter.push(text.substr(at, step));
      if (!filter.stopped()) shown += filter.flush();
      EXPECT_EQ(shown, expected);
      EXPECT_EQ(filter.stopped(), expected != text);
    }
  }
}

}  // namespace
}  // namespace lathe::text
