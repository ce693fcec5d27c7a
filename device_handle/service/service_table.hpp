#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/service/service_cell.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <typeindex>
#include <utility>
#include <vector>

namespace cox {

/// The services of one device thread, by type. They are built and destroyed on that thread only, so a lookup before the
/// build is enough to build each exactly once. Any thread may find them.
class ServiceTable {
 public:
  /// The cell of S, or nullptr if S has not been built. Any thread.
  template <class S>
  [[nodiscard]] ServiceCell<S>* find() const {
    const std::scoped_lock lock(mutex_);
    const auto found = std::ranges::find(entries_, std::type_index(typeid(S)), &Entry::type);
    return found == entries_.end() ? nullptr : static_cast<ServiceCell<S>*>(found->cell.get());
  }

  /// Returns the cell of S, and builds it with `build()` -> std::unique_ptr<ServiceCell<S>> if it does not exist.
  /// Device thread. No lock is held while `build` runs: it may build other services. Throws what `build` throws (then
  /// nothing is kept), and CallError WouldDeadlock if S is already being built further up the stack.
  template <class S, class Build>
  ServiceCell<S>& find_or_build(DeviceId device, Build&& build) {
    if (ServiceCell<S>* const cell = find<S>()) return *cell;
    const std::type_index type(typeid(S));
    if (!building_.insert(type).second) {
      throw CallError(CallError::Kind::WouldDeadlock,
                      "cannot open a service on " + device.to_string() + " from its own constructor: would_deadlock",
                      std::source_location());
    }
    const Forget forget{building_, type};
    std::unique_ptr<ServiceCell<S>> cell = std::forward<Build>(build)();
    ServiceCell<S>& built = *cell;
    const std::scoped_lock lock(mutex_);
    entries_.push_back({type, std::move(cell)});
    return built;
  }

  /// Destroys the services, the youngest first. The cells exist until the table is destroyed. Device thread.
  void close() noexcept {
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) entry->cell->close();
  }

 private:
  struct Entry {
    std::type_index type;
    std::unique_ptr<ServiceCellBase> cell;
  };

  struct Forget {
    std::set<std::type_index>& building;
    std::type_index type;
    ~Forget() { building.erase(type); }
  };

  mutable std::mutex mutex_;            // guards entries_ against find() from other threads
  std::vector<Entry> entries_;          // in order of construction
  std::set<std::type_index> building_;  // device thread only
};

}  // namespace cox
