#include "apps/usage.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"

namespace lathe::apps {
namespace {

/// The verbs on the command line, the program itself first.
std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  std::vector<const CLI::App*> verbs = {&app};
  while (!verbs.back()->get_subcommands().empty()) verbs.push_back(verbs.back()->get_subcommands().front());
  return verbs;
}

/// The name that was typed, of the several that an option has.
std::string typed_name(const CLI::Option& option, const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    const std::string name = word.substr(0, word.find('='));
    if (word.starts_with('-') && option.check_name(name)) return name;
  }
  return option.get_name();
}

bool takes_value(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 0 && option->check_name(name)) return true;
  }
  const auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(verbs.begin(), verbs.end(), [&](const CLI::App* verb) { return takes_value(*verb, name); });
}

std::string names_of(const std::vector<const CLI::App*>& verbs) {
  std::string names;
  for (const CLI::App* verb : verbs) names += (names.empty() ? "" : ", ") + verb->get_name();
  return names;
}

}  // namespace

std::vector<std::string> with_empty_values(const CLI::App& app, std::vector<std::string> arguments) {
  std::vector<std::string> words;
  for (std::string& word : arguments) {
    const bool empty_value = word.starts_with("--") && word.find('=') == word.size() - 1 && takes_value(app, word.substr(0, word.size() - 1));
    if (empty_value) word.pop_back();
    words.push_back(std::move(word));
    if (empty_value) words.emplace_back();
  }
  return words;
}

std::string repeated_or_empty(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const CLI::App* verb : verbs_of(app)) {
    for (const CLI::Option* option : verb->get_options()) {
      const bool list = option->get_items_expected_max() > 1;
      const CLI::results_t& given = option->results();
      if (given.size() > 1 && !list) return fmt::format("{} is given {} times: expected once", typed_name(*option, arguments), given.size());
      if (std::find(given.begin(), given.end(), "") == given.end()) continue;
      const std::string expected = option->get_type_name();
      return fmt::format("{} is empty: expected {}", typed_name(*option, arguments), expected.empty() ? "a value" : expected);
    }
  }
  return "";
}

std::string usage_message(const CLI::App& app, const CLI::Error& error, const std::vector<std::string>& arguments) {
  const std::vector<const CLI::App*> verbs = verbs_of(app);
  const CLI::App& last = *verbs.back();
  const std::string said = base::one_line(error.what());
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) {  // too many are told by repeated_or_empty()
    const CLI::Option* const option = last.get_option_no_throw(said.substr(0, said.find(':')));
    return option == nullptr ? said : typed_name(*option, arguments) + " is given without a value";
  }
  // The library only says that a verb is missing, whatever stands in its place.
  const bool verb_missing = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && last.get_require_subcommand_min() > 0;
  if (!verb_missing) return said;
  const std::string known = names_of(last.get_subcommands([](const CLI::App*) { return true; }));
  const size_t depth = verbs.size() - 1;
  if (depth >= arguments.size()) return fmt::format("{} needs a verb: expected one of {}", last.get_name(), known);
  const std::string& given = arguments[depth];
  return fmt::format("{} has no {} '{}': expected one of the verbs {}", last.get_name(), given.starts_with('-') ? "flag" : "verb",
                     base::one_line(given), known);
}

}  // namespace lathe::apps
