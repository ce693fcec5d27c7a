#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/base/heap_vector.hpp>

#include <memory>
#include <utility>
#include <vector>

using cox::HeapVector;

TEST_CASE("A rare vector is a pointer, empty or with its elements in their order") {
  STATIC_REQUIRE(sizeof(HeapVector<std::vector<int>>) == sizeof(void*));
  HeapVector<int> numbers;
  CHECK(numbers.empty());
  CHECK(numbers.begin() == numbers.end());
  for (int i = 0; i < 5; ++i) numbers.push_back(i);
  CHECK(numbers.size() == 5);
  CHECK(numbers[3] == 3);
  CHECK(std::vector<int>(numbers.begin(), numbers.end()) == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("A rare vector is copied and moved with its elements") {
  const auto life = std::make_shared<int>(1);
  {
    HeapVector<std::shared_ptr<int>> first;
    const HeapVector<std::shared_ptr<int>> none = first;
    CHECK(none.empty());
    first.push_back(life);
    HeapVector<std::shared_ptr<int>> second = first;
    CHECK(life.use_count() == 3);
    second.push_back(life);
    first = second;
    CHECK(first.size() == 2);
    CHECK(life.use_count() == 5);
    const HeapVector<std::shared_ptr<int>> moved = std::move(second);
    CHECK(moved.size() == 2);
    CHECK(second.empty());  // NOLINT(bugprone-use-after-move): that is what is asked
    CHECK(life.use_count() == 5);
    first = none;
    CHECK(first.empty());
  }
  CHECK(life.use_count() == 1);
}
