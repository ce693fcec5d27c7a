#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <string>

using cox::detail::parse_token;
using cox::detail::tokens_equal;
using cox::detail::WorldToken;

TEST_CASE("A token is 32 hexadecimal digits that are not all 0") {
  const auto token = parse_token("000102030405060708090a0b0c0D0E0F");
  REQUIRE(token);
  for (std::size_t i = 0; i < token->size(); ++i) CHECK((*token)[i] == static_cast<std::byte>(i));
  for (const std::string& wrong : {std::string(), std::string(31, '1'), std::string(33, '1'), std::string(32, '0'),
                                   std::string(31, '1') + 'g', std::string(31, '1') + ' ', "0x" + std::string(30, '1')})
    CHECK_FALSE(parse_token(wrong));
}

TEST_CASE("Tokens are equal if all of their bits are") {
  const WorldToken one = parse_token(std::string(32, 'a')).value();
  CHECK(tokens_equal(one, one));
  for (std::size_t bit = 0; bit < 128; ++bit) {
    WorldToken other = one;
    other[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    CHECK_FALSE(tokens_equal(one, other));
  }
}

TEST_CASE("A random token is written as it is parsed, and is another one each time") {
  const auto token = cox::detail::random_token();
  CHECK(cox::detail::parse_token(cox::detail::to_hexadecimal(token)) == token);
  CHECK(cox::detail::random_token() != token);
  CHECK(cox::detail::to_hexadecimal(*cox::detail::parse_token("00112233445566778899aabbccddeeff")) ==
        "00112233445566778899aabbccddeeff");
}
