#include <coxswain/perf/world/release_latency.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/collectives/world/world.hpp>
#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>
#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <semaphore>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace cox::perf {
namespace {

constexpr std::size_t warm_up = 200;
constexpr std::uint16_t device_type = 0;

// Counts released operations. Outlives them.
struct Released {
  std::counting_semaphore<> count{0};
  std::exception_ptr refusal;
};

class CountingLaunch final : public CollectiveLaunch {
 public:
  explicit CountingLaunch(Released& released) : released_(released) {}
  void take_grant(LaunchGrant&& grant) override {
    if (grant.refusal) released_.refusal = grant.refusal;
    released_.count.release();
  }
  void cancel(const std::exception_ptr&) noexcept override {}

 private:
  Released& released_;
};

// A socket of a connection over loopback.
class Peer {
 public:
  explicit Peer(int descriptor) : socket_(descriptor) {
    const int on = 1;
    static_cast<void>(::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  }
  void send() { check(::send(socket_.get(), bytes_.data(), bytes_.size(), MSG_NOSIGNAL)); }
  void receive() { check(::recv(socket_.get(), bytes_.data(), bytes_.size(), MSG_WAITALL)); }

 private:
  void check(ssize_t moved) const {
    if (moved != static_cast<ssize_t>(bytes_.size()))
      throw std::runtime_error("the connection over loopback has failed");
  }
  FileDescriptor socket_;
  std::array<std::byte, 64> bytes_{};
};

std::pair<Peer, Peer> connect_over_loopback() {
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);  // NOLINT: as the calls want it
  if (::bind(listener.get(), generic, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), generic, &size) != 0)
    throw std::runtime_error("cannot listen on loopback");
  FileDescriptor near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(near.get(), generic, size) != 0) throw std::runtime_error("cannot connect over loopback");
  const int far = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
  if (far < 0) throw std::runtime_error("cannot accept over loopback");
  return {Peer(near.release()), Peer(far)};
}

// A process of the world with one device and no server: only the order is measured.
class OrderedProcess {
 public:
  explicit OrderedProcess(PlaceOfSample place)
      : place_(place),
        world_(World::join({{.type = device_type, .index = 0}})),
        sequencer_(Communicators::of_process().sequencer()),
        all_(sequencer_.open(CommunicationId(world_.devices(device_type)), std::chrono::minutes(1))) {}

  void submit() {
    sequencer_.submit(all_, place_.process, {.requests = {CollectiveRequest{.count = 1}}, .launch = launch_});
  }
  /// Until the next operation is released; it ends at once.
  void wait() {
    released_.count.acquire();
    if (released_.refusal) std::rethrow_exception(released_.refusal);
    sequencer_.note_completed(all_, place_.process, ++completed_);
  }
  void leave() { world_.leave(); }

 private:
  const PlaceOfSample place_;
  Released released_;
  std::shared_ptr<CountingLaunch> launch_ = std::make_shared<CountingLaunch>(released_);
  World world_;
  Sequencer& sequencer_;
  CommunicatorNumber all_;
  std::uint64_t completed_ = 0;
};

}  // namespace

Sample release_one_at_a_time(PlaceOfSample place, std::size_t times) {
  OrderedProcess process(place);
  const auto once = [&] {
    process.submit();
    process.wait();
  };
  for (std::size_t i = 0; i < warm_up; ++i) once();
  std::vector<double> taken = microseconds_of_each(times, once);
  process.leave();
  return {quantile(taken, 0.5), quantile(taken, 0.99)};
}

Sample release_in_a_stream(PlaceOfSample place, std::size_t operations, std::size_t times) {
  OrderedProcess process(place);
  const auto once = [&] {
    for (std::size_t i = 0; i < operations; ++i) process.submit();
    for (std::size_t i = 0; i < operations; ++i) process.wait();
  };
  once();
  const Stopwatch watch;
  for (std::size_t i = 0; i < times; ++i) once();
  const double taken = watch.microseconds() / static_cast<double>(times * operations);
  process.leave();
  return {taken};
}

Sample round_trip_of_bytes(std::size_t times) {
  auto [near, far] = connect_over_loopback();
  std::thread echo([&far = far, count = times + warm_up] {
    for (std::size_t i = 0; i < count; ++i) {
      far.receive();
      far.send();
    }
  });
  const auto once = [&near = near] {
    near.send();
    near.receive();
  };
  for (std::size_t i = 0; i < warm_up; ++i) once();
  std::vector<double> taken = microseconds_of_each(times, once);
  echo.join();
  return {quantile(taken, 0.5), quantile(taken, 0.99)};
}

}  // namespace cox::perf
