#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/collectives/group/communication_groups.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <future>
#include <latch>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;
using cox::test::kind_of;
using cox::test::of_count;
using cox::test::TemporaryFile;

namespace {

constexpr DeviceId a{.type = 0, .index = 50};
constexpr DeviceId b{.type = 0, .index = 51};
constexpr DeviceId c{.type = 0, .index = 52};

std::exception_ptr why() { return std::make_exception_ptr(std::runtime_error("given up")); }

}  // namespace

TEST_CASE("A set of devices has one group, whatever order it is named in and however many ask at once") {
  CommunicationGroups groups{{}};
  std::vector<std::future<CommunicationGroups::Group>> asked;
  for (int i = 0; i < 8; ++i)
    asked.push_back(std::async(std::launch::async, [&, i] {
      return groups.find_or_open(i % 2 == 0 ? CommunicationId{a, b} : CommunicationId{b, a});
    }));
  const auto first = asked.front().get();
  for (std::size_t i = 1; i < asked.size(); ++i) CHECK(asked[i].get() == first);
  CHECK(groups.find_or_open({a, b, c}) != first);
}

TEST_CASE("Each way between two devices of a group has a sequence of its own") {
  CommunicationGroups groups{{}};
  const auto group = groups.find_or_open({a, b, c});
  CHECK(group->transfers(a, b) == group->transfers(a, b));
  CHECK(group->transfers(a, b) != group->transfers(b, a));
  CHECK(group->transfers(a, b) != group->transfers(a, c));
  CHECK(group->transfers(a, b) != group->number());
  CHECK(kind_of<CollectiveError>([&] { static_cast<void>(group->transfers(a, {0, 9})); }) ==
        CollectiveError::Kind::Validation);
}

TEST_CASE("Transfers of an aborted group are refused, and no lock is held while their opening calls launches") {
  CommunicationGroups groups{{}};
  const auto aborted = groups.find_or_open({a, b});
  aborted->abort(why());
  std::promise<void> first;
  std::promise<void> second;
  std::atomic<int> called{0};
  std::future<bool> usable;
  bool free = false;
  const auto launch = [&](const LaunchGrant&) {
    if (called++ == 0) {
      first.set_value();
      second.get_future().wait_for(60s);
      return;
    }
    usable = std::async(std::launch::async, [&] { return aborted->usable(); });
    free = usable.wait_for(10s) == std::future_status::ready;
    second.set_value();
  };
  const auto other = groups.find_or_open({a, c});
  const auto asked = std::async(std::launch::async, [&] {
    for (const std::size_t rank : {0UL, 1UL})
      groups.sequencer().submit(other->number(), rank, {.requests = {of_count(1)}, .launch = launch});
  });
  first.get_future().wait();  // its thread is held up before it has called the other one
  const CommunicatorNumber transfers = aborted->transfers(a, b);
  CHECK(called == 2);
  CHECK(free);
  CHECK_FALSE(usable.get());
  CHECK(groups.sequencer().broken(transfers));
  CHECK(aborted->transfers(a, b) == transfers);
  asked.wait();
}

TEST_CASE("A group is renewed when it is of no use any more, and only then") {
  CommunicationGroups groups{{}};
  const auto group = groups.find_or_open({a, b});
  CHECK(groups.renew({a, b}) == group);
  group->abort(why());
  CHECK_FALSE(group->usable());
  CHECK(groups.find_or_open({a, b}) == group);  // nobody has asked for another one
  const auto renewed = groups.renew({a, b});
  CHECK(renewed != group);
  CHECK(renewed->usable());
  CHECK_FALSE(group->usable());
}

