#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace cox::detail::world {

/// Data links that have broken although both processes live, and which processes must leave the world so that none of
/// these links remains: their operations would fail again and again. A process without links to several others leaves
/// before these. Of two that have lost only the link to each other, the one with the higher number leaves.
class BrokenLinks {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// A process that must leave, and to which others its links are broken.
  struct Leaving {
    std::uint16_t process;
    std::vector<std::uint16_t> others;

    friend bool operator==(const Leaving&, const Leaving&) = default;
  };

  /// The link between two processes is broken since then, unless that is known already.
  void add(std::uint16_t process, std::uint16_t other, Time now);
  /// The process is gone.
  void remove(std::uint16_t process);
  /// The processes that must leave because of links that are broken since `until` or earlier; later ones count only to
  /// choose them. `stays` does not leave: the process that leads the world, which would end with it. Removes them.
  [[nodiscard]] std::vector<Leaving> take_leaving(Time until, std::optional<std::uint16_t> stays);

 private:
  std::map<std::uint16_t, std::map<std::uint16_t, Time>> since_;  // by process and other process, each link twice
};

}  // namespace cox::detail::world
