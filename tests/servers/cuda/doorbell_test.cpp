#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/detail/doorbell.hpp>

#include <stdexcept>
#include <vector>

using namespace cox;
using cox::detail::Doorbell;

TEST_CASE("Calls are made in the order of their posts, those that calls post with them, and only once") {
  Doorbell doorbell({1, 0}, [] {});
  std::vector<int> made;
  CHECK_FALSE(doorbell.make_calls());
  doorbell.post([&] {
    made.push_back(1);
    doorbell.post([&] { made.push_back(3); });
  });
  {
    const Doorbell::Attending attending(doorbell);
    doorbell.post([&] { made.push_back(2); });
  }
  CHECK(made.empty());
  CHECK(doorbell.make_calls());
  CHECK(made == std::vector<int>{1, 2, 3});
  CHECK_FALSE(doorbell.make_calls());
  CHECK(made.size() == 3);
}

TEST_CASE("A call that throws takes no other with it") {
  Doorbell doorbell({1, 0}, [] {});
  int made = 0;
  doorbell.post([] { throw std::runtime_error("a call of the test"); });
  doorbell.post([&] { ++made; });
  CHECK(doorbell.make_calls());
  CHECK(made == 1);
}

TEST_CASE("The standing call is made once for all that asked for it, behind the calls that were posted") {
  Doorbell doorbell({1, 0}, [] {});
  std::vector<int> made;
  doorbell.set_standing([&] {
    made.push_back(0);
    if (made.size() == 2) doorbell.call_standing();
  });
  doorbell.call_standing();
  doorbell.post([&] { made.push_back(1); });
  doorbell.call_standing();
  CHECK(doorbell.make_calls());
  CHECK(made == std::vector<int>{1, 0, 0});
  CHECK_FALSE(doorbell.make_calls());
}
