#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/handle/inline_device_handle.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstdint>
#include <source_location>
#include <string>

using cox::CallError;
using cox::DeviceId;

namespace {

struct Sited {
  explicit Sited(DeviceId) {}
};

/// The line that the CallError of `call` says it was made at.
template <class Call>
std::uint32_t refused_at(Call&& call) {
  try {
    call();
  } catch (const CallError& error) {
    CHECK(std::string(error.site().file_name()).ends_with("error_site_test.cpp"));
    return error.site().line();
  }
  FAIL("not refused");
  return 0;
}

constexpr std::uint32_t here(std::source_location site = std::source_location::current()) { return site.line(); }

}  // namespace

TEMPLATE_TEST_CASE("A refused call names the caller's line, whatever the call", "[error]", cox::DeviceHandle<Sited>,
                   cox::InlineDeviceHandle<Sited>) {
  const DeviceId device{.type = 0, .index = 301};
  const auto handle = TestType::get(device);
  cox::shutdown(device);
  const auto nothing = [](Sited&) {};
  const cox::CallOptions options{.label = "x"};
  CHECK(refused_at([&] { handle.submit(nothing); }) == here());
  CHECK(refused_at([&] { handle.submit([](Sited&) {}); }) == here());
  CHECK(refused_at([&] { handle.submit_blocking(nothing); }) == here());
  CHECK(refused_at([&] { handle.exclusive([] {}); }) == here());
  CHECK(refused_at([&] { handle.submit(nothing, options); }) == options.site.line());
  CHECK(refused_at([&] { handle.submit_blocking(nothing, options); }) == options.site.line());
}

TEST_CASE("L10: a call that would deadlock names the line of the inner call", "[error]") {
  const DeviceId device{.type = 0, .index = 302};
  const auto handle = cox::DeviceHandle<Sited>::get(device);
  std::uint32_t inner = 0;
  const auto call = [&] {
    handle.submit_blocking([&](Sited&) {
      inner = here() + 1;
      handle.submit_blocking([](Sited&) {});
    });
  };
  const std::uint32_t refused = refused_at(call);
  CHECK(refused == inner);
  cox::shutdown(device);
}
