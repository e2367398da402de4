#pragma once
// Evaluation rows as data: a folder with index.json and one .jsonl file a set.

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "models/model.h"

namespace lathe::evaluate {

/// A task or recall row: greedy decoding of `prompt` + the first `reasoning` ids of `answer` must give the rest of `answer`.
struct TaskRow {
  int64_t number = 0;  ///< in its file
  std::vector<TokenId> prompt;
  std::vector<TokenId> answer;
  int64_t reasoning = 0;
  std::vector<std::string> images;  ///< full paths, in the order of their runs of placeholders
  std::string place;                ///< file, line, set and row, for messages
  int64_t length() const { return static_cast<int64_t>(prompt.size() + answer.size()); }
};
struct TaskSet {
  std::string name;
  std::vector<TaskRow> rows;
};

struct DraftRow {
  std::string kind;  ///< "text" or "chat"
  std::vector<TokenId> prompt;
  std::vector<TokenId> given;  ///< a text that was generated before, to be judged as it is
  std::string place;
};

struct HeldoutRow {
  std::vector<TokenId> ids;
  std::string place;
};

struct EvalSets {
  std::vector<TaskSet> tasks;  ///< recall sets included, by name
  std::vector<HeldoutRow> heldout;
  std::vector<DraftRow> drafts;
  double bytes_per_token = 0;  ///< of the held-out rows
  std::vector<TokenId> stop_tokens;
  int64_t first_id_never_chosen = 0;  ///< ids from here on are padding rows; 0: none said
  std::string index_file;             ///< for messages
};

/// A set that asks for something far back.
inline bool is_recall(std::string_view set_name) { return set_name.starts_with("recall_"); }

/// Which rows to read.
struct EvalSelection {
  std::vector<std::string> names;  ///< empty: all sets
  int64_t every = 1;               ///< rows 0, every, 2·every, …
  int64_t rows_max = INT64_MAX;    ///< at most so many of each set
  int64_t heldout_max = INT64_MAX;
  int64_t recall_max = INT64_MAX;  ///< at most so many of each recall set
  int64_t length_max = INT64_MAX;  ///< rows with more ids are left out
};

/// Errors: not_found, invalid_argument (a set that is not there), data_loss naming file, line, set, row and field.
Result<EvalSets> read_eval_sets(const std::string& directory, const EvalSelection& selection);

/// Can this model be judged by these rows? All ids are rows of its vocabulary, what must be chosen can be chosen, every run of image placeholders has its
/// picture. Errors: data_loss naming the place and the value.
Result<void> check_eval_sets(const EvalSets& sets, const models::ModelInfo& model);

}  // namespace lathe::evaluate
