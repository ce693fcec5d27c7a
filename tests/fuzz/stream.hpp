#pragma once

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/fuzz/buffer.hpp>
#include <coxswain/tests/fuzz/difference.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cox::fuzz {

/// How many failures a stream has for the next read, sync or flush: between the two.
struct Failures {
  std::size_t least = 0;
  std::size_t most = 0;

  void add(std::size_t count = 1) noexcept {
    least += count;
    most += count;
  }
  void perhaps(std::size_t count = 1) noexcept { most += count; }
  [[nodiscard]] bool allow(std::size_t count) const noexcept { return least <= count && count <= most; }
  [[nodiscard]] std::string text() const {
    return least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most);
  }
};

/// How many failures the call throws; 0 if it returns. Every other exception is a difference.
template <class F>
std::size_t failures_of(F&& call, const std::string& what, std::string* text = nullptr) {
  try {
    call();
    return 0;
  } catch (const ServerError& error) {
    if (text != nullptr) {
      *text = error.what();
      for (const std::exception_ptr& each : error.errors()) *text += "\n    " + describe(each);
    }
    if (error.kind() == ServerError::Kind::Unhealthy) return error.errors().size();
    throw Difference(what + " threw, but not the stream's failures: " + error.what());
  } catch (const Difference&) {
    throw;
  } catch (const std::exception& error) {
    throw Difference(what + " threw: " + std::string(error.what()));
  }
}

/// A read or sync that was queued: what it must give, and the failures that are its own.
struct Awaited {
  std::shared_ptr<Future<std::vector<Bytes>>> read;  ///< null: a sync
  std::shared_ptr<Future<void>> sync;
  std::vector<Content> expected{};
  Failures due{};
  std::size_t operation = 0;
  bool is_refused = false;  ///< it makes no sense, and fails for that besides

  /// Blocks. Throws Difference.
  void check() const {
    if (is_refused) return check_refused();
    const std::string what = std::string(read ? "the read" : "the sync") + " of operation " + std::to_string(operation);
    std::vector<Bytes> found;
    std::string text;
    bool poisoned = false;
    const std::size_t failed = failures_of(
        [&] {
          if (!read) return sync->get();
          try {
            found = read->get();
          } catch (const IoError& error) {
            if (error.kind() != IoError::Kind::Poisoned) throw;
            poisoned = true;
            text = error.what();
          }
        },
        what, &text);
    if (!due.allow(failed))
      throw Difference(what + " had " + std::to_string(failed) + " failures instead of " + due.text() + ": " + text);
    if (failed != 0 || !read) return;
    const bool may_be = std::ranges::any_of(expected, [](const Content& content) { return !content.known; });
    const bool must_be = std::ranges::any_of(expected, &Content::poisoned);
    if (poisoned && !may_be)
      throw Difference(what + " of" + sizes_text() + " bytes found good memory poisoned: " + text);
    if (!poisoned && must_be)
      throw WrongContents(what + " of" + sizes_text() + " bytes gave what a failed operation left");
    if (poisoned) return;
    if (found.size() != expected.size()) throw Difference(what + " gave another number of buffers");
    for (std::size_t i = 0; i < found.size(); ++i) compare(what, found[i], expected[i]);
  }

 private:
  [[nodiscard]] std::string sizes_text() const {
    std::string text;
    for (const Content& content : expected)
      text += " " + std::to_string(content.bytes.size()) + (content.poisoned ? "!" : "");
    return text;
  }
  void check_refused() const {
    try {
      static_cast<void>(read->get());
    } catch (const std::exception&) {
      return;
    }
    throw Difference("the read of operation " + std::to_string(operation) + " succeeded, which makes no sense");
  }
  static void compare(const std::string& what, const Bytes& found, const Content& right) {
    if (found.size() != right.bytes.size())
      throw Difference(what + " gave " + std::to_string(found.size()) + " bytes of " +
                       std::to_string(right.bytes.size()));
    if (!right.known || std::ranges::equal(found.span(), right.bytes)) return;
    const auto bytes = found.span();
    const auto at = static_cast<std::size_t>(std::ranges::mismatch(bytes, right.bytes).in1 - bytes.begin());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) wrong += bytes[i] != right.bytes[i] ? 1U : 0U;
    throw WrongContents(what + " of " + std::to_string(bytes.size()) + " bytes: byte " + std::to_string(at) + " is " +
                        std::to_string(std::to_integer<int>(bytes[at])) + " instead of " +
                        std::to_string(std::to_integer<int>(right.bytes[at])) + ", " + std::to_string(wrong) +
                        " are wrong");
  }
};

/// One stream of a device, as one program uses it.
template <class Client>
struct Stream {
  Client client;  ///< pinned to the stream
  std::size_t device = 0;
  Failures due{};
  std::vector<Awaited> awaited{};
  std::uint32_t joint = 0;      ///< devices with which it has had collectives or transfers that may not be complete
  std::size_t joint_count = 0;  ///< how many
  std::size_t late = 0;         ///< of those, the ones that may fail: they join the stream before its sync_collective

  /// What the next read, sync or flush must throw, which is its own from now on.
  Failures take() noexcept {
    Failures taken = std::exchange(due, {});
    taken.perhaps(late);
    return taken;
  }
  /// The failures that no call has taken yet, at most: also those of reads and syncs that the stream has not come to.
  [[nodiscard]] std::size_t most_untaken() const noexcept {
    std::size_t most = due.most + late;
    for (const Awaited& each : awaited) most += each.due.most;
    return most;
  }
  void check_all() {
    while (!awaited.empty()) {
      const Awaited next = std::move(awaited.back());
      awaited.pop_back();
      next.check();
    }
  }
  /// Blocks until all work of the stream is complete, and takes its failures. Returns how many there were.
  std::size_t settle(std::size_t operation) {
    check_all();
    if (joint != 0) client.sync_collective();
    std::string text;
    const Failures right = take();
    const std::size_t failed =
        failures_of([&] { client.sync().get(); }, "the sync of operation " + std::to_string(operation), &text);
    if (!right.allow(failed))
      throw Difference("a sync had " + std::to_string(failed) + " failures instead of " + right.text() + ": " + text);
    joint = 0;
    joint_count = late = 0;
    return failed - right.least;
  }
};

}  // namespace cox::fuzz
