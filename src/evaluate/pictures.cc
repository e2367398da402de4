#include "evaluate/pictures.h"

#include <algorithm>

#include "base/limits.h"

namespace lathe::evaluate {

constexpr int64_t kPatchesMax = base::kLimits.image_patches;

Result<std::vector<models::ImageRows>> encode_files(engine::Engine& engine, std::span<const std::string> files,
                                                    const media::PreprocessConfig& preprocess) {
  std::vector<models::ImageRows> pictures;
  for (const std::string& file : files) {
    LATHE_TRY(const media::Image image, media::read_image(file));
    const media::Patches patches = media::preprocess(image, preprocess);
    LATHE_TRY(models::ImageRows rows,
              engine.model().encode_image({.patches = patches.values, .height = patches.grid_height, .width = patches.grid_width}));
    pictures.push_back(std::move(rows));
  }
  return pictures;
}

Result<std::vector<models::ImageRows>> encode_patches(engine::Engine& engine, std::span<const float> patches,
                                                      std::span<const std::array<int64_t, 3>> grids) {
  std::vector<models::ImageRows> pictures;
  size_t at = 0;
  for (const auto& [steps, height, width] : grids) {
    if (steps < 1 || height < 1 || width < 1 || steps > kPatchesMax || height > kPatchesMax || width > kPatchesMax / height) {
      return err(Code::kInvalidArgument, "grid of picture {} is {} x {} x {}, expected steps, height and width of at least 1 and at most {} patches",
                 pictures.size(), steps, height, width, kPatchesMax);
    }
    const auto values = static_cast<size_t>(steps * height * width * engine.info().patch_values);
    if (values > patches.size() - at) {
      return err(Code::kInvalidArgument, "grid of picture {} is {} x {} x {}, {} patches, but only {} are left of the {} given", pictures.size(),
                 steps, height, width, steps * height * width, (patches.size() - at) / static_cast<size_t>(engine.info().patch_values),
                 patches.size() / static_cast<size_t>(engine.info().patch_values));
    }
    LATHE_TRY(models::ImageRows rows,
              engine.model().encode_image({.patches = patches.subspan(at, values), .steps = steps, .height = height, .width = width}));
    pictures.push_back(std::move(rows));
    at += values;
  }
  if (at != patches.size())
    return err(Code::kInvalidArgument, "{} patches are given, but the grids of {} pictures name only {}",
               patches.size() / static_cast<size_t>(engine.info().patch_values), grids.size(), at / static_cast<size_t>(engine.info().patch_values));
  return pictures;
}

std::vector<int64_t> row_counts(std::span<const models::ImageRows> pictures) {
  std::vector<int64_t> counts;
  for (const models::ImageRows& picture : pictures) counts.push_back(picture.rows.dim(0));
  return counts;
}

Result<void> expand_placeholders(std::vector<TokenId>& ids, TokenId placeholder, std::span<const int64_t> rows) {
  const auto count = static_cast<size_t>(placeholder < 0 ? 0 : std::count(ids.begin(), ids.end(), placeholder));
  if (count != rows.size()) {
    return err(Code::kInvalidArgument, "{} pictures were given, the prompt has places for {}", rows.size(), count);
  }
  std::vector<TokenId> out;
  size_t picture = 0;
  for (const TokenId id : ids) out.insert(out.end(), id == placeholder && count > 0 ? static_cast<size_t>(rows[picture++]) : 1, id);
  ids = std::move(out);
  return {};
}

Result<std::vector<int64_t>> picture_places(std::span<const TokenId> ids, TokenId placeholder, std::span<const int64_t> rows) {
  std::vector<int64_t> places;
  size_t at = 0;
  for (const int64_t count : rows) {
    while (at < ids.size() && ids[at] != placeholder) ++at;
    const size_t begin = at;
    while (at < ids.size() && at - begin < static_cast<size_t>(count) && ids[at] == placeholder) ++at;
    if (at - begin < static_cast<size_t>(count)) {
      return err(Code::kInvalidArgument, "picture {} has {} rows, but the prompt has only {} placeholders of id {} in place", places.size(), count,
                 at - begin, placeholder);
    }
    places.push_back(static_cast<int64_t>(begin));
  }
  const auto left = std::count(ids.begin() + static_cast<ptrdiff_t>(at), ids.end(), placeholder);
  if (placeholder >= 0 && left > 0) {
    return err(Code::kInvalidArgument, "the prompt has {} placeholders of id {} more than its {} pictures have rows", left, placeholder, rows.size());
  }
  return places;
}

Result<std::vector<engine::PromptImage>> place_pictures(std::span<const TokenId> ids, TokenId placeholder, std::vector<models::ImageRows> pictures) {
  LATHE_TRY(const std::vector<int64_t> places, picture_places(ids, placeholder, row_counts(pictures)));
  std::vector<engine::PromptImage> images;
  for (size_t i = 0; i < places.size(); ++i) images.push_back({.begin = places[i], .rows = std::move(pictures[i])});
  return images;
}

}  // namespace lathe::evaluate
