#include "apps/usage.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/result.h"

namespace lathe::apps {
namespace {

/// The verbs on the command line, the program itself first.
std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  std::vector<const CLI::App*> verbs = {&app};
  while (!verbs.back()->get_subcommands().empty()) verbs.push_back(verbs.back()->get_subcommands().front());
  return verbs;
}

/// The names that were typed, of the several that an option has, in order.
std::vector<std::string> typed_names(const CLI::Option& option, const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const std::string& word : arguments) {
    const std::string name = word.substr(0, word.find('='));
    const bool typed = word.starts_with('-') && option.check_name(name);
    if (typed && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  if (names.empty()) names.push_back(option.get_name());
  return names;
}
std::string typed_name(const CLI::Option& option, const std::vector<std::string>& arguments) { return typed_names(option, arguments).front(); }

/// The option of this name in a verb or one below it; null: none.
const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->check_name(name)) return option;
  }
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (const CLI::Option* const option = find_option(*verb, name); option != nullptr) return option;
  }
  return nullptr;
}

bool takes_value(const CLI::App& app, const std::string& name) {
  const CLI::Option* const option = find_option(app, name);
  return option != nullptr && option->get_items_expected_max() > 0;
}

std::string names_of(const std::vector<const CLI::App*>& verbs) {
  std::string names;
  for (const CLI::App* verb : verbs) names += (names.empty() ? "" : ", ") + verb->get_name();
  return names;
}

/// "--json=false" of a flag that takes no value; empty: none.
std::string switch_with_value(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    const std::string name = word.substr(0, word.find('='));
    if (!word.starts_with("--") || name.size() == word.size()) continue;
    const CLI::Option* const option = find_option(app, name);
    if (option != nullptr && option->get_items_expected_max() == 0) return fmt::format("{} takes no value: '{}'", name, base::one_line(word));
  }
  return "";
}

/// The first word that the verb does not take, as it was typed. The library says all of them, with blanks between, in an order of its own.
std::string unexpected(const CLI::App& verb, const std::string& said, const std::vector<std::string>& arguments) {
  const std::string words = " " + said.substr(said.find(": ") + 2) + " ";
  const auto first =
      std::find_if(arguments.begin(), arguments.end(), [&](const std::string& word) { return words.find(" " + word + " ") != std::string::npos; });
  const std::string word = first == arguments.end() ? said : base::one_line(*first);
  return fmt::format("{} has no {} '{}'", verb.get_name(), word.starts_with('-') ? "flag" : "place for", word);
}

}  // namespace

CLI::Validator integer_in(int64_t least, int64_t most) {
  const std::string expected = fmt::format("a whole number from {} to {}", least, most);
  const auto check = [=](const std::string& text) {
    int64_t value = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
    return whole && value >= least && value <= most ? "" : fmt::format("is '{}', expected {}", base::one_line(text), expected);
  };
  return {check, fmt::format("{} to {}", least, most)};
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string expected = fmt::format("{}", fmt::join(words, ", "));
  const auto check = [words = std::move(words), expected](const std::string& text) {
    return std::find(words.begin(), words.end(), text) != words.end() ? ""
                                                                      : fmt::format("is '{}', expected one of {}", base::one_line(text), expected);
  };
  return {check, fmt::format("{{{}}}", expected)};
}

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
      if (given.size() > 1 && !list) {
        return fmt::format("{} is given {} times: expected once", fmt::join(typed_names(*option, arguments), " or "), given.size());
      }
      if (std::find(given.begin(), given.end(), "") == given.end()) continue;
      const std::string expected = option->get_type_name();
      return fmt::format("{} is empty: expected {}", typed_name(*option, arguments), expected.empty() ? "a value" : expected);
    }
  }
  return "";
}

std::string flag_as_value(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    const CLI::Option* const option = flag.starts_with('-') ? find_option(app, flag) : nullptr;
    if (option == nullptr || option->get_items_expected_max() == 0) continue;
    const std::string& value = arguments[++i];
    if (option->get_type_name().find("FLAGS") != std::string::npos || !value.starts_with('-')) continue;
    if (find_option(app, value.substr(0, value.find('='))) == nullptr) continue;
    return fmt::format("{0} is given without a value: the next word is the flag '{1}' ({0}={1} takes it as the value)", flag, value);
  }
  return "";
}

std::string usage_message(const CLI::App& app, const CLI::Error& error, const std::vector<std::string>& arguments) {
  const std::vector<const CLI::App*> verbs = verbs_of(app);
  const CLI::App& last = *verbs.back();
  std::string said = base::one_line(error.what());
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) {  // too many are told by repeated_or_empty()
    if (const std::string wrong = switch_with_value(app, arguments); !wrong.empty()) return wrong;
    const CLI::Option* const option = last.get_option_no_throw(said.substr(0, said.find(':')));
    return option == nullptr ? said : typed_name(*option, arguments) + " is given without a value";
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ValidationError)) {  // "--name: " and the words of a validator above
    const size_t name = said.find(": ");
    const CLI::Option* const option = last.get_option_no_throw(said.substr(0, name));
    return option == nullptr ? said : typed_name(*option, arguments) + " " + said.substr(name + 2);
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) return unexpected(last, said, arguments);
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
