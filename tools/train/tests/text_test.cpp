// Samples are windows of the text that training may see; targets follow their tokens; the samples of N devices are
// those of one device.

#include <data/text.hpp>

#include <require.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t context = 7;

// Character i is i % 100, so a token tells where it is within 100 characters.
std::string numbered(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text.push_back(static_cast<char>(i % 100));
  return text;
}

}  // namespace

int main() {
  // The last tenth, 100 characters, has another alphabet.
  std::string characters = numbered(900);
  for (std::size_t i = 0; i < 100; ++i) characters.push_back(static_cast<char>(100 + i % 20));
  const train::Text text(characters, context);
  require(text.vocabulary() == 120, "each different byte has a number");

  for (std::size_t step = 1; step < 200; ++step) {
    const train::TokenBatch batch = text.samples(1, step, 0, 8);
    require(batch.tokens.size() == 8 * context && batch.targets.size() == 8 * context, "the size of a batch");
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      require(batch.targets[i] == (batch.tokens[i] + 1) % 100, "a target is the character that follows its token");
      require(batch.targets[i] < 100, "a sample reaches into the held-out text");
    }
  }
  const train::TokenBatch whole = text.samples(1, 5, 0, 8);
  std::vector<std::int32_t> parts;
  for (const std::size_t first : {std::size_t{0}, std::size_t{4}})
    std::ranges::copy(text.samples(1, 5, first, 4).tokens, std::back_inserter(parts));
  require(parts == whole.tokens, "two devices see what one device sees");
  require(text.samples(1, 6, 0, 8).tokens != whole.tokens, "another step has other samples");
  require(text.samples(2, 5, 0, 8).tokens != whole.tokens, "another seed has other samples");

  require(text.held_out_windows() == 99 / context, "the windows of the held-out text do not overlap");
  const train::TokenBatch held_out = text.held_out(0, text.held_out_windows());
  require(std::ranges::all_of(held_out.tokens, [](std::int32_t token) { return token >= 100; }),
          "what is evaluated is held out");

  bool refused = false;
  try {
    const train::Text short_text(numbered(70), context);
  } catch (const std::runtime_error&) {
    refused = true;
  }
  require(refused, "a text that is too short is refused");
  std::puts("ok");
  return 0;
}
