#include "observe/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace lathe::observe {
namespace {

spdlog::level::level_enum to_spdlog(base::LogLevel level) {
  switch (level) {
    case base::LogLevel::kDebug: return spdlog::level::debug;
    case base::LogLevel::kInfo: return spdlog::level::info;
    case base::LogLevel::kWarning: return spdlog::level::warn;
    case base::LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

class Logging::Sink : public base::LogSink {
 public:
  explicit Sink(const LogOptions& options) : json_(options.json), logger_("lathe", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {
    logger_.set_level(to_spdlog(options.level));
    logger_.set_pattern(options.json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%v"})" : "%^%l%$: %v");
  }
  void write(base::LogLevel level, std::string_view message) override {
    logger_.log(to_spdlog(level), "{}", json_ ? escape(message) : std::string(message));
  }

 private:
  bool json_;
  spdlog::logger logger_;
};

Logging::Logging(const LogOptions& options) : sink_(std::make_unique<Sink>(options)) { base::set_log_sink(sink_.get()); }
Logging::~Logging() { base::set_log_sink(nullptr); }

}  // namespace lathe::observe
