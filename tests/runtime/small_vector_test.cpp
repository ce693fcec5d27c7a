#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/base/small_vector.hpp>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>

using cox::SmallVector;

TEST_CASE("A small vector keeps its elements in order across the move to the heap") {
  SmallVector<int, 2> numbers;
  for (int i = 0; i < 100; ++i) numbers.push_back(i);
  REQUIRE(numbers.size() == 100);
  for (std::size_t i = 0; i < 100; ++i) REQUIRE(numbers[i] == static_cast<int>(i));
  numbers.pop_back();
  REQUIRE(numbers.back() == 98);
  numbers.clear();
  REQUIRE(numbers.empty());
}

TEST_CASE("A small vector destroys each element once, inline and on the heap, also when it is assigned over") {
  const auto life = std::make_shared<int>(1);
  for (const int count : {1, 2, 3, 17}) {
    SmallVector<std::shared_ptr<int>, 2> first;
    for (int i = 0; i < count; ++i) first.push_back(life);
    SmallVector<std::shared_ptr<int>, 2> second{life, life, life};
    REQUIRE(life.use_count() == 1 + count + 3);
    second = std::move(first);
    REQUIRE(life.use_count() == 1 + count);
    REQUIRE(first.empty());  // NOLINT(bugprone-use-after-move): promised
    first = second;
    REQUIRE(life.use_count() == 1 + 2 * count);
    first = first;  // NOLINT
    REQUIRE(first == second);
  }
  REQUIRE(life.use_count() == 1);
}

TEST_CASE("A small vector holds move-only elements") {
  SmallVector<std::unique_ptr<int>, 1> owners;
  owners.push_back(std::make_unique<int>(7));
  owners.emplace_back(std::make_unique<int>(8));
  SmallVector<std::unique_ptr<int>, 1> moved = std::move(owners);
  REQUIRE(*moved[0] == 7);
  REQUIRE(*moved[1] == 8);
}

TEST_CASE("A small vector that cannot be copied to the end leaves nothing behind") {
  static int alive = 0;
  static int copies_left = 0;
  struct Element {
    Element() { ++alive; }
    Element(const Element&) {
      if (copies_left-- == 0) throw std::runtime_error("no more");
      ++alive;
    }
    Element(Element&&) noexcept { ++alive; }
    ~Element() { --alive; }
  };
  SmallVector<Element, 2> elements;
  for (int i = 0; i < 7; ++i) elements.emplace_back();
  for (int k = 0; k < 7; ++k) {
    copies_left = k;
    REQUIRE_THROWS_AS((SmallVector<Element, 2>(elements)), std::runtime_error);
    REQUIRE(alive == 7);
    copies_left = k;
    REQUIRE_THROWS_AS((SmallVector<Element, 2>(elements.begin(), elements.end())), std::runtime_error);
    REQUIRE(alive == 7);
  }
}

TEST_CASE("A small vector refuses to have more elements than it counts") {
  SmallVector<int, 2> numbers{1};
  CHECK_THROWS_AS(numbers.reserve(std::size_t{1} << 33U), std::length_error);
  CHECK(numbers.size() == 1);
}
