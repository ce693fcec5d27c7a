#pragma once

#include <coxswain/tests/collectives/world/raw_process.hpp>
#include <coxswain/tests/collectives/world/session_member.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>

#include <chrono>
#include <future>
#include <optional>

namespace cox::test {

/// Processes 0 and 2 of a world of three, of which process 1 does not keep to the protocol.
struct WorldOfThree {
  MemberOptions options;
  TemporaryFolder folder;
  SessionMember first{folder, 0, 3, options};
  SessionMember last{folder, 2, 3, options};
  std::future<void> first_joined = std::async(std::launch::async, [this] { first.session.join(); });
  RawProcess raw{folder, 1, 3};
  std::optional<RawConnection> data_of_last;

  explicit WorldOfThree(const MemberOptions& of_both = {}) : options(of_both) {
    auto last_joined = std::async(std::launch::async, [this] { last.session.join(); });
    raw.listen();
    raw.join();
    data_of_last.emplace(raw.accept());  // process 2 connects to process 1, and waits for the answer
    static_cast<void>(data_of_last->receive());
    data_of_last->send(raw.data_hello());
    last_joined.get();
    first_joined.get();
  }
  // The others are connected, and leave as they should.
  void check_others() {
    CHECK(first.session.exchange().has(2));
    CHECK(last.session.exchange().has(0));
    const auto begun = std::chrono::steady_clock::now();
    last.leave();
    first.leave();
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(30));
  }
};

}  // namespace cox::test
