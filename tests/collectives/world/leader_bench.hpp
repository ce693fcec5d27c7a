#pragma once

#include <coxswain/collectives/leader/leader.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cox::test {

using namespace detail::world;
using Kind = CollectiveError::Kind;
using std::chrono::milliseconds;

/// Process numbers, for loops.
constexpr auto these(auto... processes) { return std::array{static_cast<std::uint16_t>(processes)...}; }

/// host:0 of each of these processes.
inline std::vector<DeviceId> group(std::initializer_list<std::uint16_t> processes) {
  std::vector<DeviceId> devices;
  for (const std::uint16_t process : processes)
    devices.push_back({.type = 0, .index = 0, .process = static_cast<std::uint16_t>(process + 1)});
  return devices;
}

inline std::vector<std::byte> fingerprint(std::uint8_t value) { return {std::byte{value}}; }

/// A leader, the time, and the messages that each process has got and not read yet.
class LeaderBench {
 public:
  explicit LeaderBench(std::size_t processes, LeaderOptions options = {}) : leader(facts(processes), options) {}

  void send(std::uint16_t process, Message message) {
    const Leader::Fault fault = leader.receive(process, std::move(message), now);
    INFO(fault.value_or(""));
    REQUIRE_FALSE(fault);
    deliver();
  }
  /// What is wrong with the message.
  std::string fault(std::uint16_t process, Message message) {
    const Leader::Fault fault = leader.receive(process, std::move(message), now);
    deliver();
    return fault.value_or("");
  }
  void open(std::uint16_t process, std::uint64_t number, const std::vector<DeviceId>& devices, std::uint64_t epoch = 1,
            milliseconds timeout = milliseconds(1000), Direction direction = {}) {
    send(process,
         Open{.number = number, .devices = devices, .epoch = epoch, .direction = direction, .timeout = timeout});
  }
  void ask(std::uint16_t process, std::uint64_t number, std::uint64_t operation,
           std::vector<OperationName> awaited = {}, std::uint8_t request = 0) {
    send(process, Ask{.number = number,
                      .operation = operation,
                      .fingerprint = fingerprint(request),
                      .description = "request " + std::to_string(request),
                      .awaited = std::move(awaited)});
  }
  void gone(std::uint16_t process, Kind kind = Kind::ProcessGone, const std::string& text = "killed") {
    leader.gone(process, kind, text);
    deliver();
  }
  void joined(std::uint16_t process) {
    leader.joined(process, {.host = "spare", .pid = 99, .restart = 1});
    deliver();
  }
  /// Time passes; expires what is overdue.
  void pass(milliseconds time) {
    now += time;
    leader.expire(now);
    deliver();
  }

  /// The next message of the process, which must be of this type.
  template <class T>
  T next(std::uint16_t process) {
    REQUIRE_FALSE(got[process].empty());
    const Message message = got[process].front();
    got[process].erase(got[process].begin());
    INFO("process " << process << " has got a message of type " << message.index() + 1);
    REQUIRE(std::holds_alternative<T>(message));
    return std::get<T>(message);
  }
  [[nodiscard]] bool has_nothing() const {
    for (const auto& [process, messages] : got)
      if (!messages.empty()) return false;
    return true;
  }

  Leader leader;
  Leader::Time now{};
  std::map<std::uint16_t, std::vector<Message>> got;

 private:
  static std::vector<ProcessFacts> facts(std::size_t processes) {
    std::vector<ProcessFacts> all(processes);
    for (std::size_t i = 0; i < processes; ++i) all[i] = {.host = "node" + std::to_string(i), .pid = 100 + i};
    return all;
  }
  void deliver() {
    while (const auto left = leader.next_left()) leader.gone(left->process, Kind::ProcessGone, left->why);
    std::vector<Outgoing> outgoing;
    leader.take_outgoing(outgoing);
    for (Outgoing& each : outgoing) got[each.process].push_back(decode(encode(each.message)));
  }
};

}  // namespace cox::test
