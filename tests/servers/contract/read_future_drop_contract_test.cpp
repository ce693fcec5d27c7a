#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::DeviceHandle;
using cox::Future;
using cox::Handle;

namespace {

constexpr std::size_t clients = 4;
constexpr std::size_t most_under_way = 256;  // futures of one client
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t futures_of_each = 2500;
#else
constexpr std::size_t futures_of_each = 25'000;
#endif

using AnyFuture = std::variant<std::monostate, Future<std::vector<Bytes>>, Future<void>>;

/// A client thread that adds one to its buffer again and again, asks for reads and syncs, and drops most of the futures
/// unseen.
template <class Backend>
class CarelessClient {
 public:
  CarelessClient(const typename Backend::Client& client, const Handle& everybodys, std::uint64_t seed)
      : client_(client),
        random_(seed),
        everybodys_(everybodys),
        data_(client_.create(Bytes::zeroed(4096))),
        tensor_(client_.create_tensor(Bytes::zeroed(4 * 31 * 7), {31, 7}, 4)) {}

  /// Asks for that many, most_under_way at a time. Returns what went wrong first; empty if nothing did.
  std::string run(std::size_t futures) {
    for (std::size_t i = 0; i < futures && failure_.empty(); ++i) {
      if (i % most_under_way == 0) client_.sync().get();
      treat(ask_next(), below(8));
    }
    client_.sync().get();
    return failure_;
  }
  /// Asks for that many, and waits for none.
  void ask_for(std::size_t futures) {
    for (std::size_t i = 0; i < futures; ++i) keep(ask_next());
  }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }

  void add_one() {
    launch(client_, Backend::multiply_add(data_, 1, 1));
    ++added_;
  }

  AnyFuture ask_next() {
    if (below(4) == 0) add_one();
    switch (below(4)) {
      case 0: return client_.sync();
      case 1: return client_.read_tensor_async({tensor_.copy_descriptor({31, 7}, 4)});
      case 2: return client_.read_async(std::vector<Handle>{data_, everybodys_});
      default: {
        // Nobody but the read has this buffer.
        const Handle alone = client_.create(Bytes::zeroed(64 + below(4096)));
        return client_.read_async(std::vector<Handle>{alone.offset_start(8)});
      }
    }
  }

  void treat(AnyFuture future, std::size_t how) {
    switch (how) {
      case 0:
      case 1: return;  // dropped at once
      case 2: return half_wait(future);
      case 3:
        if (below(8) == 0) client_.sync().get();  // now it is complete, and dropped
        return;
      case 4: return poll();
      default: keep(std::move(future));
    }
  }
  /// Until a later one has its place.
  void keep(AnyFuture future) { kept_[below(kept_.size())] = std::move(future); }

  static void half_wait(AnyFuture& future) {
    constexpr std::chrono::seconds at_once{0};
    if (auto* read = std::get_if<1>(&future)) (void)read->wait_for(at_once);
    if (auto* met = std::get_if<2>(&future)) (void)met->wait_for(at_once);
  }

  /// The data is right all the while.
  void poll() {
    if (below(16) != 0) return;
    for (const std::uint32_t value : numbers(client_.read_one(data_)))
      if (value != added_) {
        failure_ = "found " + std::to_string(value) + " after adding " + std::to_string(added_) + " times";
        return;
      }
  }

  typename Backend::Client client_;
  std::mt19937_64 random_;
  Handle everybodys_;
  Handle data_;
  cox::MemoryLayout tensor_;
  std::array<AnyFuture, 64> kept_;
  std::uint32_t added_ = 0;
  std::string failure_;
};

/// Careless clients in threads of their own, each on a stream that it keeps.
template <class Backend>
class Crowd {
 public:
  using Client = typename Backend::Client;

