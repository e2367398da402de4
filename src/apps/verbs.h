#pragma once
// The verbs behind the command line, apart from run.h. Each returns the exit code.

#include <string>
#include <vector>

#include "base/result.h"
#include "config/settings.h"

namespace lathe::apps {

struct LogitsOptions {
  std::string ids_file;  ///< --ids: JSON list of token ids
  std::string out_file;  ///< --out
  std::string chunks;    ///< "33,1,30"
  std::string at;        ///< "0,-1"
  std::string pixels;    ///< safetensors with pixel_values and grid
  int64_t decode_from = -1;
  bool draft = false;         ///< --mtp
  std::string settings_file;  ///< --settings, which the output must not replace
};
Result<int> logits_verb(const config::Settings& settings, const LogitsOptions& options);

struct InspectOptions {
  int64_t batch = 1;
  bool json = false;
};
Result<int> inspect_verb(const config::Settings& settings, const InspectOptions& options);

struct EvalOptions {
  std::string sets;   ///< --sets DIR
  std::string names;  ///< --only a,b
  int64_t every = 1;
  int64_t rows_max = 0;    ///< 0: all
  std::string compare;     ///< report of another run to compare with, row by row
  std::string against;     ///< another model, other settings, or both: evaluated at the same time and compared
  bool gate = false;       ///< exit code 1 if this model is worse than the other one by more than the limits
  std::string could_turn;  ///< record with the close calls of each set, which the gate allows for
  bool json = false;
};
Result<int> eval_verb(const config::Settings& settings, const EvalOptions& options);

struct ExportOptions {
  std::string gguf;  ///< --gguf OUT.gguf
  std::string type = "bf16";
  bool no_vocab = false;
  bool force = false;
  bool json = false;
  std::string settings_file;  ///< --settings, which the output must not replace
};
Result<int> export_verb(const config::Settings& settings, const ExportOptions& options);

struct SelftestOptions {
  bool json = false;
};
/// Exit code 1 if a check failed.
Result<int> selftest_verb(const config::Settings& settings, SelftestOptions options);

enum class ConfigView : uint8_t { kSchema, kValues };
/// Prints the schema, or the values that hold with their origin.
Result<int> config_verb(const config::Settings& settings, ConfigView view);

}  // namespace lathe::apps
