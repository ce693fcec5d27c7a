#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using cox::AllocationProperty;
using cox::Bytes;
using cox::test::message_of;
using cox::test::pattern;

namespace {

/// The memory of a device, as it were, and what happened to it.
struct Remote {
  std::vector<std::byte> content;
  std::atomic<int> reads{0};
  std::atomic<int> failures_to_come{0};
};

class RemoteSource final : public cox::ByteSource {
 public:
  RemoteSource(Remote& remote, std::size_t offset) : remote_(remote), offset_(offset) {}
  void read(std::size_t offset, std::span<std::byte> destination) override {
    if (remote_.failures_to_come > 0) {
      --remote_.failures_to_come;
      throw std::runtime_error("the device is away");
    }
    ++remote_.reads;
    std::ranges::copy(std::span(remote_.content).subspan(offset_ + offset, destination.size()), destination.begin());
  }

 private:
  Remote& remote_;
  std::size_t offset_;
};

class RemoteContent final : public cox::LazyContent {
 public:
  explicit RemoteContent(Remote& remote) : remote_(remote) {}
  [[nodiscard]] std::unique_ptr<cox::ByteSource> open(std::size_t offset, std::size_t) const override {
    return std::make_unique<RemoteSource>(remote_, offset);
  }

 private:
  Remote& remote_;
};

Bytes bytes_of(Remote& remote) {
  return Bytes::from_allocation(std::make_unique<cox::LazyAllocation>(
      AllocationProperty::Device, std::make_shared<RemoteContent>(remote), 0, remote.content.size()));
}

}  // namespace

TEST_CASE("Lazy content is read once, whoever asks for it and however often") {
  Remote remote{.content = pattern(5000)};
  const Bytes bytes = bytes_of(remote);
  REQUIRE(bytes.property() == AllocationProperty::Device);
  {
    std::latch start(4);
    std::vector<std::jthread> readers;
    for (int t = 0; t < 4; ++t)
      readers.emplace_back([&, mine = bytes.share()] {
        start.arrive_and_wait();
        (void)mine.data();
        (void)bytes.data();
      });
  }
  REQUIRE(remote.reads == 1);
  REQUIRE(bytes == Bytes::copy_of(pattern(5000)));
}

TEST_CASE("What a lazy source throws reaches who asked, unchanged, and the next one tries again") {
  Remote remote{.content = pattern(50)};
  const Bytes bytes = bytes_of(remote);
  remote.failures_to_come = 2;
  REQUIRE(message_of([&] { (void)bytes.data(); }) == "the device is away");
  REQUIRE(message_of([&] { (void)bytes.slice(1, 2).copy(); }) == "the device is away");
  REQUIRE_FALSE(bytes.is_resident());
  REQUIRE(bytes == Bytes::copy_of(pattern(50)));
  REQUIRE(remote.reads == 1);
}

TEST_CASE("A write to lazy content that nobody shares reads it once, to where it is written") {
  Remote remote{.content = pattern(50)};
  Bytes bytes = bytes_of(remote);
  bytes.data()[0] = std::byte{0};
  bytes.data()[1] = std::byte{0};
  REQUIRE(remote.reads == 1);
  REQUIRE(bytes.property() == AllocationProperty::Native);
  REQUIRE(remote.content == pattern(50));
}
