#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <vector>

using cox::CollectiveError;
using cox::CommunicationId;
using cox::DeviceId;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;

namespace {

constexpr DeviceId a{.type = 0, .index = 0};
constexpr DeviceId b{.type = 0, .index = 1};
constexpr DeviceId c{.type = 0, .index = 2};
constexpr DeviceId other{.type = 1, .index = 1};

CommunicationId among(const std::vector<DeviceId>& devices) { return CommunicationId(devices); }

}  // namespace

TEST_CASE("The same devices are the same communication, in whatever order") {
  CHECK(among({a, b, c}) == among({c, a, b}));
  CHECK(among({a, b}) != among({a, c}));
  CHECK(among({a, b}) != among({a, b, c}));
  CHECK(among({b, a}).rank_of(a) == 0);
  CHECK(among({b, a}).rank_of(b) == 1);
  CHECK(among({b, a}).world_size() == 2);
}

TEST_CASE("No device, a device twice, and devices of different types do not communicate") {
  CHECK(kind_of<CollectiveError>([] { (void)among({}); }) == CollectiveError::Kind::Validation);
  CHECK(mentions(message_of([] { (void)among({a, b, a}); }), {"host:0", "twice"}));
  CHECK(mentions(message_of([] { (void)among({a, other}); }), {"different types"}));
  CHECK(mentions(message_of([] { (void)among({a, b}).rank_of(c); }), {"host:2", "is not in"}));
}

TEST_CASE("One device is a communication, with itself") {
  CHECK(among({a}).world_size() == 1);
  CHECK(among({a}).rank_of(a) == 0);
  CHECK(among({a}) != among({a, b}));
  CHECK(among({a, b}).split(std::vector<int>{1, 2}) == std::vector<CommunicationId>{among({a}), among({b})});
}

TEST_CASE("A split gives the sets of each colour in the order of colours") {
  const std::vector<DeviceId> devices{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}};
  const CommunicationId all(devices);
  const std::vector<int> colours{7, 2, 7, -1, 2};
  const std::vector<CommunicationId> sets = all.split(colours);
  REQUIRE(sets == std::vector<CommunicationId>{{{0, 1}, {0, 4}}, {{0, 0}, {0, 2}}});
  const auto refused = [&](std::vector<int> of) {
    return kind_of<CollectiveError>([&] { static_cast<void>(all.split(of)); }) == CollectiveError::Kind::Validation;
  };
  CHECK(refused({1, 1}));
  CHECK(refused({1, 1, 1, 1, 2, 2}));
  CHECK(all.split(std::vector<int>(5, -1)).empty());
}
