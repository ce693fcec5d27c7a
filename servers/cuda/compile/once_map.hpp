#pragma once

#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <optional>

namespace cox::detail {

/// A map whose values are made on first use. The first thread that gets a key makes its value, while other threads that
/// get the same key wait. Values are kept forever, and so is the failure of making one. Any thread.
template <class Key, class Value>
class OnceMap {
 public:
  /// Returns the value of `key`. Calls `make()` for it unless that was done before; blocks while another thread does
  /// that. Throws what `make()` threw, also in later calls. std::bad_alloc is not kept: the next call tries again.
  /// `make` must not get the same key.
  template <class Make>
  const Value& get(const Key& key, Make&& make) {
    Entry& entry = entry_of(key);
    const std::lock_guard lock(entry.mutex);
    try {
      if (!entry.value && !entry.failure) entry.value.emplace(make());
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {
      entry.failure = std::current_exception();
    }
    if (entry.failure) std::rethrow_exception(entry.failure);
    return *entry.value;
  }

 private:
  struct Entry {
    std::mutex mutex;
    std::optional<Value> value;  // guarded by mutex until it is set; never changes after that
    std::exception_ptr failure;  // guarded by mutex
  };

  Entry& entry_of(const Key& key) {
    const std::lock_guard lock(mutex_);
    return entries_[key];
  }

  std::mutex mutex_;
  std::map<Key, Entry> entries_;  // guarded by mutex_; entries are never removed, and stay where they are
};

}  // namespace cox::detail
