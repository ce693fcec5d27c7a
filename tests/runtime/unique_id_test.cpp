#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/base/unique_id.hpp>

#include <set>
#include <thread>
#include <vector>

namespace {

using Id = cox::UniqueId<struct TestKind>;

}  // namespace

TEST_CASE("No two ids of a kind are the same, whichever threads ask, and none is 0") {
  constexpr std::size_t threads = 4;
  constexpr std::size_t each = 1000;
  std::vector<std::vector<Id>> given(threads);
  std::vector<std::thread> clients;
  for (std::vector<Id>& ids : given)
    clients.emplace_back([&ids] {
      for (std::size_t i = 0; i < each; ++i) ids.push_back(Id::next());
    });
  for (std::thread& client : clients) client.join();
  std::set<Id> all;
  for (const std::vector<Id>& ids : given) all.insert(ids.begin(), ids.end());
  CHECK(all.size() == threads * each);
  CHECK_FALSE(all.contains(Id{}));
}
