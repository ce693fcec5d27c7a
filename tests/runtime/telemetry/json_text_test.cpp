#include <coxswain/runtime/telemetry/json_text.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <nlohmann/json.hpp>

#include <string>

using cox::detail::json_text;

namespace {
std::string read_back(const std::string& text) { return nlohmann::json::parse(json_text(text)).get<std::string>(); }
}  // namespace

TEST_CASE("Text comes back from JSON as it was") {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  for (const std::string& text :
       {std::string(), all, std::string("a\"b\\c/\n\t"), std::string("\u00e4\u20ac\U0001F6A3")})
    CHECK(read_back(text) == text);
}

TEST_CASE("What is not UTF-8 is replaced, byte by byte") {
  const std::string replaced = "\uFFFD";
  CHECK(read_back("a\x80z") == "a" + replaced + "z");
  CHECK(read_back("\xC0\xAF") == replaced + replaced);  // overlong
  CHECK(read_back("\xE0\x80\x80") == replaced + replaced + replaced);
  CHECK(read_back("\xED\xA0\x80") == replaced + replaced + replaced);  // a surrogate
  CHECK(read_back("\xF4\x90\x80\x80") == replaced + replaced + replaced + replaced);
  CHECK(read_back("\xE2\x82") == replaced + replaced);  // cut off
}
