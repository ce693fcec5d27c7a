#pragma once

#include <coxswain/runtime/async/future.hpp>

#include <source_location>
#include <vector>

namespace cox {

/// Blocks until the streams of all these clients have been synchronised. For a thread that drives several ranks; it
/// must have submitted the work of all of them before. `clients`: a range of clients. Throws the failures of the first
/// client, in the order of the range, that has any; failures of the others are kept for the next wait on their streams.
template <class Clients>
void sync_all(const Clients& clients, std::source_location site = std::source_location::current()) {
  std::vector<Future<void>> ends;
  for (const auto& client : clients) ends.push_back(client.sync(site));
  for (Future<void>& end : ends) end.wait();
  for (Future<void>& end : ends) end.get();
}

}  // namespace cox
