#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/async/completion_thread.hpp>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using cox::CompletionThread;

TEST_CASE("A completion thread runs what it accepted, in order, before it stops") {
  std::vector<int> order;
  CompletionThread thread(cox::DeviceId{});
  for (int i = 0; i < 100; ++i) thread.execute([&order, i] { order.push_back(i); });
  thread.stop();
  REQUIRE(order.size() == 100);
  for (std::size_t i = 0; i < 100; ++i) REQUIRE(order[i] == static_cast<int>(i));
}

TEST_CASE("A stopped completion thread runs what comes later on the caller's thread, so that nothing is lost") {
  CompletionThread thread(cox::DeviceId{});
  thread.stop();
  thread.stop();
  std::thread::id where;
  thread.execute([&where] { where = std::this_thread::get_id(); });
  REQUIRE(where == std::this_thread::get_id());
}

TEST_CASE("L5: what a completion handler throws is reported, and later handlers run") {
  std::string reported;
  cox::set_task_error_callback([&](const cox::TaskError& task) { reported = cox::describe(task.error); });
  bool later = false;
  {
    CompletionThread thread(cox::DeviceId{});
    thread.execute([] { throw std::runtime_error("handler"); });
    thread.execute([&later] { later = true; });
  }
  cox::set_task_error_callback({});
  REQUIRE(reported == "handler");
  REQUIRE(later);
}

TEST_CASE("A completion thread may be let go of by its own handler") {
  auto thread = std::make_shared<CompletionThread>(cox::DeviceId{});
  CompletionThread& raw = *thread;
  std::promise<void> ran;
  raw.execute([thread = std::move(thread), &ran]() mutable {
    thread.reset();
    ran.set_value();
  });
  ran.get_future().wait();
}
