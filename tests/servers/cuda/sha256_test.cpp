#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/compile/sha256.hpp>

#include <string>

using cox::detail::Sha256;
using cox::detail::to_hex;

namespace {

std::string hash(std::string_view text) { return to_hex(Sha256::of(std::as_bytes(std::span(text)))); }

}  // namespace

TEST_CASE("SHA-256 is that of the standard") {
  CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hash(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 of text in pieces is that of the whole, whatever the pieces") {
  const std::string text = std::string(200, 'x') + "end";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string_view whole = std::string_view(text).substr(0, size);
    for (const std::size_t piece : std::initializer_list<std::size_t>{1, 3, 55, 56, 63, 64, 65}) {
      Sha256 hash;
      for (std::size_t i = 0; i < size; i += piece) hash.update(whole.substr(i, piece));
      CHECK(hash.finish() == Sha256::of(std::as_bytes(std::span(whole))));
    }
  }
}

TEST_CASE("Fields are hashed so that it matters where one ends") {
  Sha256 a;
  a.update_field("ab");
  a.update_field("c");
  Sha256 b;
  b.update_field("a");
  b.update_field("bc");
  CHECK(a.finish() != b.finish());
}
