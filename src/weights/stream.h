#pragma once
// Writes files of any size in bounded memory: their parts are computed piece by piece, by many threads, when they are due.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/output_file.h"
#include "base/result.h"
#include "base/threads.h"

namespace lathe::weights {

/// A stretch of a file, usually one tensor.
struct StreamPart {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t unit = 8;  ///< pieces begin at multiples of it: a row, a block, an element
};

/// Computes bytes [begin, begin + out.size()) of a part. Called from any worker, several at once; the same bytes whatever the cut into pieces.
using FillPart = base::FunctionRef<Result<void>(size_t part, uint64_t begin, std::span<std::byte> out)>;

struct StreamOptions {
  base::ThreadPool* pool = nullptr;  ///< null: the caller's thread
  uint64_t piece_bytes = 4u << 20;   ///< memory is so much for each thread, more only where a unit is larger
  uint64_t done_before = 0;          ///< added to what `progress` is told
  /// Told after every few pieces how many bytes are done; false ends the work. Null: nobody asks.
  const base::FunctionRef<bool(uint64_t done)>* progress = nullptr;
};

/// Fills all parts. Errors: the first one of `fill`; those of OutputFile::write_at; cancelled (progress said so).
Result<void> stream_parts(const base::OutputFile& file, std::span<const StreamPart> parts, FillPart fill, const StreamOptions& options);

}  // namespace lathe::weights
