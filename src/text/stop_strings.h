#pragma once
// Stop strings in a stream: text that could still become one is held back, so that no part of a stop string is ever shown.

#include <string>
#include <string_view>
#include <vector>

namespace lathe::text {

class StopStrings {
 public:
  /// Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> strings);
  /// Text that may be shown after `piece` arrived. If a stop string was completed, stopped() is true and nothing from it on is returned.
  std::string push(std::string_view piece);
  /// What was held back, at the end of a stream that met no stop string.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  size_t longest_ = 0;
  bool stopped_ = false;
};

}  // namespace lathe::text
