#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <latch>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::AccessPolicy;
using cox::AllocationProperty;
using cox::Bytes;
using cox::IoError;
using cox::test::kind_of;
using cox::test::message_of;
using cox::test::pattern;
using cox::test::TemporaryFile;

namespace {

/// The kind of error that looking at the bytes gives.
std::optional<IoError::Kind> access_kind(const Bytes& bytes) {
  return kind_of<IoError>([&] { (void)bytes.data(); });
}

}  // namespace

TEST_CASE("Bytes of a file are not read before someone looks at them") {
  const TemporaryFile file(pattern(1000));
  const Bytes bytes = Bytes::from_file(file.path(), 100, 300);
  REQUIRE(bytes.size() == 300);
  REQUIRE(bytes.property() == AllocationProperty::File);
  REQUIRE_FALSE(bytes.is_resident());
  file.write(pattern(1000, 1));  // what is read is what the file has then
  REQUIRE(bytes == Bytes::copy_of(pattern(1000, 1)).slice(100, 300));
  REQUIRE(bytes.is_resident());
  REQUIRE(bytes.property() == AllocationProperty::File);
  REQUIRE(reinterpret_cast<std::uintptr_t>(bytes.data()) % Bytes::alignment == 0);
  file.remove();
  REQUIRE(bytes.as<std::uint32_t>().size() == 75);
}

TEST_CASE("Copying out of bytes of a file does not bring them into memory") {
  const auto content = pattern(1000);
  const TemporaryFile file(content);
  const Bytes bytes = Bytes::from_file(file.path(), 100, 300);
  std::vector<std::byte> out(50);
  bytes.copy_to(out, 200);
  REQUIRE(out == std::vector<std::byte>(content.begin() + 300, content.begin() + 350));
  REQUIRE(bytes.to_vector<std::byte>() == Bytes::copy_of(content).slice(100, 300).to_vector<std::byte>());
  REQUIRE(bytes.copy().property() == AllocationProperty::Native);
  REQUIRE_FALSE(bytes.is_resident());
  REQUIRE(kind_of<IoError>([&] { bytes.copy_to(out, 251); }) == IoError::Kind::OutOfBounds);
  REQUIRE(kind_of<IoError>([&] { bytes.copy_to(out, SIZE_MAX); }) == IoError::Kind::OutOfBounds);
}

TEST_CASE("Parts of bytes of a file are read on their own until the whole is in memory") {
  const TemporaryFile file(pattern(1000));
  const Bytes whole = Bytes::from_file(file.path(), 0, 1000);
  const Bytes part = whole.slice(500, 100).slice(50, 10);
  REQUIRE(part.property() == AllocationProperty::File);
  REQUIRE(part.data()[0] == pattern(1000)[550]);
  REQUIRE_FALSE(whole.is_resident());
  (void)whole.data();
  const Bytes later = whole.slice(500, 100);
  REQUIRE(later.data() == whole.data() + 500);
  auto [left, right] = Bytes::from_file(file.path(), 10, 90).split(40);
  REQUIRE_FALSE(left.is_resident());
  REQUIRE(left == Bytes::copy_of(pattern(1000)).slice(10, 40));
  REQUIRE(right == Bytes::copy_of(pattern(1000)).slice(50, 50));
}

TEST_CASE("Those who share bytes of a file share what is read, and write to what is theirs") {
  const TemporaryFile file(pattern(100));
  const Bytes first = Bytes::from_file(file.path(), 0, 100);
  Bytes second = first.share();
  (void)std::as_const(second).data();
  REQUIRE(first.is_resident());
  REQUIRE(first.data() == std::as_const(second).data());
  second.data()[0] = std::byte{0};
  REQUIRE(second.property() == AllocationProperty::Native);
  REQUIRE(first == Bytes::copy_of(pattern(100)));

  Bytes third = Bytes::from_file(file.path(), 0, 100);
  third.data()[0] = std::byte{0};  // reads and changes without anyone to share with
  REQUIRE(third == second);
  REQUIRE(Bytes::from_file(file.path(), 0, 100) == first);  // the file is not written to
}

