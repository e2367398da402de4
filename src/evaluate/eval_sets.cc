#include "evaluate/eval_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/file.h"
#include "base/limits.h"
#include "config/json.h"

namespace lathe::evaluate {
namespace {

using config::Json;

Result<std::vector<TokenId>> read_ids(const Json& row, const char* key, const std::string& place) {
  const Json* list = row.find(key);
  if (list == nullptr || !list->is_array()) return err(Code::kDataLoss, "{}: '{}' is missing or no list of ids", place, key);
  std::vector<TokenId> ids;
  ids.reserve(list->as_array().size());
  for (const Json& id : list->as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX)
      return err(Code::kDataLoss, "{}: '{}' holds {}, expected a token id", place, key, id.dump());
    ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  return ids;
}

/// Which rows of a set are read: numbers that `every` divides, until rows_max are kept.
struct RowChoice {
  int64_t every = 1, rows_max = INT64_MAX;
};
/// Rows of DIRECTORY/SET.jsonl.
template <class Take>
Result<void> read_lines(const std::string& directory, const std::string& set, RowChoice choice, Take take) {
  const std::string path = directory + "/" + set + ".jsonl";
  LATHE_TRY(const std::string text, base::read_file(path, base::kLimits.json_bytes));
  int64_t number = 0;
  int64_t taken = 0;
  for (size_t at = 0; at < text.size() && taken < choice.rows_max; ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.empty() || number % choice.every != 0) continue;
    const std::string place = fmt::format("{} line {} (set '{}', row {})", path, number + 1, set, number);
    auto row = base::file_content(config::parse_json(line));
    if (!row) return base::forward_error(row, place);
    LATHE_TRY(const bool kept, take(*row, number, place));
    taken += kept ? 1 : 0;
  }
  return {};
}

Result<TaskSet> read_task_set(const std::string& directory, const std::string& name, const EvalSelection& selection) {
  TaskSet set{.name = name, .rows = {}};
  const bool recall = is_recall(name);
  const int64_t rows_max = std::min(selection.rows_max, recall ? selection.recall_max : INT64_MAX);
  const auto take = [&](const Json& json, int64_t number, const std::string& place) -> Result<bool> {
    TaskRow row;
    row.number = number;
    row.place = place;
    LATHE_TRY(row.prompt, read_ids(json, "prompt", place));
    LATHE_TRY(row.answer, read_ids(json, "answer", place));
    const Json* reasoning = json.find("reasoning");
    if (reasoning == nullptr || !reasoning->is_int()) return err(Code::kDataLoss, "{}: 'reasoning' is missing or no integer", place);
    row.reasoning = reasoning->as_int();
    if (row.prompt.empty() || row.reasoning < 0 || row.reasoning >= static_cast<int64_t>(row.answer.size())) {
      return err(Code::kDataLoss, "{}: {} prompt ids, {} answer ids, {} of them given: expected something to score", place, row.prompt.size(),
                 row.answer.size(), row.reasoning);
    }
    if (const Json* images = json.find("images"); images != nullptr) {
      if (!images->is_array()) return err(Code::kDataLoss, "{}: 'images' is {}, expected a list of file names", place, images->kind_name());
      for (const Json& image : images->as_array()) {
        if (!image.is_string()) return err(Code::kDataLoss, "{}: 'images' holds {}, expected file names", place, image.dump());
        row.images.push_back(directory + "/" + image.as_string());
      }
    }
    if (row.length() > selection.length_max) return false;
    set.rows.push_back(std::move(row));
    return true;
  };
  LATHE_TRY_VOID(read_lines(directory, name, {.every = recall && rows_max != INT64_MAX ? 1 : selection.every, .rows_max = rows_max}, take));
  return set;
}

Result<void> read_heldout(const std::string& directory, const EvalSelection& selection, EvalSets& sets) {
  return read_lines(directory, "heldout", {.rows_max = selection.heldout_max},
                    [&](const Json& row, int64_t, const std::string& place) -> Result<bool> {
                      LATHE_TRY(std::vector<TokenId> ids, read_ids(row, "ids", place));
                      if (ids.size() < 2) return err(Code::kDataLoss, "{}: 'ids' has {} ids, a held-out row needs two", place, ids.size());
                      if (const Json* bytes = row.find("bytes"); bytes != nullptr && !(bytes->is_int() && bytes->as_int() >= 1)) {
                        return err(Code::kDataLoss, "{}: 'bytes' is {}, expected an integer of at least 1", place, bytes->dump());
                      }
                      sets.heldout.push_back({.ids = std::move(ids), .place = place});
                      return true;
                    });
}

Result<void> read_drafts(const std::string& directory, const EvalSelection& selection, EvalSets& sets) {
  return read_lines(directory, "draft_prompts", {.every = selection.every, .rows_max = selection.rows_max},
                    [&](const Json& json, int64_t, const std::string& place) -> Result<bool> {
                      DraftRow row;
                      const Json* kind = json.find("kind");
                      if (kind == nullptr || !kind->is_string()) return err(Code::kDataLoss, "{}: 'kind' is missing or no text", place);
                      row.kind = kind->as_string();
                      row.place = place;
                      LATHE_TRY(row.prompt, read_ids(json, "prompt", place));
                      LATHE_TRY(row.given, read_ids(json, "greedy_fp8", place));
                      if (row.prompt.empty()) return err(Code::kDataLoss, "{}: 'prompt' has no ids", place);
                      sets.drafts.push_back(std::move(row));
                      return true;
                    });
}

/// first_id_never_chosen and stop_ids of the index, both optional.
Result<void> read_index_ids(const Json& index, EvalSets& sets) {
  if (const Json* never = index.find("first_id_never_chosen"); never != nullptr) {
    if (!never->is_int() || never->as_int() < 1 || never->as_int() > INT32_MAX)
      return err(Code::kDataLoss, "{}: 'first_id_never_chosen' is {}, expected a token id of at least 1", sets.index_file, never->dump());
    sets.first_id_never_chosen = never->as_int();
  }
  if (index.find("stop_ids") != nullptr) {
    LATHE_TRY(sets.stop_tokens, read_ids(index, "stop_ids", sets.index_file));
  }
  return {};
}

/// Ids from `below` on do not exist for the model, or are never chosen by it.
struct IdRange {
  int64_t below;
  const char* why;
};
IdRange in_vocabulary(const models::ModelInfo& model) { return {.below = model.vocabulary, .why = "outside the vocabulary of"}; }

Result<void> check_ids(std::span<const TokenId> ids, const IdRange& range, const char* what, const std::string& place) {
  for (const TokenId id : ids) {
    if (id >= range.below) return err(Code::kDataLoss, "{}: '{}' holds the id {}, {} {}", place, what, id, range.why, range.below);
  }
  return {};
}

Result<void> check_no_placeholder(std::span<const TokenId> ids, const models::ModelInfo& model, const char* what, const std::string& place) {
  if (model.image_token < 0 || std::find(ids.begin(), ids.end(), model.image_token) == ids.end()) return {};
  return err(Code::kDataLoss, "{}: '{}' holds the image placeholder {}, which only a prompt with pictures may", place, what, model.image_token);
}

int64_t placeholder_runs(std::span<const TokenId> ids, TokenId placeholder) {
  int64_t runs = 0;
  for (size_t i = 0; i < ids.size(); ++i) runs += ids[i] == placeholder && (i == 0 || ids[i - 1] != placeholder) ? 1 : 0;
  return runs;
}

Result<void> check_task(const TaskRow& row, int64_t chosen_below, const models::ModelInfo& model) {
  LATHE_TRY_VOID(check_ids(row.prompt, in_vocabulary(model), "prompt", row.place));
  LATHE_TRY_VOID(check_ids(row.answer, in_vocabulary(model), "answer", row.place));
  const auto scored = std::span(row.answer).subspan(static_cast<size_t>(row.reasoning));
  LATHE_TRY_VOID(check_ids(scored, {.below = chosen_below, .why = "which no model chooses: ids are chosen below"}, "answer", row.place));
  LATHE_TRY_VOID(check_no_placeholder(row.answer, model, "answer", row.place));
  if (!row.images.empty() && !model.has_vision) return err(Code::kDataLoss, "{}: 'images' names pictures, the model has no vision tower", row.place);
  const int64_t runs = model.image_token < 0 ? 0 : placeholder_runs(row.prompt, model.image_token);
  if (runs != static_cast<int64_t>(row.images.size())) {
    return err(Code::kDataLoss, "{}: 'prompt' has {} runs of the image placeholder {}, 'images' names {} pictures", row.place, runs,
               model.image_token, row.images.size());
  }
  return {};
}

}  // namespace

