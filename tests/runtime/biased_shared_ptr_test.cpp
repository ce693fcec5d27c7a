#include <coxswain/runtime/handle/biased_shared_ptr.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

using cox::detail::BiasedSharedPtr;

namespace {

/// Counts how many of them there are.
struct Counted {
  explicit Counted(std::atomic<int>& count) : alive(&count) { ++*alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --*alive; }
  std::atomic<int>* alive;
};
using Shared = BiasedSharedPtr<Counted>;

}  // namespace

TEST_CASE("A thing that is shared in bulk lives as long as any of its pointers", "[bulk_shared]") {
  std::atomic<int> alive{0};
  std::optional<Shared> first(Shared::make(alive));
  CHECK(alive == 1);
  {
    std::vector<Shared> copies(100, *first);
    first.reset();
    CHECK(alive == 1);
    Shared moved = std::move(copies.front());
    copies.clear();
    CHECK(alive == 1);
    CHECK(moved->alive == &alive);
  }
  CHECK(alive == 0);
}

TEST_CASE("Pointers are assigned, moved from and empty as others", "[bulk_shared]") {
  std::atomic<int> one{0};
  std::atomic<int> other{0};
  Shared first = Shared::make(one);
  Shared second = Shared::make(other);
  const Shared copy = first;
  first = second;
  CHECK(one == 1);
  CHECK(first->alive == &other);
  const Shared& same = first;
  first = same;
  CHECK(first->alive == &other);
  second = std::move(first);
  CHECK_FALSE(first);  // NOLINT(bugprone-use-after-move): that is what is asked
  const Shared nothing = first;
  CHECK_FALSE(nothing);
  CHECK(other == 1);
  second = Shared();
  CHECK(other == 0);
  CHECK(one == 1);
}

TEST_CASE("One pointer is copied by many threads, whose copies others drop", "[bulk_shared]") {
  std::atomic<int> alive{0};
  {
    const Shared shared = Shared::make(alive);
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 4; ++seed)
      threads.emplace_back([&shared, seed] {
        std::mt19937 random(seed);
        std::vector<Shared> kept;
        for (int i = 0; i < 20'000; ++i) {
          if (random() % 2 == 0 || kept.empty()) {
            kept.push_back(kept.empty() || random() % 4 != 0 ? shared : kept[random() % kept.size()]);
          } else {
            std::swap(kept[random() % kept.size()], kept.back());
            kept.pop_back();
          }
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
}