TEST_CASE("Threads that look at bytes of a file at the same time all see the one memory") {
  const TemporaryFile file(pattern(100'000));
  for (int round = 0; round < 20; ++round) {
    constexpr std::size_t threads = 4;
    const Bytes bytes = Bytes::from_file(file.path(), 0, 100'000);
    std::vector<const std::byte*> seen(threads);
    {
      std::latch start(threads);
      std::vector<std::jthread> readers;
      for (std::size_t t = 0; t < threads; ++t)
        readers.emplace_back([&, t, mine = bytes.share()] {
          start.arrive_and_wait();
          seen[t] = t % 2 == 0 ? bytes.data() : mine.data();
        });
    }
    REQUIRE(std::set<const std::byte*>(seen.begin(), seen.end()).size() == 1);
    REQUIRE(bytes == Bytes::copy_of(pattern(100'000)));
  }
}

TEST_CASE("A look that must not copy is refused until the bytes of the file are in memory") {
  const TemporaryFile file(pattern(100));
  Bytes bytes = Bytes::from_file(file.path(), 0, 100);
  REQUIRE(kind_of<IoError>([&] { (void)std::as_const(bytes).span(AccessPolicy::ZeroCopy); }) ==
          IoError::Kind::WouldCopy);
  REQUIRE(kind_of<IoError>([&] { (void)bytes.span(AccessPolicy::ZeroCopy); }) == IoError::Kind::WouldCopy);
  (void)std::as_const(bytes).data();
  REQUIRE(std::as_const(bytes).span(AccessPolicy::ZeroCopy).size() == 100);
  REQUIRE(bytes.span(AccessPolicy::ZeroCopy).size() == 100);
}

TEST_CASE("A missing file is an error with path, offset and the system's words, and can be found later") {
  const TemporaryFile file(pattern(100));
  file.remove();
  const Bytes bytes = Bytes::from_file(file.path(), 7, 50);
  REQUIRE(access_kind(bytes) == IoError::Kind::FileUnreadable);
  REQUIRE_THAT(message_of([&] { (void)bytes.to_vector<char>(); }),
               ContainsSubstring(file.path()) && ContainsSubstring("offset 7") && ContainsSubstring("50 B") &&
                   ContainsSubstring("No such file"));
  try {
    (void)bytes.data();
    FAIL("read a file that is not there");
  } catch (const IoError& error) {
    try {
      std::rethrow_exception(error.cause());
    } catch (const std::system_error& cause) {
      REQUIRE(cause.code() == std::errc::no_such_file_or_directory);
    }
  }
  file.write(pattern(100));
  REQUIRE(bytes == Bytes::copy_of(pattern(100)).slice(7, 50));
}

TEST_CASE("A file that has got shorter is an error with both sizes, not a signal") {
  const TemporaryFile file(pattern(100));
  Bytes bytes = Bytes::from_file(file.path(), 10, 90);
  file.resize(40);
  REQUIRE(access_kind(bytes) == IoError::Kind::FileTooShort);
  REQUIRE(kind_of<IoError>([&] { (void)bytes.data(); }) == IoError::Kind::FileTooShort);
  REQUIRE(kind_of<IoError>([&] { bytes.append(pattern(1)); }) == IoError::Kind::FileTooShort);
  REQUIRE(bytes.size() == 90);
  REQUIRE_THAT(message_of([&] { (void)bytes.copy(); }),
               ContainsSubstring(file.path()) && ContainsSubstring("90 B at offset 10") && ContainsSubstring("40 B"));
  REQUIRE(bytes.slice(0, 30) == Bytes::copy_of(pattern(100)).slice(10, 30));  // as much as there is can be had
  file.write(pattern(100));
  REQUIRE(bytes == Bytes::copy_of(pattern(100)).slice(10, 90));
}

TEST_CASE("An offset that no file can have is refused at once, one beyond the end when it is read") {
  const TemporaryFile file(pattern(100));
  const auto make_kind = [&](std::uint64_t offset, std::size_t size) {
    return kind_of<IoError>([&] { (void)Bytes::from_file(file.path(), offset, size); });
  };
  REQUIRE(make_kind(UINT64_MAX, 1) == IoError::Kind::OutOfBounds);
  REQUIRE(make_kind(INT64_MAX, 1) == IoError::Kind::OutOfBounds);
  REQUIRE(make_kind(1, SIZE_MAX) == IoError::Kind::OutOfBounds);
  REQUIRE_FALSE(make_kind(std::uint64_t{1} << 62U, 1));
  REQUIRE(access_kind(Bytes::from_file(file.path(), 101, 1)) == IoError::Kind::FileTooShort);
  const auto far = access_kind(Bytes::from_file(file.path(), std::uint64_t{1} << 42U, 1));
  REQUIRE(far == IoError::Kind::FileTooShort);
}

TEST_CASE("No bytes of a file need no file") {
  const Bytes bytes = Bytes::from_file("/nowhere/at/all", 5, 0);
  REQUIRE(bytes.empty());
  REQUIRE(bytes.property() == AllocationProperty::File);
  REQUIRE(bytes.is_resident());
  REQUIRE(bytes.span().empty());
  REQUIRE(bytes.to_vector<int>().empty());
  REQUIRE(bytes == Bytes{});
}

TEST_CASE("What is no file to read from is an error and does not block") {
  REQUIRE(access_kind(Bytes::from_file(std::filesystem::temp_directory_path().string(), 0, 1)) ==
          IoError::Kind::FileUnreadable);
  const TemporaryFile fifo(std::vector<std::byte>{});
  fifo.remove();
  REQUIRE(::mkfifo(fifo.path().c_str(), 0600) == 0);
  REQUIRE(access_kind(Bytes::from_file(fifo.path(), 0, 1)) == IoError::Kind::FileUnreadable);
}