Result<void> check_eval_sets(const EvalSets& sets, const models::ModelInfo& model) {
  const int64_t chosen_below = sets.first_id_never_chosen > 0 ? sets.first_id_never_chosen : model.vocabulary;
  if (chosen_below > model.vocabulary) {
    return err(Code::kDataLoss, "{}: 'first_id_never_chosen' is {}, outside the vocabulary of {}", sets.index_file, chosen_below, model.vocabulary);
  }
  LATHE_TRY_VOID(check_ids(sets.stop_tokens, in_vocabulary(model), "stop_ids", sets.index_file));
  for (const TaskSet& set : sets.tasks) {
    for (const TaskRow& row : set.rows) LATHE_TRY_VOID(check_task(row, chosen_below, model));
  }
  for (const HeldoutRow& row : sets.heldout) {
    LATHE_TRY_VOID(check_ids(row.ids, in_vocabulary(model), "ids", row.place));
    LATHE_TRY_VOID(check_no_placeholder(row.ids, model, "ids", row.place));
  }
  for (const DraftRow& row : sets.drafts) {
    LATHE_TRY_VOID(check_ids(row.prompt, in_vocabulary(model), "prompt", row.place));
    LATHE_TRY_VOID(check_ids(row.given, in_vocabulary(model), "greedy_fp8", row.place));
    LATHE_TRY_VOID(check_no_placeholder(row.prompt, model, "prompt", row.place));
    LATHE_TRY_VOID(check_no_placeholder(row.given, model, "greedy_fp8", row.place));
  }
  return {};
}

