#pragma once
// The counting twin of a kernel: the same source compiled a second time with LATHE_COUNTED defined. The first build has no trace of counting.
//
// A kernel file defines LATHE_KERNEL(rms_norm)(const void* params, const LaunchContext& context): `rms_norm` in one object, `rms_norm_counted` in the
// other. Everything else in the file stands in an anonymous namespace (two objects must not share a symbol whose body differs).
//
// What is counted, and where: work is counted by the code that does it, once for each time it is done. Bytes of a view count again for every pass that
// fetches them anew; a row or tile that stays in the first-level cache between two passes of one piece of work counts once. See src/ops/README.md for what
// one unit of each counter is.

#include "ops/kernel.h"

#ifdef LATHE_COUNTED
/// LATHE_COUNT(context, kBytesRead, rows * width * 4): adds to context.counters, from any worker.
#define LATHE_COUNT(context, counter, n)                                                                                 \
  do {                                                                                                                   \
    if ((context).counters != nullptr) (context).counters->add(::lathe::ops::Counter::counter, static_cast<int64_t>(n)); \
  } while (false)
#define LATHE_KERNEL(name) name##_counted
#else
#define LATHE_COUNT(context, counter, n)                              \
  do {                                                                \
    static_cast<void>(sizeof(context)), static_cast<void>(sizeof(n)); \
  } while (false)
#define LATHE_KERNEL(name) name
#endif
