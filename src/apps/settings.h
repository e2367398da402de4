#pragma once
// Every setting of the program, declared once. Flags, environment variables, settings files, help and `config schema` come from here.

#include "base/result.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "models/generation_config.h"

namespace lathe::apps {

const config::SettingRegistry& registry();

/// The setting that a word like "--dtype" or "-t" names; null: none.
const config::SettingSpec* find_setting_flag(std::string_view word);
/// Flags of the engine as words: "--dtype", "float32", "--no-fallback", "--threads=2". Errors: invalid_argument for any other word, a value that is missing,
/// those of the setting. The preset is applied anew.
Result<void> apply_engine_flags(config::Settings& settings, std::span<const std::string> words);

/// Gives the settings that a preset speaks of its values, where nobody says otherwise. To be called once all flags are applied.
void apply_preset(config::Settings& settings);

/// Settings changed by one word of a flag: a model, flags of the engine, or both: "other/model --dtype float32". Errors: as apply_engine_flags, with the flag.
Result<config::Settings> settings_with(const config::Settings& settings, const char* flag, const std::string& given);

/// The part of the settings that make an engine. Errors: invalid_argument (kernel list that is no op=variant), not_found (no such model).
Result<engine::EngineOptions> engine_options(const config::Settings& settings);
/// Sampling; what nobody set comes from the model's generation_config.json.
engine::SamplingParams sampling_params(const config::Settings& settings, const models::GenerationDefaults& defaults);
/// Longest answer, likewise.
int64_t max_tokens(const config::Settings& settings, const models::GenerationDefaults& defaults);

/// "a,b,c" as its parts; an empty text has none.
std::vector<std::string> split_list(const std::string& text);
/// "3,1,2" as numbers. Errors: invalid_argument naming the flag, for what is no integer or less than `least` (INT64_MIN: any).
Result<std::vector<int64_t>> split_integers(const char* flag, const std::string& text, int64_t least);

/// Folder of the running program.
std::string program_directory();
/// Directory of the built-in model: $LATHE_BUILTIN, else beside the program, else the source tree it was built from.
Result<std::string> builtin_model();
/// Folder of the evaluation sets that belong to it: $LATHE_EVAL_SETS, else beside the program, else in the source tree.
Result<std::string> builtin_eval_sets();

}  // namespace lathe::apps
