// Goal: every task runs exactly once for any number of threads and tasks, also back to back and after sleeping; a recorder sees pieces and waits.
#include "base/threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>

#include "base/sync.h"

namespace lathe::base {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int64_t tasks : {0, 1, 2, 3, 1000}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(tasks));
        pool.for_each(tasks, [&](int64_t task, int worker) {
          ASSERT_LT(worker, threads);
          seen[static_cast<size_t>(task)].fetch_add(1);
        });
        for (auto& count : seen) ASSERT_EQ(count.load(), 1);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // helpers are asleep now
    std::atomic<int> sum{0};
    pool.for_each(100, [&](int64_t, int) { sum.fetch_add(1); });
    EXPECT_EQ(sum.load(), 100);
  }
}

TEST(ThreadPool, RecordsPiecesAndWaits) {
  class Keep final : public Recorder {
   public:
    void span(const Span& span) override {
      const Lock lock(mutex);
      spans[span.worker].push_back(span);
    }
    Mutex mutex{"keep"};
    std::map<int, std::vector<Span>> spans;
  } keep;
  ThreadPool pool(3);
  pool.set_recorder(&keep, "work");
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> inside{0};
    pool.for_each(3, [&](int64_t, int) {  // nobody leaves before all are there: one task for each worker
      inside.fetch_add(1);
      while (inside.load() < 3) std::this_thread::yield();
    });
  }
  pool.set_recorder(nullptr);
  pool.for_each(3, [](int64_t, int) {});
  for (const int worker : {0, 1, 2}) {
    std::string order;
    int64_t end = 0;
    int64_t piece_end = 0;
    for (const Span& span : keep.spans[worker]) {
      order += std::string(span.category) + " " + span.name + ", ";
      EXPECT_LE(span.ready_ns, span.start_ns);
      EXPECT_LE(span.start_ns, span.end_ns);
      EXPECT_LE(end, span.start_ns) << "spans of one worker do not overlap: " << order;
      EXPECT_LE(piece_end, span.ready_ns) << "nothing is ready before the piece before it has ended: " << order;
      end = span.end_ns;
      if (std::string(span.category) == "piece") piece_end = end;
    }
    std::string wanted;
    for (int round = 0; round < kRounds; ++round) {
      if (worker != 0 && round > 0) wanted += "wait idle, ";
      wanted += "piece work, ";
      if (worker == 0) wanted += "wait barrier, ";
    }
    EXPECT_EQ(order, wanted) << "worker " << worker;
  }
}

TEST(ThreadPool, RecordsNoPieceWithoutATask) {
  class Count final : public Recorder {
   public:
    void span(const Span& span) override { (std::string(span.category) == "piece" ? pieces : waits).fetch_add(1); }
    std::atomic<int> pieces{0}, waits{0};
  } count;
  ThreadPool pool(4);
  pool.set_recorder(&count);
  pool.for_each(1, [](int64_t, int) {});
  EXPECT_EQ(count.pieces.load(), 1);
  EXPECT_EQ(count.waits.load(), 0);
  pool.for_each(2, [](int64_t, int) {});
  EXPECT_LE(count.pieces.load(), 3);
  pool.set_recorder(nullptr);
}

TEST(ThreadPool, HelpersAreOfTheCallersRank) {
  ThreadPool pool(3);
  for (const int32_t rank : {4, 0, 7}) {
    std::thread caller([&] {  // a thread of its own: places belong to threads
      this_thread_place().rank = rank;
      std::atomic<int> inside{0};
      pool.for_each(3, [&](int64_t, int worker) {  // one task for each worker
        inside.fetch_add(1);
        while (inside.load() < 3) std::this_thread::yield();
        EXPECT_EQ(this_thread_place().rank, rank) << "worker " << worker;
        EXPECT_EQ(this_thread_place().worker, worker);
      });
    });
    caller.join();
  }
}

}  // namespace
}  // namespace lathe::base
