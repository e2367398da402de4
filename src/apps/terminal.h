#pragma once
// What programs show to people: progress on stderr, dimmed text, Ctrl-C as a request. Quiet where nobody looks.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lathe::apps {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
/// Colours on stdout: a terminal and no NO_COLOR.
bool stdout_has_colour();

struct ProgressOptions {
  bool quiet = false;
};

/// A line on stderr that is redrawn: "reading prompt  1024/65536  12 s left". Nothing if stderr is no terminal or `quiet`.
class Progress {
 public:
  Progress(std::string what, int64_t total, ProgressOptions options);
  ~Progress();
  void update(int64_t done);
  /// Removes the line.
  void finish();

 private:
  std::string what_;
  int64_t total_;
  bool shown_ = false;
  bool enabled_;
  int64_t begin_ns_;
  int64_t last_ns_ = 0;
};

/// Progress lines of stages that follow each other.
class Stages {
 public:
  explicit Stages(ProgressOptions options) : options_(options) {}
  void show(const std::string& what, int64_t done, int64_t total);
  void finish() { progress_.reset(); }

 private:
  ProgressOptions options_;
  std::string what_;
  std::unique_ptr<Progress> progress_;
};

/// While alive, SIGINT only sets a flag.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();
  static void clear();
};

/// Waits until stdin has something to read, or has ended. False: SIGINT came, also one that came before the call. Needs an InterruptGuard.
bool wait_for_input();

/// Writes to stdout at once. What it could not write is told by stdout_status().
void print(std::string_view text);
/// Whether all that was printed was written. Error: unavailable.
Result<void> stdout_status();

}  // namespace lathe::apps
