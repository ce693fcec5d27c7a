#pragma once

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>
#include <coxswain/tools/cox/bench/bench_case.hpp>
#include <coxswain/tools/cox/bench/device_cases.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace cox::bench {

/// Cases that measure several devices together: transfers from the first device to the second, and all_reduce over all.
/// Each sample is one operation and waits for its completion. Precondition: at least two clients.
template <class Client>
[[nodiscard]] std::vector<BenchCase> group_cases(const std::vector<Client>& clients) {
  std::vector<DeviceId> devices;
  std::string all;
  for (const Client& client : clients) {
    devices.push_back(client.device_id());
    all += (all.empty() ? "" : " ") + tools::device_name(client.device_id());
  }
  const std::string pair = tools::device_name(devices[0]) + " > " + tools::device_name(devices[1]);
  std::vector<BenchCase> cases;
  for (const auto& [bytes, name] :
       {std::pair{small_transfer, "transfer of 4 KiB"}, {large_transfer, "transfer of 64 MiB"}}) {
    cases.push_back({pair, name,
                     [from = clients[0], to = clients[1], source = clients[0].empty(bytes)] {
                       return microseconds_of([&] {
                         const Handle received = from.to_client(source, to, ElementType::U8);
                         to.sync_collective();
                         to.sync().get();
                       });
                     },
                     bytes});
  }
  const auto ranks = static_cast<double>(clients.size());
  for (const auto& [bytes, name] : {std::pair{std::size_t{8}, "all_reduce of 8 B"},
                                    {std::size_t{1} << 20U, "all_reduce of 1 MiB"},
                                    {large_transfer, "all_reduce of 64 MiB"}}) {
    std::vector<Handle> sums;
    for (const Client& client : clients) sums.push_back(client.create(Bytes::zeroed(bytes)));
    cases.push_back({all, name,
                     [clients, sums, group = CommunicationId(devices)] {
                       return microseconds_of([&] {
                         for (std::size_t i = 0; i < clients.size(); ++i)
                           clients[i].all_reduce(sums[i], sums[i], ElementType::F32, group, ReduceOperation::Sum);
                         for (const Client& client : clients) client.sync_collective();
                         for (const Client& client : clients) client.sync().get();
                       });
                     },
                     bytes, 2 * (ranks - 1) / ranks});
  }
  return cases;
}

}  // namespace cox::bench
