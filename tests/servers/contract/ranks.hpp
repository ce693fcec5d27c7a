#pragma once

// What the tests of communicators do with their ranks. A bound on a wait is there only so that a failure is a failure.

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <numeric>
#include <source_location>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace cox::test {

using Clock = std::chrono::steady_clock;
using Numbers = std::vector<std::int32_t>;
using Kind = CollectiveError::Kind;

/// `count` numbers that differ by rank and place.
inline Numbers numbers_of(std::size_t rank, std::size_t count) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), static_cast<std::int32_t>(1000 * rank));
  return numbers;
}
/// The sum of those of so many ranks.
inline Numbers sum_of(std::size_t ranks, std::size_t count) {
  Numbers sum(count);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < count; ++i) sum[i] += static_cast<std::int32_t>(1000 * rank + i);
  return sum;
}

/// The numbers of one part of several that have that size.
inline Numbers part_of(const Numbers& all, std::size_t part, std::size_t size) {
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(part * size);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

/// Sets collectives.timeout for the communicators that the test opens.
class CollectiveTimeout {
 public:
  explicit CollectiveTimeout(std::chrono::nanoseconds timeout) { set_settings({{"collectives.timeout", timeout}}); }
  CollectiveTimeout(const CollectiveTimeout&) = delete;
  CollectiveTimeout& operator=(const CollectiveTimeout&) = delete;
  ~CollectiveTimeout() { reset_settings({"collectives.timeout"}); }
};

template <class T>
T get_soon(Future<T> future) {
  if (!future.wait_for(std::chrono::seconds(60))) throw std::runtime_error("a stream hangs");
  return future.get();
}
template <class T = std::int32_t, class Client>
std::vector<T> read_soon(const Client& client, const Handle& handle) {
  return get_soon(client.read_async(std::vector<Handle>{handle}))[0].template to_vector<T>();
}
/// As that, of memory that a failed operation has left as it was (L14).
template <class T = std::int32_t, class Client>
std::vector<T> read_accepted(const Client& client, const Handle& handle) {
  client.accept(handle);
  return read_soon<T>(client, handle);
}
/// Until the device has nothing to do any more for this stream and in collectives. Throws what became of it.
template <class Client>
void settle(const Client& client) {
  client.sync_collective();
  get_soon(client.sync());
}
/// Until the device thread has taken up all that this thread has queued.
template <class Client>
void reach(const Client& client) {
  client.device_handle().submit_blocking([](auto&) {});
}
/// Until `condition()` holds. For what nothing can wait for.
template <class Condition>
void wait_until(Condition&& condition) {
  for (const auto begin = Clock::now(); !condition(); std::this_thread::yield())
    if (Clock::now() - begin > std::chrono::seconds(60)) throw std::runtime_error("it does not happen");
}

/// f(0), f(1), ... each on a thread of its own; throws what the first of them threw.
template <class F>
void in_parallel(std::size_t threads, F f) {
  std::vector<std::future<void>> ended;
  for (std::size_t i = 0; i < threads; ++i) ended.push_back(std::async(std::launch::async, [&f, i] { f(i); }));
  for (std::future<void>& end : ended) end.wait();
  for (std::future<void>& end : ended) end.get();
}

/// What one failed collective left with the stream that asked for it.
struct Failure {
  Kind kind;
  std::string what;
  std::source_location site;
  std::exception_ptr cause;
};

/// The collectives that failed on this stream until all that the device was asked for has ended. Throws what else did.
template <class Client>
std::vector<Failure> failures_of(const Client& client) {
  std::vector<Failure> failures;
  try {
    settle(client);
  } catch (const ServerError& unhealthy) {
    for (const std::exception_ptr& error : unhealthy.errors()) {
      try {
        std::rethrow_exception(error);
      } catch (const CollectiveError& failure) {
        failures.push_back({failure.kind(), failure.what(), failure.site(), failure.cause()});
      }
    }
  }
  return failures;
}
inline std::vector<Kind> kinds_of(const std::vector<Failure>& failures) {
  std::vector<Kind> kinds;
  for (const Failure& failure : failures) kinds.push_back(failure.kind);
  return kinds;
}

/// The entries of all flight recorders, communicators in the order of their devices.
inline std::vector<nlohmann::json> recorded_operations() {
  std::vector<nlohmann::json> entries;
  for (const nlohmann::json& recorder : nlohmann::json::parse(dump_flight_recorders()))
    for (const nlohmann::json& entry : recorder.at("entries")) entries.push_back(entry);
  return entries;
}

/// One rank's part in a sum over all of them, and whether it came out right.
struct Sum {
  template <class Client>
  Sum(const Client& client, const CommunicationId& devices, std::size_t count,
      std::source_location site = std::source_location::current())
      : ranks(devices.world_size()),
        elements(count),
        source(client.create(Bytes::copy_of(numbers_of(devices.rank_of(client.device_id()), count)))),
        result(client.empty(source.size())) {
    client.all_reduce(source, result, ElementType::I32, devices, ReduceOperation::Sum, site);
  }
  template <class Client>
  [[nodiscard]] bool right(const Client& client) const {
    return read_soon(client, result) == sum_of(ranks, elements);
  }

  std::size_t ranks;
  std::size_t elements;
  Handle source;
  Handle result;
};

}  // namespace cox::test
