#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace lathe::text {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase_if(strings_, [](const std::string& s) { return s.empty(); });
  for (const std::string& s : strings_) longest_ = std::max(longest_, s.size());
}

std::string StopStrings::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  size_t cut = std::string::npos;
  for (const std::string& s : strings_) cut = std::min(cut, held_.find(s));
  if (cut != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, cut);
    held_.clear();
    return out;
  }
  // The longest tail that some stop string begins with stays.
  size_t keep = std::min(held_.size(), longest_ > 0 ? longest_ - 1 : 0);
  const auto could_begin = [&](size_t length) {
    const std::string_view tail = std::string_view(held_).substr(held_.size() - length);
    return std::any_of(strings_.begin(), strings_.end(), [&](const std::string& s) { return s.starts_with(tail); });
  };
  while (keep > 0 && !could_begin(keep)) --keep;
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopStrings::flush() { return std::exchange(held_, {}); }

}  // namespace lathe::text
