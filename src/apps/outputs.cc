#include "apps/outputs.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/file.h"

namespace lathe::apps {
namespace {

namespace fs = std::filesystem;

/// The path without links and dots, as far as it exists; empty if the system does not say.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path out = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::path() : out;
}

/// The path whose folder is resolved while the name itself may be a link: a rename replaces the link.
fs::path place(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return resolved(folder) / path.filename();
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

bool same(const std::string& output, const std::string& input) {
  return output == input || base::same_file(output, input) || place(output) == place(input);
}

/// Is the output the same file as one in the folder, whose entries may be links to elsewhere?
bool holds(const std::string& folder, const std::string& output) {
  if (!base::file_exists(output)) return false;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (base::same_file(entry->path().string(), output)) return true;
  }
  return false;
}

Result<void> check_place(const NamedFile& output, const RunInputs& inputs) {
  const std::string& path = output.path;
  for (const NamedFile& input : inputs.files) {
    if (input.path.empty()) continue;
    if (same(path, input.path == "-" ? "/dev/stdin" : input.path)) {
      return err(Code::kInvalidArgument, "{} '{}' is the file of {}: expected another one", output.flag, path, input.flag);
    }
  }
  if (base::is_directory(inputs.model)) {
    const fs::path folder = resolved(inputs.model);
    if (is_inside(place(path), folder) || is_inside(resolved(path), folder) || holds(inputs.model, path)) {
      return err(Code::kInvalidArgument, "{} '{}' lies in the folder of the model, '{}': expected a place outside it", output.flag, path,
                 inputs.model);
    }
  } else if (same(path, inputs.model)) {
    return err(Code::kInvalidArgument, "{} '{}' is the file of the model: expected another one", output.flag, path);
  }
  return {};
}

}  // namespace

Result<void> check_output(const NamedFile& output, const RunInputs& inputs) {
  LATHE_TRY_VOID(check_place(output, inputs));
  return base::check_writable(output.path);
}

Result<void> check_new_folder(const NamedFile& output, const RunInputs& inputs) { return check_place(output, inputs); }

}  // namespace lathe::apps
