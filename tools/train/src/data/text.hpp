#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace train {

/// The inputs of a batch and the characters that follow them, rows of `context` tokens.
struct TokenBatch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

/// A text as numbers, one for each different byte. The last tenth is held out for evaluation.
class Text {
 public:
  /// Throws std::runtime_error if the text is too short for `context`.
  Text(std::string_view characters, std::size_t context);
  /// Throws std::runtime_error also if the file cannot be read.
  [[nodiscard]] static Text from_file(const std::string& file, std::size_t context);

  [[nodiscard]] std::size_t vocabulary() const { return vocabulary_; }
  /// All characters as numbers.
  [[nodiscard]] const std::vector<std::int32_t>& tokens() const { return tokens_; }

  /// `count` samples for training. They depend only on the seed, the step and the numbers of the samples, which begin
  /// at `first`: so N devices with a batch of B see the samples of one device with a batch of N * B.
  [[nodiscard]] TokenBatch samples(std::size_t seed, std::size_t step, std::size_t first, std::size_t count) const;

  /// Number of non-overlapping windows of the held-out text.
  [[nodiscard]] std::size_t held_out_windows() const;
  /// Windows of the held-out text, from number `first` on.
  [[nodiscard]] TokenBatch held_out(std::size_t first, std::size_t count) const;

 private:
  void append_window(TokenBatch& batch, std::size_t begin) const;

  std::size_t context_;
  std::size_t vocabulary_ = 0;
  std::vector<std::int32_t> tokens_;
  std::size_t held_out_begin_ = 0;
};

}  // namespace train
