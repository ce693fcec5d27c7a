#pragma once

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace cox::detail {

/// Values by key, each made by the thread that first asks for it while others that ask for it wait, and kept for good,
/// as is the failure of making it. Any thread.
template <class Key, class Value>
class OnceMap {
 public:
  /// Calls `make()` unless it was called for this key. Throws what it threw. That there was no memory is not kept: the
  /// next asker tries again. `make` must not ask for the same key.
  template <class Make>
  const Value& get(const Key& key, Make&& make) {
    const std::shared_ptr<Entry> entry = entry_of(key);
    const std::lock_guard lock(entry->mutex);
    if (entry->failure) std::rethrow_exception(entry->failure);
    if (!entry->value) fill(*entry, make);
    return *entry->value;
  }

 private:
  struct Entry {
    std::mutex mutex;
    std::optional<Value> value;  // guarded by mutex until it is there; never changes then
    std::exception_ptr failure;  // guarded by mutex
  };

  template <class Make>
  static void fill(Entry& entry, Make& make) {
    try {
      entry.value.emplace(make());
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {
      entry.failure = std::current_exception();
      throw;
    }
  }
  std::shared_ptr<Entry> entry_of(const Key& key) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Entry>& entry = entries_[key];
    if (!entry) entry = std::make_shared<Entry>();
    return entry;
  }

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_;  // guarded by mutex_; entries are never removed
};

}  // namespace cox::detail
