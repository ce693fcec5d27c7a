#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/unique_function.hpp>

#include <array>
#include <memory>
#include <utility>

using cox::UniqueFunction;

TEST_CASE("A unique function calls a move-only callable, small or large, and destroys its captures once") {
  const auto life = std::make_shared<int>(5);
  const auto check = [&](auto padding) {
    UniqueFunction<int(int)> function = [owner = std::make_unique<std::shared_ptr<int>>(life), padding](int x) {
      return **owner + x + static_cast<int>(padding[0]);
    };
    REQUIRE(function(2) == 7);
    UniqueFunction<int(int)> moved = std::move(function);
    REQUIRE_FALSE(function);  // NOLINT(bugprone-use-after-move): promised
    REQUIRE(moved(3) == 8);
    REQUIRE(life.use_count() == 2);
    moved = [](int x) { return x; };
    REQUIRE(life.use_count() == 1);
    REQUIRE(moved(4) == 4);
  };
  check(std::array<char, 1>{});
  check(std::array<char, 500>{});
}