TEST_CASE("A device that leaves is in no group that is found from then on, and ends those that it was in") {
  CommunicationGroups groups{{}};
  const auto with = groups.find_or_open({a, b});
  const auto without = groups.find_or_open({a, c});
  groups.join(b, 1);
  const auto left = groups.leave(b, 1);
  CHECK(left == std::vector{with});
  CHECK(groups.find_or_open({a, c}) == without);
  // L16: refused at once until the device is there again.
  using Find = CommunicationGroups::Group (CommunicationGroups::*)(const CommunicationId&);
  for (const Find find : {Find{&CommunicationGroups::find_or_open}, Find{&CommunicationGroups::renew}})
    CHECK(kind_of<CollectiveError>([&] { static_cast<void>((groups.*find)({a, b})); }) ==
          CollectiveError::Kind::Aborted);
  groups.join(b, 2);
  CHECK(groups.find_or_open({a, b}) != with);
  CHECK(groups.find_or_open({a, b})->usable());
}

TEST_CASE("L16: what was called before a device left finds no group with it, even when it is there again") {
  CommunicationGroups groups{{}};
  const auto without = groups.find_or_open({a, c});
  const MembershipEpoch before = MembershipEpoch::current();
  groups.join(b, 1);
  static_cast<void>(groups.leave(b, 1));
  groups.join(b, 2);
  const MembershipEpoch after = MembershipEpoch::current();
  const auto with = groups.find_or_open({a, b});
  CHECK(groups.find_or_open({a, b}, after, std::source_location::current()) == with);
  CHECK(groups.find_or_open({a, c}, before, std::source_location::current()) == without);
  CHECK(kind_of<CollectiveError>([&] {
          static_cast<void>(groups.find_or_open({a, b}, before, std::source_location::current()));
        }) == CollectiveError::Kind::Aborted);
}

TEST_CASE("L16: a server that was abandoned does not take leave for the one that has come after it") {
  CommunicationGroups groups{{}};
  groups.join(b, 6);
  const auto before = groups.find_or_open({a, b});
  groups.leave_abandoned(b);
  CHECK_FALSE(before->usable());
  CHECK(kind_of<CollectiveError>([&] { static_cast<void>(groups.find_or_open({a, b})); }) ==
        CollectiveError::Kind::Aborted);
  groups.join(b, 7);
  const auto after = groups.find_or_open({a, b});
  CHECK(groups.leave(b, 6).empty());
  CHECK(after->usable());
  CHECK(groups.find_or_open({a, b}) == after);
  CHECK(groups.leave(b, 7) == std::vector{after});
}

TEST_CASE("L16: a closing device is refused before its server is gone, which then ends its groups") {
  CommunicationGroups groups{{}};
  groups.join(b, 6);
  const auto group = groups.find_or_open({a, b});
  groups.leave_closing(b, 5);  // of a server that is gone
  CHECK(groups.find_or_open({a, b}) == group);
  groups.leave_closing(b, 6);
  CHECK(kind_of<CollectiveError>([&] { static_cast<void>(groups.find_or_open({a, b})); }) ==
        CollectiveError::Kind::Aborted);
  CHECK(groups.leave(b, 6) == std::vector{group});
  groups.join(b, 7);
  const auto after = groups.find_or_open({a, b});
  groups.leave_closing(b, 6);  // late
  CHECK(groups.find_or_open({a, b}) == after);
  CHECK(groups.leave(b, 7) == std::vector{after});
}

TEST_CASE("Groups that fail at the same time write their flight recorders one after the other") {
  const TemporaryFile file("");
  set_settings({{"collectives.dump_file", file.path()}});
  CommunicationGroups groups{{}};
  const auto short_one = groups.find_or_open({a, b});
  const auto long_one = groups.find_or_open({a, c});
  for (int i = 0; i < 50; ++i)
    for (const std::size_t rank : {0UL, 1UL})
      groups.sequencer().submit(long_one->number(), rank,
                                {.requests = {of_count(1)}, .launch = [](const LaunchGrant&) {}});
  int whole = 0;
  constexpr int rounds = 200;
  for (int round = 0; round < rounds; ++round) {
    std::latch both(2);
    std::vector<std::jthread> threads;
    for (const auto& group : {short_one, long_one})
      threads.emplace_back([&both, group] {
        both.arrive_and_wait();
        group->report_failure(why());
      });
    threads.clear();
    std::ifstream in(file.path());
    if (nlohmann::json::accept(in)) ++whole;
  }
  reset_settings({"collectives.dump_file"});
  CHECK(whole == rounds);
}
