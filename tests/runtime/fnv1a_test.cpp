#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/base/fnv1a.hpp>

using cox::detail::fnv1a;

TEST_CASE("FNV-1a has the values that its authors published, also of a text in parts") {
  CHECK(fnv1a("") == 0xcbf29ce484222325);
  CHECK(fnv1a("a") == 0xaf63dc4c8601ec8c);
  CHECK(fnv1a("foobar") == 0x85944171f73967e8);
  CHECK(fnv1a("bar", fnv1a("foo")) == fnv1a("foobar"));
}
