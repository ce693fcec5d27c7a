#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <utility>

namespace cox::detail::world {

/// Connections that have not sent their first message, in the order in which they were accepted. When there are too
/// many, the oldest one must make room: a process sends its message at once, so that a connection which has waited for
/// long is more likely to be from another program. One thread at a time.
template <class Connection>
class Unidentified {
 public:
  explicit Unidentified(std::size_t most) noexcept : most_(most) {}

  /// Returns the connection that must make room, and is to be closed; null: there is room for all. Throws
  /// std::bad_alloc.
  [[nodiscard]] std::shared_ptr<Connection> add(std::shared_ptr<Connection> connection) {
    connections_.push_back(std::move(connection));
    if (connections_.size() <= most_) return nullptr;
    std::shared_ptr<Connection> oldest = std::move(connections_.front());
    connections_.pop_front();
    return oldest;
  }
  /// Returns whether it was there.
  bool remove(const std::shared_ptr<Connection>& connection) noexcept {
    const auto found = std::ranges::find(connections_, connection);
    if (found == connections_.end()) return false;
    connections_.erase(found);
    return true;
  }
  [[nodiscard]] std::list<std::shared_ptr<Connection>> take_all() noexcept { return std::exchange(connections_, {}); }

 private:
  const std::size_t most_;
  std::list<std::shared_ptr<Connection>> connections_;
};

}  // namespace cox::detail::world
