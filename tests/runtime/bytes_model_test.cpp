// Random programs on Bytes of all kinds, against vectors that are copied for everything.

#include <coxswain/tests/runtime/counted_allocation.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

using cox::Bytes;
using cox::test::AllocationCount;
using cox::test::CountedAllocation;
using cox::test::pattern;
using cox::test::TemporaryFile;

namespace {

using Model = std::vector<std::byte>;

/// Bytes, and what should be in them.
struct Pair {
  Bytes bytes;
  Model model;
};

class Program {
 public:
  Program(unsigned seed, const TemporaryFile& file, const Model& file_content, AllocationCount& count)
      : random_(seed), file_(file), file_content_(file_content), count_(count) {}

  /// Does one thing at random; true if all Bytes are as they should be then.
  bool step() {
    if (pairs_.empty() || (pairs_.size() < most_pairs && below(3) == 0)) {
      pairs_.push_back(below(2) == 0 || pairs_.empty() ? make() : derive());
    } else {
      change();
    }
    return std::ranges::all_of(pairs_, [this](const Pair& pair) { return holds(pair); });
  }

 private:
  static constexpr std::size_t most_pairs = 8;

  std::size_t below(std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_); }
  Pair& any() { return pairs_[below(pairs_.size())]; }
  Model content() { return pattern(below(200), below(1000)); }

  Pair make() {
    Model model = content();
    switch (below(5)) {
      case 0: return {Bytes::copy_of(model), model};
      case 1: return {Bytes::from_vector(model), model};
      case 2: return {Bytes::from_allocation(CountedAllocation::of(count_, model)), model};
      case 3: {
        const auto keeper = std::make_shared<const Model>(model);
        return {Bytes::from_shared(keeper, *keeper), model};
      }
      default: {
        const std::size_t offset = below(file_content_.size());
        const std::size_t size = below(std::min<std::size_t>(200, file_content_.size() - offset));
        const auto range = std::span(file_content_).subspan(offset, size);
        return {Bytes::from_file(file_.path(), offset, size), Model(range.begin(), range.end())};
      }
    }
  }

  Pair derive() {
    Pair& from = any();
    switch (below(4)) {
      case 0: return {from.bytes.share(), from.model};
      case 1: return {from.bytes.copy(), from.model};
      case 2: {
        const std::size_t offset = below(from.model.size() + 1);
        const std::size_t size = below(from.model.size() - offset + 1);
        const auto range = std::span(from.model).subspan(offset, size);
        return {from.bytes.slice(offset, size), Model(range.begin(), range.end())};
      }
      default: {
        const std::size_t offset = below(from.model.size() + 1);
        auto [left, right] = std::move(from.bytes).split(offset);
        from.bytes = std::move(left);
        Pair rest{std::move(right), Model(std::span(from.model).subspan(offset).begin(), std::span(from.model).end())};
        from.model.resize(offset);
        return rest;
      }
    }
  }

  void change() {
    Pair& pair = any();
    switch (below(6)) {
      case 0: {
        if (pair.model.empty()) return;
        const std::size_t at = below(pair.model.size());
        pair.model[at] = pair.bytes.span()[at] = static_cast<std::byte>(below(256));
        return;
      }
      case 1: {
        const Model more = content();
        pair.bytes.append(more);
        pair.model.insert(pair.model.end(), more.begin(), more.end());
        return;
      }
      case 2: {
        const std::size_t from = below(pair.model.size() + 1);
        pair.bytes.append(std::as_const(pair.bytes).span().subspan(from));
        const Model more(std::span(pair.model).subspan(from).begin(), std::span(pair.model).end());
        pair.model.insert(pair.model.end(), more.begin(), more.end());
        if (pair.model.size() > 2000) drop(pair);
        return;
      }
      case 3: return pair.bytes.reserve(below(400));
      case 4: {
        std::optional<Model> vector = std::move(pair.bytes).try_into_vector<std::byte>();
        if (vector) pair.bytes = Bytes::from_vector(std::move(*vector));
        return;
      }
      default: return drop(pair);
    }
  }

  void drop(Pair& pair) {
    std::swap(pair, pairs_.back());
    pairs_.pop_back();
  }

  bool holds(const Pair& pair) {
    if (pair.bytes.size() != pair.model.size() || pair.bytes.capacity() < pair.bytes.size()) return false;
    if (below(4) == 0) return std::ranges::equal(pair.bytes.span(), pair.model);
    return pair.bytes.to_vector<std::byte>() == pair.model;  // lazy bytes stay lazy
  }

  std::mt19937 random_;
  const TemporaryFile& file_;
  const Model& file_content_;
  AllocationCount& count_;
  std::vector<Pair> pairs_;
};

}  // namespace

TEST_CASE("Bytes behave as vectors that are copied for everything, whatever is done to them") {
  const Model content = pattern(1000);
  const TemporaryFile file(content);
  for (unsigned seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    AllocationCount count;
    {
      Program program(seed, file, content, count);
      for (int step = 0; step < 400; ++step) {
        INFO("step " << step);
        const bool holds = program.step();
        REQUIRE(holds);
      }
    }
    REQUIRE(count.made > 0);
    REQUIRE(count.released == count.made);
  }
}
