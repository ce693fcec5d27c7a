// Reads of a few bytes over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/copy/small_read.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/event/cuda_poller.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using cox::detail::CudaEvent;
using cox::detail::SmallRead;

namespace {

/// A read of two words, and something behind it on the stream, before its event, that lasts as long as it is told.
class HeldRead {
 public:
  HeldRead(const CudaClient& client, const std::vector<std::uint32_t>& content)
      : context_(detail::CudaContext::find(0)),
        current_(*context_),
        memory_(client.create(Bytes::copy_of(content))),
        source_(client.get_resource(memory_)) {
    client.sync().get();
    auto* const stream = static_cast<CUstream>(source_.resource.stream);
    read = std::make_shared<SmallRead>(slots_.acquire([&] {
      return std::move(client.reserve_staging(std::vector<std::size_t>{SmallRead::max_size}).front());
    }),
                                       8);
    read->begin(source_.resource.address, stream);
    COX_CUDA_TRY(stream_wait_value(stream, events_->counter(), 1, CU_STREAM_WAIT_VALUE_GEQ));
    event = events_->record(stream);
    read->set_end_event(event);
  }
  HeldRead(const HeldRead&) = delete;
  HeldRead& operator=(const HeldRead&) = delete;
  ~HeldRead() {
    release();
    COX_CUDA_CHECK(stream_synchronize(static_cast<CUstream>(source_.resource.stream)));
    poller_->stop();
  }

  /// The event comes.
  void release() { reinterpret_cast<std::atomic<std::uint32_t>*>(events_->counter())->store(1); }
  [[nodiscard]] std::vector<std::uint32_t> content() const {
    std::vector<std::uint32_t> words(2);
    read->copy_to(std::as_writable_bytes(std::span(words)));
    return words;
  }

  std::shared_ptr<SmallRead> read;
  std::shared_ptr<CudaEvent> event;

 private:
  std::shared_ptr<detail::CudaContext> context_;
  detail::CurrentContext current_;
  std::shared_ptr<detail::CudaPoller> poller_ = std::make_shared<detail::CudaPoller>("test-poll");
  std::shared_ptr<detail::CudaEvents> events_ =
      std::make_shared<detail::CudaEvents>(context_, poller_, detail::CudaEvents::Timing::Off);
  Handle memory_;
  ManagedResource<CudaResource> source_;
  detail::SmallReadSlots slots_;
};

}  // namespace

TEST_CASE("A small read is there when its words are, before the event behind it") {
  FakeGpus gpus;
  {
    const CudaClient client = gpus.client();
    const HeldRead held(client, {7, 8});
    CHECK_FALSE(held.event->known_reached());
    while (!held.read->reached()) std::this_thread::yield();  // wait() would look at the event alone after a while
    held.read->wait();
    CHECK(held.content() == std::vector<std::uint32_t>{7, 8});
    CHECK(held.event->known_reached());  // all before it is over
  }
  CHECK(gpus.undestroyed_objects().empty());
}

TEST_CASE("A small read of what stood there before is there when its event is") {
  FakeGpus gpus;
  {
    const CudaClient client = gpus.client();
    HeldRead held(client, {7, SmallRead::sentinel});
    CHECK_FALSE(held.read->wait_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(5)));
    CHECK_FALSE(held.read->reached());
    std::atomic<bool> told{false};
    held.read->notify([&] { told = true; });
    CHECK_FALSE(told);
    held.release();
    held.read->wait();
    CHECK(held.content() == std::vector<std::uint32_t>{7, SmallRead::sentinel});
    while (!told) std::this_thread::yield();
  }
  CHECK(gpus.undestroyed_objects().empty());
}

namespace {

/// A read of so many words of 5, under way behind what lasts, while others take memory of its kind and write to it.
class ReadAmongOthers {
 public:
  explicit ReadAmongOthers(std::size_t words)
      : words_(words), memory_(client->create(Bytes::copy_of(std::vector<std::uint32_t>(words, 5)))) {
    client->sync().get();
    gpus.hold(*client, memory_);
    gpus.pass(0);
  }

  [[nodiscard]] Future<std::vector<Bytes>> begin() const { return client->read_async({memory_}); }
  /// The read, if there is one, is right or fails, and what the others have is left alone.
  void end(std::optional<Future<std::vector<Bytes>>> read, Attempts& attempt) {
    for (int i = 0; i < 4; ++i) {
      others_.push_back(std::move(client->reserve_staging(std::vector<std::size_t>{words_ * 4}).front()));
      for (std::uint32_t& word : others_.back().as<std::uint32_t>()) word = 9;
    }
    gpus.release();
    bool right = true;
    if (read)
      attempt([&] { right = read->get().front().to_vector<std::uint32_t>() == std::vector<std::uint32_t>(words_, 5); });
    REQUIRE(right);
    attempt([&] { client->sync().get(); });
    client->sync().get();
    for (const Bytes& other : others_)
      REQUIRE(other.to_vector<std::uint32_t>() == std::vector<std::uint32_t>(words_, 9));
    others_.clear();
    memory_ = {};
    client.reset();
    REQUIRE(gpus.undestroyed_objects() == "");
  }

  FakeGpus gpus;
  std::optional<CudaClient> client = gpus.client();

 private:
  std::size_t words_;
  Handle memory_;
  std::vector<Bytes> others_;
};

}  // namespace

TEST_CASE("What a read writes to is nobody else's while it is under way, also when it has failed") {
  for (const std::size_t words : {1U, 1000U}) {
    for (int calls = 0;; ++calls) {
      INFO("call " << calls << " of a read of " << words << " words");
      ReadAmongOthers among(words);
      among.gpus.fail_after(calls);
      auto read = among.begin();
      among.gpus.pass(0);
      const char* const failed = among.gpus.stop_failing();
      Attempts attempt;
      among.end(std::move(read), attempt);
      if (failed == nullptr) {
        CHECK_FALSE(attempt.failed());
        break;
      }
    }
  }
}

TEST_CASE("What a read writes to is nobody else's while it is under way, also without memory for the rest of it") {
  for (const std::size_t words : {1U, 1000U}) {
    for (int allocations = 0;; ++allocations) {
      INFO("allocation " << allocations << " of a read of " << words << " words");
      ReadAmongOthers among(words);
      std::optional<Future<std::vector<Bytes>>> read;
      Attempts attempt;
      bool failed = false;
      DeviceHandle<CudaServer>::get(FakeGpus::device(0))
          .exclusive([&] {  // so that the device thread's allocations fail
            allocations_until_failure = allocations;
            attempt([&] { read = among.begin(); });
            failed = allocations_until_failure < 0;
            allocations_until_failure = -1;
          });
      among.end(std::move(read), attempt);
      if (!failed) {
        CHECK_FALSE(attempt.failed());
        break;
      }
    }
  }
}
