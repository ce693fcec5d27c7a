#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/tools/cox/bench/bench_case.hpp>
#include <coxswain/tools/cox/bench/empty_kernel.hpp>
#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/stress/stopwatch.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cox::bench {

constexpr std::size_t small_transfer = std::size_t{4} << 10U;   // bytes
constexpr std::size_t large_transfer = std::size_t{64} << 20U;  // bytes

/// Microseconds that `call()` takes.
template <class Call>
double microseconds_of(Call&& call) {
  const stress::Stopwatch watch;
  call();
  return static_cast<double>(watch.elapsed()) / 1e3;
}

/// Microseconds of client-thread time per call, in a burst of calls. `settle()` runs after the burst and is not
/// measured.
template <class Call, class Settle>
double microseconds_of_each(Call&& call, Settle&& settle) {
  constexpr int burst = 128;  // the driver queues some 1,000 launches before it blocks
  const double all = microseconds_of([&] {
    for (int i = 0; i < burst; ++i) call();
  });
  settle();
  return all / burst;
}

/// Cases that measure the cost and latency of the calls of one device's client. Run them one after another on one
/// thread.
template <class Client>
[[nodiscard]] std::vector<BenchCase> device_cases(const Client& client) {
  using Kernel = typename Client::Kernel;
  const std::string where = tools::device_name(client.device_id());
  const Kernel kernel = empty_kernel<Kernel>();
  const auto finish = [client] { client.sync().get(); };
  const auto meet = [device = client.device_handle()] { device.submit_blocking([](auto&) {}); };
  std::vector<BenchCase> cases;
  cases.push_back({where, "submit", [device = client.device_handle(), meet] {
                     return microseconds_of_each([&] { device.submit([](auto&) {}); }, meet);
                   }});
  cases.push_back({where, "submit_blocking", [meet] { return microseconds_of(meet); }});
  cases.push_back({where, "empty and drop, 1 MiB", [client, finish] {
                     return microseconds_of_each([&] { static_cast<void>(client.empty(std::size_t{1} << 20U)); },
                                                 finish);
                   }});
  cases.push_back({where, "launch", [client, kernel, finish] {
                     return microseconds_of_each([&] { client.launch(kernel, CubeCount::single(), {}); }, finish);
                   }});
  cases.push_back({where, "launch and sync", [client, kernel, finish] {
                     return microseconds_of([&] {
                       client.launch(kernel, CubeCount::single(), {});
                       finish();
                     });
                   }});
  cases.push_back({where, "read of 4 B", [client, word = client.create(Bytes::zeroed(4))] {
                     return microseconds_of([&] { static_cast<void>(client.read_one(word)); });
                   }});
  const Handle large = client.empty(large_transfer);
  const auto content = std::make_shared<const Bytes>(Bytes::copy_of(std::vector(large_transfer, std::byte{1})));
  cases.push_back({where, "upload of 64 MiB, pageable",
                   [client, large, finish, content] {
                     return microseconds_of([&] {
                       client.write(large, content->share());
                       finish();
                     });
                   },
                   large_transfer});
  cases.push_back({where, "upload of 64 MiB, staging",
                   [client, large, finish] {
                     Bytes given = std::move(client.reserve_staging(std::array{large_transfer}).front());
                     return microseconds_of([&] {
                       client.write(large, std::move(given));
                       finish();
                     });
                   },
                   large_transfer});
  cases.push_back({where, "download of 64 MiB",
                   [client, large] { return microseconds_of([&] { static_cast<void>(client.read_one(large)); }); },
                   large_transfer});
  return cases;
}

}  // namespace cox::bench
