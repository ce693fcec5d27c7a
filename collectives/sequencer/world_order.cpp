#include <coxswain/collectives/sequencer/world_order.hpp>

#include <coxswain/runtime/base/fnv1a.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cox::detail {
namespace {

constexpr std::size_t most_plain = 8;  // requests; more are replaced by two hashes

constexpr std::size_t words_of_request = 4;
using Words = std::array<std::uint64_t, words_of_request>;

Words words_of(const CollectiveRequest& request) noexcept {
  const CollectiveOperationFacts& facts = facts_of(request.operation);
  constexpr std::uint64_t transfer = 255;
  const std::uint64_t operation =
      is_transfer(request.operation) ? transfer : static_cast<std::uint64_t>(request.operation);
  const std::uint64_t type = facts.has_elements ? static_cast<std::uint64_t>(request.element_type) : 0;
  const std::uint64_t reduce = facts.reduces ? static_cast<std::uint64_t>(request.reduce_operation) : 0;
  return {operation | (type << 8U) | (reduce << 16U), (std::uint64_t{request.tag.step} << 32U) | request.tag.part,
          facts.has_elements ? request.count : 0, facts.rooted ? request.root : 0};
}

}  // namespace

std::vector<std::byte> fingerprint(const CollectiveRequests& requests) {
  std::vector<std::byte> bytes(requests.size() * sizeof(Words));
  std::byte* at = bytes.data();
  for (const CollectiveRequest& request : requests) {
    const Words words = words_of(request);
    std::memcpy(at, words.data(), sizeof(words));
    at += sizeof(words);
  }
  if (requests.size() <= most_plain) return bytes;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Words hashes{requests.size(), fnv1a(text), fnv1a(text, 0x9e3779b97f4a7c15), 0};
  bytes.resize(sizeof(hashes) + 1);  // no number of plain requests has this size
  std::memcpy(bytes.data(), hashes.data(), sizeof(hashes));
  return bytes;
}

}  // namespace cox::detail
