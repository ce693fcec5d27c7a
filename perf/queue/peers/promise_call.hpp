#pragma once

#include <future>
#include <memory>

namespace cox::perf {

/// Runs `f` on the lane's consumer and waits for it through a std::promise: what one writes on top of a queue that has
/// no blocking call. The promise is shared, since its last touch may come after the waiter woke.
template <class L, class F>
void call_through_promise(L& lane, F& f) {
  auto promise = std::make_shared<std::promise<void>>();
  std::future<void> done = promise->get_future();
  lane.push([&f, promise = std::move(promise)] {
    f();
    promise->set_value();
  });
  done.get();
}

}  // namespace cox::perf
