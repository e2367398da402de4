#pragma once
// Pictures in the places of a prompt: encoded by the vision tower, their rows assigned to the runs of placeholders.

#include <array>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/image_rows.h"
#include "media/image.h"

namespace lathe::evaluate {

/// Reads, preprocesses and encodes PNG files. Errors: those of media::read_image, naming the file; those of the vision tower.
Result<std::vector<models::ImageRows>> encode_files(engine::Engine& engine, std::span<const std::string> files,
                                                    const media::PreprocessConfig& preprocess);

/// Encodes patches. `patches`: all pictures' patches one after the other; `grids` [n][3]: steps, height, width in patches.
/// Errors: invalid_argument (a grid out of range, more or fewer values than the grids name), those of the vision tower.
Result<std::vector<models::ImageRows>> encode_patches(engine::Engine& engine, std::span<const float> patches,
                                                      std::span<const std::array<int64_t, 3>> grids);

/// Rows of each picture.
std::vector<int64_t> row_counts(std::span<const models::ImageRows> pictures);

/// Repeats the placeholder of each picture, one in `ids` as a template writes it, as often as the picture has rows.
/// Errors: invalid_argument if there are more or fewer placeholders than pictures.
Result<void> expand_placeholders(std::vector<TokenId>& ids, TokenId placeholder, std::span<const int64_t> rows);

/// Where each picture's rows begin: in order, each at the next placeholder, which must be followed by as many as there are rows.
/// Errors: invalid_argument (a run that is too short, placeholders that no picture takes).
Result<std::vector<int64_t>> picture_places(std::span<const TokenId> ids, TokenId placeholder, std::span<const int64_t> rows);

/// The pictures at picture_places().
Result<std::vector<engine::PromptImage>> place_pictures(std::span<const TokenId> ids, TokenId placeholder, std::vector<models::ImageRows> pictures);

}  // namespace lathe::evaluate