Result<EvalSets> read_eval_sets(const std::string& directory, const EvalSelection& selection) {
  const std::string index_file = directory + "/index.json";
  LATHE_TRY(const Json index, base::file_content(config::read_json_file(index_file)));
  const Json* names = index.find("sets");
  const Json* bytes = index.find("bytes_per_token_of_evaluate");
  if (names == nullptr || !names->is_object()) {
    return err(Code::kDataLoss, "{}: 'sets' is {}, expected an object with the sets by name", index_file,
               names == nullptr ? "missing" : names->kind_name());
  }
  if (bytes == nullptr || !bytes->is_number() ||
      !(bytes->as_double() >= base::kLimits.eval_bytes_per_token_min && bytes->as_double() <= base::kLimits.eval_bytes_per_token)) {
    return err(Code::kDataLoss, "{}: 'bytes_per_token_of_evaluate' is {}, expected a number from {} to {}", index_file,
               bytes == nullptr ? "missing" : bytes->dump(), base::kLimits.eval_bytes_per_token_min, base::kLimits.eval_bytes_per_token);
  }
  EvalSets sets;
  sets.index_file = index_file;
  sets.bytes_per_token = bytes->as_double();
  LATHE_TRY_VOID(read_index_ids(index, sets));
  const auto wanted = [&](const std::string& name) {
    return selection.names.empty() || std::find(selection.names.begin(), selection.names.end(), name) != selection.names.end();
  };
  for (const std::string& name : selection.names) {
    if (names->find(name) == nullptr) return err(Code::kInvalidArgument, "set '{}' is not in {}", name, index_file);
  }
  for (const auto& [name, facts] : names->as_object()) {
    if (!facts.is_object())
      return err(Code::kDataLoss, "{}: the set '{}' is {}, expected an object with its figures", index_file, name, facts.dump());
    if (name.empty() || name.find('/') != std::string::npos) return err(Code::kDataLoss, "{}: '{}' names no file of this folder", index_file, name);
    if (!wanted(name)) continue;
    if (name == "heldout") {
      LATHE_TRY_VOID(read_heldout(directory, selection, sets));
    } else if (name == "draft_prompts") {
      LATHE_TRY_VOID(read_drafts(directory, selection, sets));
    } else {
      LATHE_TRY(TaskSet set, read_task_set(directory, name, selection));
      if (set.rows.empty() && selection.length_max == INT64_MAX) return err(Code::kDataLoss, "set '{}' in {} has no rows", name, directory);
      if (!set.rows.empty()) sets.tasks.push_back(std::move(set));
    }
  }
  return sets;
}

}  // namespace lathe::evaluate
