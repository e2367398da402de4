#include "evaluate/eval_sets.h"

#include <algorithm>

#include "base/file.h"
#include "base/limits.h"
#include "config/json.h"

namespace lathe::evaluate {
namespace {

using config::Json;

Result<std::vector<TokenId>> read_ids(const Json& row, const char* key, const std::string& place) {
  const Json* list = row.find(key);
  if (list == nullptr || !list->is_array()) return err(Code::kInvalidArgument, "{}: '{}' is missing or no list of ids", place, key);
  std::vector<TokenId> ids;
  ids.reserve(list->as_array().size());
  for (const Json& id : list->as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX)
      return err(Code::kInvalidArgument, "{}: '{}' holds {}, expected a token id", place, key, id.dump());
    ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  return ids;
}

/// Rows of a .jsonl file, chosen by number.
template <class Take>
Result<void> read_lines(const std::string& path, int64_t every, int64_t rows_max, Take take) {
  LATHE_TRY(const std::string text, base::read_file(path, base::kLimits.json_bytes));
  int64_t number = 0;
  int64_t taken = 0;
  for (size_t at = 0; at < text.size() && taken < rows_max; ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.empty() || number % every != 0) continue;
    const std::string place = path + " line " + std::to_string(number + 1);
    auto row = config::parse_json(line);
    if (!row) return base::forward_error(row, place);
    LATHE_TRY(const bool kept, take(*row, number, place));
    taken += kept ? 1 : 0;
  }
  return {};
}

Result<TaskSet> read_task_set(const std::string& directory, const std::string& name, const EvalSelection& selection) {
  TaskSet set{.name = name, .rows = {}};
  const bool recall = name.starts_with("recall_");
  const int64_t rows_max = std::min(selection.rows_max, recall ? selection.recall_max : INT64_MAX);
  const auto take = [&](const Json& json, int64_t number, const std::string& place) -> Result<bool> {
    TaskRow row;
    row.number = number;
    LATHE_TRY(row.prompt, read_ids(json, "prompt", place));
    LATHE_TRY(row.answer, read_ids(json, "answer", place));
    const Json* reasoning = json.find("reasoning");
    if (reasoning == nullptr || !reasoning->is_int()) return err(Code::kInvalidArgument, "{}: 'reasoning' is missing or no integer", place);
    row.reasoning = reasoning->as_int();
    if (row.prompt.empty() || row.reasoning < 0 || row.reasoning >= static_cast<int64_t>(row.answer.size())) {
      return err(Code::kInvalidArgument, "{}: {} prompt ids, {} answer ids, {} of them given: expected something to score", place, row.prompt.size(),
                 row.answer.size(), row.reasoning);
    }
    if (const Json* images = json.find("images"); images != nullptr) {
      if (!images->is_array()) return err(Code::kInvalidArgument, "{}: 'images' is {}, expected a list of file names", place, images->kind_name());
      for (const Json& image : images->as_array()) {
        if (!image.is_string()) return err(Code::kInvalidArgument, "{}: 'images' holds {}, expected file names", place, image.dump());
        row.images.push_back(directory + "/" + image.as_string());
      }
    }
    if (row.length() > selection.length_max) return false;
    set.rows.push_back(std::move(row));
    return true;
  };
  LATHE_TRY_VOID(read_lines(directory + "/" + name + ".jsonl", recall && rows_max != INT64_MAX ? 1 : selection.every, rows_max, take));
  return set;
}

Result<void> read_heldout(const std::string& directory, const EvalSelection& selection, EvalSets& sets) {
  return read_lines(directory + "/heldout.jsonl", 1, selection.heldout_max, [&](const Json& row, int64_t, const std::string& place) -> Result<bool> {
    LATHE_TRY(std::vector<TokenId> ids, read_ids(row, "ids", place));
    if (ids.size() < 2) return err(Code::kInvalidArgument, "{}: a held-out row needs two ids", place);
    sets.heldout.push_back(std::move(ids));
    return true;
  });
}

Result<void> read_drafts(const std::string& directory, const EvalSelection& selection, EvalSets& sets) {
  return read_lines(directory + "/draft_prompts.jsonl", selection.every, selection.rows_max,
                    [&](const Json& json, int64_t, const std::string& place) -> Result<bool> {
                      DraftRow row;
                      const Json* kind = json.find("kind");
                      if (kind == nullptr || !kind->is_string()) return err(Code::kInvalidArgument, "{}: 'kind' is missing or no text", place);
                      row.kind = kind->as_string();
                      LATHE_TRY(row.prompt, read_ids(json, "prompt", place));
                      LATHE_TRY(row.given, read_ids(json, "greedy_fp8", place));
                      sets.drafts.push_back(std::move(row));
                      return true;
                    });
}

}  // namespace

Result<EvalSets> read_eval_sets(const std::string& directory, const EvalSelection& selection) {
  const std::string index_file = directory + "/index.json";
  LATHE_TRY(const Json index, config::read_json_file(index_file));
  const Json* names = index.find("sets");
  const Json* bytes = index.find("bytes_per_token_of_evaluate");
  if (names == nullptr || !names->is_object() || bytes == nullptr || !bytes->is_number() || bytes->as_double() <= 0) {
    return err(Code::kInvalidArgument, "{}: expected 'sets' (an object) and 'bytes_per_token_of_evaluate' (a positive number)", index_file);
  }
  EvalSets sets;
  sets.bytes_per_token = bytes->as_double();
  if (const Json* never = index.find("first_id_never_chosen"); never != nullptr && never->is_int()) sets.first_id_never_chosen = never->as_int();
  if (index.find("stop_ids") != nullptr) {
    LATHE_TRY(sets.stop_tokens, read_ids(index, "stop_ids", index_file));
  }
  const auto wanted = [&](const std::string& name) {
    return selection.names.empty() || std::find(selection.names.begin(), selection.names.end(), name) != selection.names.end();
  };
  for (const std::string& name : selection.names) {
    if (names->find(name) == nullptr) return err(Code::kInvalidArgument, "set '{}' is not in {}", name, index_file);
  }
  for (const auto& [name, facts] : names->as_object()) {
    if (!wanted(name)) continue;
    if (name == "heldout") {
      LATHE_TRY_VOID(read_heldout(directory, selection, sets));
    } else if (name == "draft_prompts") {
      LATHE_TRY_VOID(read_drafts(directory, selection, sets));
    } else {
      LATHE_TRY(TaskSet set, read_task_set(directory, name, selection));
      if (set.rows.empty() && selection.length_max == INT64_MAX) return err(Code::kInvalidArgument, "set '{}' in {} has no rows", name, directory);
      if (!set.rows.empty()) sets.tasks.push_back(std::move(set));
    }
  }
  return sets;
}

}  // namespace lathe::evaluate
