#include <data/random.hpp>
#include <data/text.hpp>

#include <array>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace train {
namespace {

std::string content(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

Text Text::from_file(const std::string& file, std::size_t context) { return {content(file), context}; }

Text::Text(std::string_view characters, std::size_t context) : context_(context) {
  std::array<std::int32_t, 256> number{};
  for (const char c : characters) number[static_cast<unsigned char>(c)] = 1;
  for (std::int32_t& n : number) n = n == 0 ? -1 : static_cast<std::int32_t>(vocabulary_++);
  tokens_.reserve(characters.size());
  for (const char c : characters) tokens_.push_back(number[static_cast<unsigned char>(c)]);
  held_out_begin_ = tokens_.size() - tokens_.size() / 10;
  if (tokens_.size() - held_out_begin_ < context + 1)
    throw std::runtime_error("the text has " + std::to_string(tokens_.size()) + " characters; a context of " +
                             std::to_string(context) + " needs at least " + std::to_string(10 * (context + 1)));
}

TokenBatch Text::samples(std::size_t seed, std::size_t step, std::size_t first, std::size_t count) const {
  TokenBatch batch;
  for (std::size_t i = first; i < first + count; ++i) {
    const std::uint64_t random = mixed(mixed(mixed(seed + 1) + step) + i);
    append_window(batch, random % (held_out_begin_ - context_));
  }
  return batch;
}

std::size_t Text::held_out_windows() const { return (tokens_.size() - held_out_begin_ - 1) / context_; }

TokenBatch Text::held_out(std::size_t first, std::size_t count) const {
  TokenBatch batch;
  for (std::size_t i = first; i < first + count; ++i) append_window(batch, held_out_begin_ + i * context_);
  return batch;
}

void Text::append_window(TokenBatch& batch, std::size_t begin) const {
  const auto at = tokens_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto length = static_cast<std::ptrdiff_t>(context_);
  batch.tokens.insert(batch.tokens.end(), at, at + length);
  batch.targets.insert(batch.targets.end(), at + 1, at + length + 1);
}

}  // namespace train
