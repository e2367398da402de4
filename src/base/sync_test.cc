// Goal: a mutex with a recorder reports the acquisitions that had to wait and no others, a condition variable its waits; without one they report nothing.
#include "base/sync.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lathe::base {
namespace {

class Keep final : public Recorder {
 public:
  void span(const Span& span) override {
    const Lock lock(mutex_);
    spans_.push_back(span);
  }
  std::vector<Span> take() {
    const Lock lock(mutex_);
    return std::exchange(spans_, {});
  }

 private:
  Mutex mutex_{"keep"};
  std::vector<Span> spans_;
};

/// Another thread asks for the mutex while this one holds it.
void contend(Mutex& mutex) {
  std::atomic<bool> asking{false};
  mutex.lock();
  std::thread other([&] {
    this_thread_place() = {.rank = 2, .worker = 5};
    asking = true;
    const Lock lock(mutex);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!asking) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  mutex.unlock();
  other.join();
}

TEST(Mutex, RecordsAcquisitionsThatWaited) {
  Keep keep;
  Mutex mutex("site");
  contend(mutex);
  EXPECT_TRUE(keep.take().empty()) << "no recorder";
  mutex.set_recorder(&keep);
  for (int i = 0; i < 3; ++i) {
    const Lock lock(mutex);
  }
  ASSERT_TRUE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(keep.take().empty()) << "found free";
  std::vector<Span> spans;
  for (int attempt = 0; attempt < 100 && spans.empty(); ++attempt) {  // on a busy machine the other thread may come late
    contend(mutex);
    spans = keep.take();
  }
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_STREQ(spans[0].category, "lock");
  EXPECT_STREQ(spans[0].name, "site");
  EXPECT_EQ(spans[0].rank, 2);
  EXPECT_EQ(spans[0].worker, 5);
  EXPECT_LT(spans[0].ready_ns, spans[0].start_ns);
  EXPECT_GE(spans[0].end_ns - spans[0].start_ns, 1'000'000) << "it was held for a millisecond";
  {
    const Lock lock(mutex);
  }
  EXPECT_TRUE(keep.take().empty()) << "the wait before is reported once";
  mutex.set_recorder(nullptr);
  contend(mutex);
  EXPECT_TRUE(keep.take().empty()) << "off is off";
}

TEST(CondVar, RecordsWaits) {
  Keep keep;
  Mutex mutex("queue");
  mutex.set_recorder(&keep);
  CondVar changed;
  std::atomic<bool> asked{false};
  bool ready = false;
  std::thread consumer([&] {
    Lock lock(mutex);
    changed.wait(lock, [&] {
      asked = true;
      return ready;
    });
    changed.wait(lock, [&] { return ready; });  // true at once: no wait
  });
  while (!asked) std::this_thread::yield();
  const int64_t before = now_ns();
  {
    const Lock lock(mutex);  // free only once the consumer waits
    ready = true;
  }
  changed.notify_all();
  consumer.join();
  int waits = 0;
  for (const Span& span : keep.take()) {
    if (std::string(span.category) != "wait") continue;  // both may also have met at the mutex
    ++waits;
    EXPECT_STREQ(span.name, "queue");
    EXPECT_LE(span.ready_ns, span.start_ns);
    EXPECT_LE(span.start_ns, span.end_ns);
    EXPECT_GE(span.end_ns, before);
  }
  EXPECT_EQ(waits, 1);
}

}  // namespace
}  // namespace lathe::base
