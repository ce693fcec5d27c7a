// Reads of a few bytes over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/detail/cuda_poller.hpp>
#include <coxswain/servers/cuda/detail/cuda_try.hpp>
#include <coxswain/servers/cuda/detail/small_read.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

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
    Bytes to = std::move(client.reserve_staging(std::vector<std::size_t>{8}).front());
    auto* const stream = static_cast<CUstream>(source_.resource.stream);
    read = std::make_shared<SmallRead>(to.span());
    read->begin(source_.resource.address, stream);
    COX_CUDA_TRY(stream_wait_value(stream, events_->counter(), 1, CU_STREAM_WAIT_VALUE_GEQ));
    event = events_->record(stream);
    read->ends_at(event, std::move(to));
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
};

}  // namespace

TEST_CASE("A small read is there when its words are, before the event behind it") {
  FakeGpus gpus;
  {
    const CudaClient client = gpus.client();
    const HeldRead held(client, {7, 8});
    CHECK_FALSE(held.event->found_reached());
    while (!held.read->reached()) std::this_thread::yield();  // wait() would look at the event alone after a while
    held.read->wait();
    CHECK(held.content() == std::vector<std::uint32_t>{7, 8});
    CHECK(held.event->found_reached());  // all before it is over
  }
  CHECK(gpus.left_over().empty());
}

TEST_CASE("A small read of what stood there before is there when its event is") {
  FakeGpus gpus;
  {
    const CudaClient client = gpus.client();
    HeldRead held(client, {7, SmallRead::unlikely});
    CHECK_FALSE(held.read->wait_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(5)));
    CHECK_FALSE(held.read->reached());
    std::atomic<bool> told{false};
    held.read->notify([&] { told = true; });
    CHECK_FALSE(told);
    held.release();
    held.read->wait();
    CHECK(held.content() == std::vector<std::uint32_t>{7, SmallRead::unlikely});
    while (!told) std::this_thread::yield();
  }
  CHECK(gpus.left_over().empty());
}

TEST_CASE("What a read writes to is nobody else's while it is under way, also when it has failed") {
  for (const std::size_t words : {1U, 1000U}) {
    for (int calls = 0;; ++calls) {
      FakeGpus gpus;
      INFO("call " << calls << " of a read of " << words << " words");
      std::optional<CudaClient> client = gpus.client();
      const Handle memory = client->create(Bytes::copy_of(std::vector<std::uint32_t>(words, 5)));
      client->sync().get();
      gpus.hold(*client, memory);
      gpus.pass(0);
      gpus.fail_after(calls);
      auto read = client->read_async({memory});
      gpus.pass(0);
      const char* const failed = gpus.stop_failing();
      std::vector<Bytes> others;
      for (int i = 0; i < 4; ++i) {
        others.push_back(std::move(client->reserve_staging(std::vector<std::size_t>{words * 4}).front()));
        for (std::uint32_t& word : others.back().as<std::uint32_t>()) word = 9;
      }
      gpus.release();
      Attempts attempt;
      bool right = true;
      attempt([&] { right = read.get().front().to_vector<std::uint32_t>() == std::vector<std::uint32_t>(words, 5); });
      REQUIRE(right);
      attempt([&] { client->sync().get(); });
      client->sync().get();
      for (const Bytes& other : others)
        REQUIRE(other.to_vector<std::uint32_t>() == std::vector<std::uint32_t>(words, 9));
      others.clear();
      client.reset();
      REQUIRE(gpus.left_over().empty());
      if (failed == nullptr) {
        CHECK_FALSE(attempt.failed());
        break;
      }
    }
  }
}
