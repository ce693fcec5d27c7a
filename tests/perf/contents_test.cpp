#include <coxswain/perf/recovery/contents.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using cox::perf::Contents;

TEST_CASE("After each update the words are those that the updates so far have written, slice by slice") {
  for (const Contents contents : {Contents{.words = 10, .slice_words = 3}, Contents{.words = 8, .slice_words = 8}}) {
    std::vector<std::uint64_t> memory(contents.words);
    const auto write = [&](Contents::Part part, std::uint64_t update) {
      for (std::uint64_t at = part.first; at < part.first + part.count; ++at) memory[at] = contents.word(at, update, 1);
    };
    write(contents.all(), 1);
    for (std::uint64_t update = 2; update < 20; ++update) {
      write(contents.slice_of(update), update);
      for (std::size_t at = 0; at < memory.size(); ++at) {
        CAPTURE(contents.words, update, at);
        CHECK(memory[at] == contents.word(at, update, 1));
      }
    }
  }
}

TEST_CASE("Words of other positions, devices and updates differ") {
  const Contents contents{.words = 10, .slice_words = 10};
  CHECK(contents.word(1, 5, 0) != contents.word(2, 5, 0));
  CHECK(contents.word(1, 5, 0) != contents.word(1, 5, 1));
  CHECK(contents.word(1, 5, 0) != contents.word(1, 6, 0));
}
