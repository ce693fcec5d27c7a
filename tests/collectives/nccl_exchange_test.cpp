#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/nccl/nccl_exchange.hpp>

#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace cox;
using cox::detail::MarkScope;
using cox::detail::NcclExchange;

namespace {

/// Keeps the marks until the test notes them.
class KeptMarks final : public NcclExchange {
 public:
  KeptMarks() { set_of_process(this); }
  KeptMarks(const KeptMarks&) = delete;
  KeptMarks& operator=(const KeptMarks&) = delete;
  ~KeptMarks() { set_of_process(nullptr); }

  void share_plan(const SharedCommunicator&, std::span<const std::byte>) override {}
  void mark(const SharedSequence&, std::uint64_t operation, const std::exception_ptr&,
            UniqueFunction<void()> noted) noexcept override {
    operations.push_back(operation);
    kept.push_back(std::move(noted));
  }
  void note(std::size_t index) { std::exchange(kept[index], UniqueFunction<void()>())(); }

  std::vector<std::uint64_t> operations;
  std::vector<UniqueFunction<void()>> kept;
};

void send(std::uint64_t operation) {
  static const SharedSequence sequence{{.devices = CommunicationId({{0, 0, 1}, {0, 0, 2}}), .epoch = 1}};
  MarkScope::send_mark(sequence, operation, std::make_exception_ptr(std::runtime_error("no data")));
}

}  // namespace

TEST_CASE("A scope without marks is noted at once") {
  KeptMarks marks;
  bool noted = false;
  MarkScope scope;
  scope.when_noted([&] { noted = true; });
  CHECK(noted);
}

TEST_CASE("Without a world there is nobody to note a mark") {
  bool noted = false;
  MarkScope scope;
  send(1);
  scope.when_noted([&] { noted = true; });
  CHECK(noted);
}

TEST_CASE("A scope is noted when all its marks are, in any order") {
  KeptMarks marks;
  bool noted = false;
  {
    MarkScope scope;
    send(1);
    send(2);
    scope.when_noted([&] { noted = true; });
    send(3);  // does not count any more
  }
  CHECK(marks.operations == std::vector<std::uint64_t>{1, 2, 3});
  marks.note(1);
  CHECK_FALSE(noted);
  marks.note(0);
  CHECK(noted);
  marks.note(2);
}

TEST_CASE("Marks that are noted before the scope asks count as noted") {
  KeptMarks marks;
  bool noted = false;
  MarkScope scope;
  send(1);
  marks.note(0);
  scope.when_noted([&] { noted = true; });
  CHECK(noted);
}

TEST_CASE("The marks of an inner scope count for the outer one") {
  KeptMarks marks;
  bool inner_noted = false;
  bool outer_noted = false;
  {
    MarkScope outer;
    {
      MarkScope inner;
      send(1);
      inner.when_noted([&] { inner_noted = true; });
    }
    send(2);
    outer.when_noted([&] { outer_noted = true; });
  }
  marks.note(1);
  CHECK_FALSE(outer_noted);
  CHECK_FALSE(inner_noted);
  marks.note(0);
  CHECK(inner_noted);
  CHECK(outer_noted);
}