  explicit Crowd(const OpenDevice<Backend>& device)
      : device_(DeviceHandle<typename Backend::Server>::get(device.device())), client_(device.on_new_stream()) {
    for (std::size_t t = 0; t < clients; ++t) clients_.push_back(device.on_new_stream());
  }

  /// Queues, events and the like are kept for the most that was ever under way: this is more than ever will be again.
  void have_most_under_way() {
    const Handle everybodys = client_.create(Bytes::zeroed(10'000));
    typename Backend::Gate gate(client_);
    launch(client_, gate.hold(everybodys));
    auto asked = std::make_shared<std::latch>(1);
    device_.submit([asked](typename Backend::Server&) { asked->wait(); });
    at_once(everybodys, [](auto& client, std::size_t) { client.ask_for(2 * most_under_way); });
    asked->count_down();
    device_.submit_blocking([](typename Backend::Server&) {});
    gate.open();
    client_.sync().get();
  }
  void run(std::size_t futures) {
    const Handle everybodys = client_.create(Bytes::zeroed(10'000));
    std::array<std::string, clients> failures;
    at_once(everybodys, [&](auto& client, std::size_t number) { failures[number] = client.run(futures); });
    for (const std::string& failure : failures) REQUIRE(failure == "");
    client_.sync().get();
  }

 private:
  template <class What>
  void at_once(const Handle& everybodys, const What& what) {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < clients; ++t)
      threads.emplace_back([&, t] {
        CarelessClient<Backend> client(clients_[t], everybodys, t);
        what(client, t);
      });
    for (std::thread& thread : threads) thread.join();
  }

  DeviceHandle<typename Backend::Server> device_;
  Client client_;
  std::vector<Client> clients_;
};

}  // namespace

TEMPLATE_TEST_CASE("L11: a hundred thousand futures dropped at any moment under load leave no memory behind", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.threads = 4});
  Crowd<TestType> crowd(device);
  const auto blocks_left = [&] {
    REQUIRE(device.client().memory_usage().number_allocs == 0);
    REQUIRE(device.client().memory_usage().bytes_in_use == 0);
    return live_blocks();
  };
  crowd.have_most_under_way();
  crowd.run(futures_of_each / 10);  // what was under way is let go of
  // What is kept for the most that was under way grows once, when threads are held up longer than ever before; memory
  // that futures leave behind grows in each run.
  long grown = 0;
  for (int run = 0; run < 3; ++run) {
    const long blocks = blocks_left();
    crowd.run(futures_of_each);
    grown = blocks_left() - blocks;
    if (grown < 500) break;
  }
  REQUIRE(grown < 500);
}

TEMPLATE_TEST_CASE("L11: futures and buffers dropped before their stream comes to them disturb none that are kept", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  auto& client = device.client();
  const auto other = device.on_new_stream();
  typename TestType::Gate gate(client);
  launch(client, gate.hold());
  gate.wait_until_entered();
  const long blocks = live_blocks();
  std::vector<Future<std::vector<Bytes>>> kept;
  bool too_early = false;
  for (std::uint32_t i = 0; i < 100; ++i) {
    const Handle data = upload(client, std::vector<std::uint32_t>(100, i));
    auto read = client.read_async(std::vector<Handle>{data});
    auto met = client.sync();
    too_early = too_early || read.wait_for(std::chrono::seconds(0)) || met.wait_for(std::chrono::seconds(0));
    if (i % 4 == 0) kept.push_back(std::move(read));
    // Others have to find memory elsewhere.
    other.write(other.empty(400), Bytes::zeroed(400));
  }
  const long blocks_waiting = live_blocks();
  gate.open();
  REQUIRE_FALSE(too_early);
  REQUIRE(blocks_waiting > blocks);
  for (std::uint32_t i = 0; i < kept.size(); ++i)
    REQUIRE(numbers(kept[i].get()[0]) == std::vector<std::uint32_t>(100, 4 * i));
  client.sync().get();
  REQUIRE(client.memory_usage().number_allocs == 0);
}
