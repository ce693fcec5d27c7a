#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/communication/collective_calls.hpp>
#include <coxswain/runtime/communication/pending_collectives.hpp>

#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <string_view>
#include <thread>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;

namespace {

Handle memory_on(DeviceId device) {
  return {ManagedMemoryHandle(ManagedMemory::create({.device = device, .generation = 1}, 64)), StreamId::current()};
}

/// Which threads have submitted the halves of transfers. The first half gives other threads time to come next.
class Halves {
 public:
  void note() {
    std::unique_lock lock(mutex_);
    threads_.push_back(std::this_thread::get_id());
    changed_.notify_all();
    if (threads_.size() == 1) changed_.wait_for(lock, 200ms, [this] { return threads_.size() > 1; });
  }
  [[nodiscard]] const std::vector<std::thread::id>& threads() const noexcept { return threads_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread::id> threads_;
};

class Group {
 public:
  [[nodiscard]] std::mutex& pairing() noexcept { return pairing_; }
  void abort(const std::exception_ptr& /*cause*/) noexcept {}

 private:
  std::mutex pairing_;
};

struct Server {
  static constexpr bool communication_enabled = true;
  static std::shared_ptr<Group> communicator(const CommunicationId& /*devices*/) {
    static const auto group = std::make_shared<Group>();
    return group;
  }
  void communicate(const std::shared_ptr<Group>& group, const CollectiveCallList& calls, const Caller& caller,
                   SubmitMode when);  // nothing that is submitted here runs
};

/// A client that notes what it is asked to submit.
class Client : public CollectiveCalls<Server, Client> {
 public:
  Client(DeviceId device, Halves& halves) : device_(device), halves_(&halves) {}

  static constexpr bool is_blocking() noexcept { return false; }
  [[nodiscard]] DeviceId device_id() const noexcept { return device_; }
  [[nodiscard]] static StreamId stream_id() { return StreamId::current(); }
  [[nodiscard]] PendingCollectives::Call pending_collective() const {
    return PendingCollectives::Call(PendingCollectives::for_device(device_));
  }
  [[nodiscard]] Handle empty(std::size_t /*bytes*/, std::source_location /*site*/) const { return memory_on(device_); }
  [[nodiscard]] static int read_one(const Handle& /*source*/, std::source_location /*site*/) { return 0; }
  [[nodiscard]] Handle create(int /*data*/, std::source_location /*site*/) const { return memory_on(device_); }
  template <class F>
  void submit(std::source_location /*site*/, std::string_view name, const F& /*f*/) const {
    if (name == "collective") halves_->note();
  }

 private:
  DeviceId device_;
  Halves* halves_;
};

}  // namespace

TEST_CASE("No other thread's halves come between the two of a to_client") {
  Halves halves;
  const Client here({0, 0}, halves);
  const Client there({0, 1}, halves);
  std::barrier begin(2);
  const auto send = [&] {
    const Handle source = memory_on(here.device_id());
    begin.arrive_and_wait();
    static_cast<void>(here.to_client(source, there, ElementType::I32));
  };
  {
    const std::jthread other(send);
    send();
  }
  const auto& threads = halves.threads();
  REQUIRE(threads.size() == 4);
  CHECK(threads[0] == threads[1]);
  CHECK(threads[2] == threads[3]);
}
