#pragma once

// A program for `cox run --on 75` with kept memory on a device that the next run does not use:
// - Run 0 makes an update on that device.
// - Run 1 opens the set on another device. It must be told which device has the memory.
// - Run 2 uses the device of run 0 again, and must find what that has committed.
// Ends with code 3 if that is not so. Without `cox run` it makes the update alone.

#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace kept_elsewhere {

constexpr int next_run = 75;
constexpr int not_so = 3;

inline int run_number() {
  const char* const restart = std::getenv("COX_RESTART");
  return restart == nullptr ? 0 : std::atoi(restart);
}

/// Opens the set on the client's device, and does what the run of that number has to do.
template <class Client>
int run(const Client& client) try {
  const std::vector<std::uint64_t> contents(1000, 17);
  const int number = run_number();
  try {
    cox::KeptSet set("state", {client.device_id()});
    const cox::Handle memory = client.kept(set, "values", contents.size() * sizeof(std::uint64_t)).handle;
    if (number == 1) return not_so;
    if (number == 2) {
      const bool is_whole = set.state().kind == cox::KeptState::Kind::Whole && set.state().epoch == 1;
      return is_whole && client.read_one(memory).template to_vector<std::uint64_t>() == contents ? 0 : not_so;
    }
    client.begin_update(set);
    client.write(memory, cox::Bytes::copy_of(contents));
    client.commit(set);
    client.sync().get();
    return std::getenv("COX_KEEPER") == nullptr ? 0 : next_run;
  } catch (const cox::KeptError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return number == 1 && error.kind() == cox::KeptError::Kind::Schema ? next_run : not_so;
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

}  // namespace kept_elsewhere
