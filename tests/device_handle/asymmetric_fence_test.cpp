// Which half of the fence does what; that it orders is what tests/model shows.

#include <coxswain/device_handle/queue/asymmetric_fence.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <string>
#include <utility>

namespace {

/// Notes what it was called for: F fences all threads, r refuses to, f fences this one, w waits.
struct NotingMachine {
  template <class T>
  using atomic = std::atomic<T>;
  static inline std::string calls;
  static inline bool refuses = false;

  static bool fence_all_threads() {
    calls += refuses ? 'r' : 'F';
    return !refuses;
  }
  static void full_fence() { calls += 'f'; }
  static void drain_stores() { calls += 'w'; }

  static std::string taken() { return std::exchange(calls, ""); }
};

}  // namespace

TEST_CASE("L3: the light half becomes a full fence when the machine begins to refuse the heavy one", "[fence]") {
  NotingMachine::refuses = false;
  cox::AsymmetricFence<NotingMachine> fence;
  fence.start(true);
  fence.light();
  CHECK(NotingMachine::taken().empty());
  fence.heavy();
  CHECK(NotingMachine::taken() == "F");
  CHECK(fence.light_is_free());

  NotingMachine::refuses = true;
  fence.heavy();
  CHECK(NotingMachine::taken() == "rfwf");
  CHECK_FALSE(fence.light_is_free());
  fence.light();
  CHECK(NotingMachine::taken() == "f");
  fence.heavy();
  CHECK(NotingMachine::taken() == "f");  // it is not asked again
}

TEST_CASE("Where the machine cannot fence all threads both halves are full fences", "[fence]") {
  cox::AsymmetricFence<NotingMachine> fence;
  fence.start(false);
  fence.light();
  CHECK(NotingMachine::taken() == "f");
  fence.heavy();
  CHECK(NotingMachine::taken() == "f");
}
