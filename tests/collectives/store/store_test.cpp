#include <coxswain/collectives/store/store.hpp>
#include <coxswain/tests/collectives/store/store_contract.hpp>

#include <cstdint>
#include <set>

using cox::StoreError;
using cox::detail::add_to_value;
using cox::detail::store_prefix;
using cox::test::bytes_of;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;

TEST_CASE("The prefix of each run and restart is its own, whatever letters the run has") {
  CHECK(store_prefix("job7", 0) == "cox/job7/0/");
  std::set<std::string> prefixes;
  for (const char* const run : {"a", "a/1", "a%2F1", "", "/", "%"})
    for (const std::uint32_t restart : {0U, 1U, 11U}) CHECK(prefixes.insert(store_prefix(run, restart)).second);
}

TEST_CASE("A number is added to decimal text, and anything else is refused") {
  CHECK(add_to_value({}, 3, "k") == 3);
  CHECK(add_to_value(bytes_of("-4"), 3, "k") == -1);
  for (const char* const wrong : {"x", "1 ", " 1", "+1", "1.5", "9223372036854775808"})
    CHECK(kind_of<StoreError>([&] { (void)add_to_value(bytes_of(wrong), 1, "k"); }) == StoreError::Kind::Protocol);
  const auto overflow = [] { (void)add_to_value(bytes_of("9223372036854775807"), 1, "the key"); };
  CHECK(kind_of<StoreError>(overflow) == StoreError::Kind::Protocol);
  CHECK(mentions(message_of(overflow), {"the key", "9223372036854775807"}));
}

TEST_CASE("Each kind of StoreError has a name of its own") {
  std::set<std::string> names;
  for (int kind = 0; kind <= static_cast<int>(StoreError::Kind::Unsupported); ++kind)
    CHECK(names.insert(to_string(static_cast<StoreError::Kind>(kind))).second);
  CHECK(std::string(to_string(StoreError::Kind::TooLarge)) == "too_large");
}

TEST_CASE("The time until a deadline is neither negative nor longer than is asked for") {
  using std::chrono::seconds;
  const auto now = std::chrono::steady_clock::now();
  CHECK(cox::detail::time_until(now - seconds(1), seconds(5)) == seconds(0));
  CHECK(cox::detail::time_until(now + seconds(100), seconds(5)) == seconds(5));
  CHECK(cox::detail::time_until(cox::Store::Deadline::max(), seconds(5)) == seconds(5));
  CHECK(cox::detail::time_until(now + seconds(100), seconds(200)) <= seconds(100));
}
