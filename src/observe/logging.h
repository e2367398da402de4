#pragma once
// The log sink of programs: text for people, JSON lines for machines, on stderr.

#include <memory>

#include "base/log.h"

namespace lathe::observe {

struct LogOptions {
  base::LogLevel level = base::LogLevel::kWarning;
  bool json = false;  ///< one JSON object a line
};

/// Installs the sink for the life of the returned object.
class Logging {
 public:
  explicit Logging(const LogOptions& options);
  ~Logging();
  Logging(const Logging&) = delete;
  Logging& operator=(const Logging&) = delete;

 private:
  class Sink;
  std::unique_ptr<Sink> sink_;
};

}  // namespace lathe::observe
