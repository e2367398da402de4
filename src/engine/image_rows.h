#pragma once
// The image rows of a token range.

#include <algorithm>
#include <span>
#include <vector>

#include "models/model.h"

namespace lathe::engine {

/// A picture of a prompt: its rows replace the placeholders from `begin` on.
struct PromptImage {
  int64_t begin = 0;  ///< index of the first placeholder in the prompt
  models::ImageRows rows;
};

/// The parts of the pictures that lie in tokens [begin, end), relative to begin.
inline void rows_between(std::span<const PromptImage> images, int64_t begin, int64_t end, std::vector<models::EmbeddingRows>& out) {
  out.clear();
  for (const PromptImage& image : images) {
    const int64_t first = std::max(image.begin, begin);
    const int64_t last = std::min(image.begin + image.rows.rows.dim(0), end);
    if (first < last) out.push_back({.begin = first - begin, .rows = image.rows.rows.rows(first - image.begin, last - image.begin)});
  }
}

}  // namespace lathe::engine
