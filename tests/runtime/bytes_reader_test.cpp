#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::Bytes;
using cox::BytesReader;
using cox::IoError;
using cox::test::kind_of;
using cox::test::message_of;
using cox::test::pattern;
using cox::test::TemporaryFile;

namespace {

/// All of `bytes`, read in parts of `part` bytes.
std::vector<std::byte> read_in_parts(const Bytes& bytes, std::size_t part) {
  std::vector<std::byte> all(bytes.size());
  BytesReader reader(bytes);
  while (reader.remaining() > 0) {
    const std::size_t size = std::min(part, reader.remaining());
    reader.read(std::span(all).subspan(all.size() - reader.remaining(), size));
  }
  return all;
}

}  // namespace

TEST_CASE("Bytes are read part after part, from memory and from a file") {
  const TemporaryFile file(pattern(1000));
  const Bytes lazy = Bytes::from_file(file.path(), 100, 500);
  const Bytes expected = Bytes::copy_of(pattern(1000)).slice(100, 500);
  for (const std::size_t part : {std::size_t{1}, std::size_t{7}, std::size_t{500}, std::size_t{1000}}) {
    REQUIRE(read_in_parts(lazy, part) == expected.to_vector<std::byte>());
    REQUIRE(read_in_parts(expected, part) == expected.to_vector<std::byte>());
  }
  REQUIRE_FALSE(lazy.is_resident());
}

TEST_CASE("All parts are of one file, even if another takes its name") {
  const TemporaryFile file(pattern(100));
  const TemporaryFile other(pattern(100, 1));
  const Bytes bytes = Bytes::from_file(file.path(), 0, 100);
  BytesReader reader(bytes);
  std::vector<std::byte> all(100);
  reader.read(std::span(all).first(50));
  std::filesystem::rename(other.path(), file.path());
  reader.read(std::span(all).last(50));
  REQUIRE(all == pattern(100));
}

TEST_CASE("More than is left cannot be read or passed over, and nothing is lost by trying") {
  const Bytes bytes = Bytes::copy_of(pattern(10));
  BytesReader reader(bytes);
  reader.skip(4);
  std::vector<std::byte> rest(7);
  REQUIRE(kind_of<IoError>([&] { reader.read(rest); }) == IoError::Kind::OutOfBounds);
  REQUIRE(kind_of<IoError>([&] { reader.skip(SIZE_MAX); }) == IoError::Kind::OutOfBounds);
  REQUIRE_THAT(message_of([&] { reader.read(rest); }), ContainsSubstring("7 B at offset 4 of 10 B"));
  rest.resize(6);
  reader.read(rest);
  REQUIRE(rest.front() == pattern(10)[4]);
  REQUIRE(reader.remaining() == 0);
  reader.read({});
}

TEST_CASE("A file that gets shorter between two parts is an error, and what was read stays read") {
  const TemporaryFile file(pattern(100));
  const Bytes bytes = Bytes::from_file(file.path(), 0, 100);
  BytesReader reader(bytes);
  std::vector<std::byte> part(50);
  reader.read(part);
  file.resize(60);
  REQUIRE(kind_of<IoError>([&] { reader.read(part); }) == IoError::Kind::FileTooShort);
  REQUIRE(reader.remaining() == 50);
  part.resize(10);
  reader.read(part);
  REQUIRE(part.back() == pattern(100)[59]);
}

TEST_CASE("A missing file is missed when the reader is made") {
  const Bytes bytes = Bytes::from_file("/nowhere/at/all", 3, 4);
  REQUIRE(kind_of<IoError>([&] { const BytesReader reader(bytes); }) == IoError::Kind::FileUnreadable);
  const Bytes none;
  REQUIRE(BytesReader(none).remaining() == 0);
}
