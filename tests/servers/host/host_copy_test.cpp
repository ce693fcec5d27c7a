#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/servers/host/memory/host_copy.hpp>

#include <cstring>
#include <vector>

using cox::Bytes;
using cox::CopyPlan;
using cox::IoError;
using cox::detail::upload_chunk;
using cox::test::kind_of;
using cox::test::pattern;
using cox::test::TemporaryFile;

namespace {

/// The device memory after an upload of `host`, its padding zero.
std::vector<std::byte> uploaded(const CopyPlan& plan, const Bytes& host) {
  std::vector<std::byte> device(plan.rows * plan.pitch);
  cox::detail::upload(plan, host, device.data());
  return device;
}

void require_same_from_file(const CopyPlan& plan) {
  const auto content = pattern(plan.size() + 3);
  const TemporaryFile file(content);
  const Bytes lazy = Bytes::from_file(file.path(), 3, plan.size());
  const auto device = uploaded(plan, lazy);
  REQUIRE_FALSE(lazy.is_resident());
  REQUIRE(device == uploaded(plan, Bytes::copy_of(content).slice(3, plan.size())));
  std::vector<std::byte> back(plan.size());
  cox::detail::download(plan, device.data(), back.data());
  REQUIRE(std::memcmp(back.data(), content.data() + 3, back.size()) == 0);
}

}  // namespace

TEST_CASE("Bytes of a file reach the device's rows without being brought into memory") {
  require_same_from_file({.rows = 1, .row_bytes = 5000, .pitch = 5000});
  require_same_from_file({.rows = 100, .row_bytes = 20, .pitch = 20});
  require_same_from_file({.rows = 100, .row_bytes = 20, .pitch = 32});                                // one chunk
  require_same_from_file({.rows = 3, .row_bytes = upload_chunk / 2 - 1, .pitch = upload_chunk / 2});  // two chunks
  require_same_from_file({.rows = 2, .row_bytes = upload_chunk + 1, .pitch = upload_chunk + 64});     // row by row
}

TEST_CASE("Nothing is read for an empty upload, and a file that is too short is an error") {
  cox::detail::upload({}, Bytes::from_file("/nowhere/at/all", 0, 0), nullptr);
  const TemporaryFile file(pattern(100));
  const std::vector<CopyPlan> plans{{.rows = 1, .row_bytes = 101, .pitch = 101},
                                    {.rows = 3, .row_bytes = 40, .pitch = 64}};
  for (const CopyPlan& plan : plans)
    REQUIRE(kind_of<IoError>([&] { (void)uploaded(plan, Bytes::from_file(file.path(), 0, plan.size())); }) ==
            IoError::Kind::FileTooShort);
}
