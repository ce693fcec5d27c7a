#pragma once

// A program with kept memory on several devices, for `cox run`, that ends at random:
//   PROGRAM in_place|double UPDATES FAULTS FILE [FAULT]
// ends FAULTS runs by the fault, then makes UPDATES more updates. Appends to FILE for each run the state that it finds,
// "empty", "whole EPOCH" or "torn: DEVICES", and the times in ms of its first completed update and of its fault: "step
// 12", "fault 34". Every update writes its number to all elements of all devices. If a state that is reported as whole
// does not have these contents, the program ends with code 3, which nothing restarts. Without arguments the program
// makes a short run in each mode.

#include <coxswain/runtime/kept/kept_set.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kept_worker {

constexpr int wrong_contents = 3;

/// What the programs of each kind of device have of their own.
template <class Client>
struct Devices {
  std::vector<Client> clients;
  std::size_t elements;  ///< of the memory of each device, 64-bit
  /// Writes the number to every element, so slowly that an end in between is likely.
  std::function<void(const Client& client, const cox::Handle& memory, std::uint64_t value)> fill;
  /// Ends the process, or has it end, at some time in the next milliseconds.
  std::function<void(const std::string& fault, const char* file)> end_soon;
};

inline bool all_are(const cox::Bytes& contents, std::uint64_t value) {
  std::vector<std::uint64_t> all(contents.span().size() / sizeof(value));
  std::memcpy(all.data(), contents.span().data(), contents.span().size());
  for (const std::uint64_t each : all)
    if (each != value) return false;
  return true;
}

/// Waits for a random time of at most `longest`, without a sleep.
inline void wait_at_random(std::chrono::microseconds longest) {
  std::random_device seed;
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::microseconds(std::mt19937(seed())() % static_cast<std::uint64_t>(longest.count()));
  while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
}

/// Appends a line to the file.
inline void note(const char* file, const std::string& line) {
  if (file != nullptr) std::ofstream(file, std::ios::app) << line << std::endl;
}
inline std::string now_in_ms() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

struct Run {
  bool two_copies = false;
  std::uint64_t updates = 0;
  std::string fault;  // empty: none
  const char* file = nullptr;
};

/// Whether the memory has the contents of that state.
template <class Client>
bool has_contents_of(const Devices<Client>& devices, cox::KeptSet& set, const cox::KeptState& state) {
  for (std::size_t i = 0; i < devices.clients.size(); ++i) {
    const Client& client = devices.clients[i];
    if (state.kind == cox::KeptState::Kind::Whole) {
      if (!all_are(client.read_one(client.kept_current(set, "values")), state.epoch)) return false;
      std::uint64_t value = 0;
      if (!state.devices[i].values || state.devices[i].values->size() != sizeof(value)) return false;
      std::memcpy(&value, state.devices[i].values->data(), sizeof(value));
      if (value != state.epoch) return false;
    } else if (state.kind == cox::KeptState::Kind::Torn && state.devices[i].updating) {
      try {
        static_cast<void>(client.read_one(client.kept_current(set, "values")));
        return false;  // memory of a device that was in its update cannot be read
      } catch (const cox::Error&) {
      }
    }
  }
  return true;
}

template <class Client>
int run(const Devices<Client>& devices, const Run& how) {
  std::vector<cox::DeviceId> ids;
  for (const Client& client : devices.clients) ids.push_back(client.device_id());
  const cox::CommunicationId all(ids);
  const std::size_t bytes = devices.elements * sizeof(std::uint64_t);
  cox::KeptSet set(
      "state", ids,
      {.schema = "kept_worker 1", .mode = how.two_copies ? cox::KeptMode::Double : cox::KeptMode::InPlace});
  for (const Client& client : devices.clients) static_cast<void>(client.kept(set, "values", bytes));
  const cox::KeptState state = set.state();
  note(how.file,
       state.kind == cox::KeptState::Kind::Whole ? "whole " + std::to_string(state.epoch) : state.to_string());
  if (!has_contents_of(devices, set, state)) return wrong_contents;
  // In place, an operation of all devices lies between two updates. Of two copies begin_update holds them apart.
  std::vector<cox::Handle> one;
  for (const Client& client : devices.clients) one.push_back(client.create(cox::Bytes::zeroed(4)));
  const std::uint64_t last = state.last_epoch + how.updates;
  for (std::uint64_t epoch = state.last_epoch + 1; epoch <= last; ++epoch) {
    for (std::size_t i = 0; i < devices.clients.size(); ++i) {
      const Client& client = devices.clients[i];
      client.begin_update(set, epoch);
      devices.fill(client, client.kept_next(set, "values"), epoch);
      client.commit(set, std::as_bytes(std::span(&epoch, 1)));
      if (how.two_copies) continue;
      client.all_reduce(one[i], one[i], cox::ElementType::F32, all);
      client.sync_collective();
    }
    if (epoch % 8 == 0 || epoch == state.last_epoch + 1)
      for (const Client& client : devices.clients) client.sync().get();
    if (epoch != state.last_epoch + 1) continue;
    note(how.file, "step " + now_in_ms());
    if (!how.fault.empty()) devices.end_soon(how.fault, how.file);
  }
  for (const Client& client : devices.clients) {
    client.sync().get();
    if (!all_are(client.read_one(client.kept_current(set, "values")), last)) return wrong_contents;
  }
  return 0;
}

/// The main function of a program: the code with which it ends.
template <class Client>
int run_all(const Devices<Client>& devices, int argc, char** argv) {
  try {
    if (argc < 5) {
      const int code = run(devices, {.two_copies = false, .updates = 20, .fault = {}, .file = nullptr});
      return code != 0 ? code : run(devices, {.two_copies = true, .updates = 20, .fault = {}, .file = nullptr});
    }
    const char* const restart = std::getenv("COX_RESTART");
    const bool fails = restart != nullptr && std::atoi(restart) < std::atoi(argv[3]);
    // A run that fails lasts until it does.
    return run(devices, {.two_copies = std::string(argv[1]) == "double",
                         .updates = fails ? std::uint64_t{1} << 40U : std::strtoull(argv[2], nullptr, 10),
                         .fault = !fails     ? ""
                                  : argc > 5 ? argv[5]
                                             : "kill",
                         .file = argv[4]});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace kept_worker
