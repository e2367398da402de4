#include "models/companion_files.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/output_file.h"
#include "models/quantization_config.h"
#include "models/quantize.h"
#include "weights/shards.h"

namespace lathe::models {
namespace {

namespace fs = std::filesystem;

bool left_out(const fs::path& relative) {
  const std::string name = relative.filename().string();
  if (name.starts_with('.') || relative.extension() == ".safetensors") return true;
  return relative == "config.json" || relative == weights::kShardIndex || relative == kModelSlimFile || relative == kQuantizationReport;
}

}  // namespace

Result<std::vector<CompanionFile>> companion_files(const std::string& model) {
  std::vector<CompanionFile> out;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(model, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const fs::path relative = entry->path().lexically_relative(model);
    if (entry->is_directory(unknown)) {
      if (relative.filename().string().starts_with('.')) entry.disable_recursion_pending();
    } else if (entry->is_regular_file(unknown) && !left_out(relative)) {
      out.push_back({.path = entry->path().string(), .relative = relative.string(), .bytes = entry->file_size(unknown)});
    }
  }
  if (error) return err(Code::kUnavailable, "cannot list the folder '{}': {}", model, error.message());
  std::sort(out.begin(), out.end(), [](const CompanionFile& a, const CompanionFile& b) { return a.relative < b.relative; });
  return out;
}

Result<void> copy_companions(const std::vector<CompanionFile>& files, const std::string& folder) {
  for (const CompanionFile& file : files) {
    const fs::path to = fs::path(folder) / file.relative;
    std::error_code error;
    fs::create_directories(to.parent_path(), error);
    LATHE_TRY(const base::MappedFile from, base::MappedFile::open(file.path));
    LATHE_TRY(base::OutputFile out, base::OutputFile::create(to.string(), from.bytes().size()));
    LATHE_TRY_VOID(out.write_at(0, from.bytes()));
    LATHE_TRY_VOID(out.commit());
  }
  return {};
}

}  // namespace lathe::models
