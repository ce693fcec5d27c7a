#include <coxswain/runtime/handle/return_list.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

using cox::detail::ReturnList;

namespace {

struct Object {
  Object* next_returned = nullptr;
  unsigned taken = 0;
  unsigned sum = 0;  // written by who pushes, read by who takes
};

/// Marks each object of the list as taken.
std::size_t take(Object* newest) {
  std::size_t count = 0;
  for (Object* object = newest; object != nullptr; object = object->next_returned, ++count) ++object->taken;
  return count;
}

}  // namespace

TEST_CASE("What came back is taken once, the newest first") {
  ReturnList<Object> list;
  CHECK(list.take_all() == nullptr);
  Object first, second;
  REQUIRE(list.push(first));
  REQUIRE(list.push(second));
  Object* const taken = list.take_all();
  REQUIRE(taken == &second);
  REQUIRE(taken->next_returned == &first);
  CHECK(first.next_returned == nullptr);
  CHECK(list.take_all() == nullptr);
  REQUIRE(list.push(second));  // again
  CHECK(list.take_all() == &second);
}

TEST_CASE("A list that was closed gives what it had and takes no more") {
  ReturnList<Object> list;
  Object before, after;
  REQUIRE(list.push(before));
  CHECK(list.close() == &before);
  CHECK_FALSE(list.push(after));
  CHECK(after.next_returned == nullptr);
}

TEST_CASE("L2: of what many threads push while one takes and then closes, each is taken once or refused once") {
  constexpr std::size_t each = 20'000;
  constexpr std::size_t pushers = 3;
  ReturnList<Object> list;
  std::vector<Object> objects(pushers * each);
  std::atomic<std::size_t> pushed{0};
  std::atomic<std::size_t> refused{0};
  std::vector<std::thread> threads;
  for (std::size_t pusher = 0; pusher < pushers; ++pusher) {
    threads.emplace_back([&, pusher] {
      for (std::size_t i = 0; i < each; ++i) {
        Object& object = objects[pusher * each + i];
        object.sum = static_cast<unsigned>(i);
        (list.push(object) ? pushed : refused).fetch_add(1);
      }
    });
  }
  std::size_t taken = 0;
  while (taken < each) taken += take(list.take_all());
  taken += take(list.close());
  for (std::thread& thread : threads) thread.join();
  CHECK(taken == pushed);
  CHECK(pushed + refused == objects.size());
  std::size_t once = 0;
  for (const Object& object : objects) once += object.taken == 1 ? 1U : 0U;
  CHECK(once == taken);
}
