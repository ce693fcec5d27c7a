#include <coxswain/collectives/sequencer/world_order.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox::detail {
namespace {

constexpr std::size_t most_plain = 256;  // characters; longer texts are replaced by two hashes

// Fowler, Noll and Vo's hash; they choose the first `begin`.
std::uint64_t fnv1a(std::string_view text, std::uint64_t begin) noexcept {
  for (const char c : text) begin = (begin ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return begin;
}

}  // namespace

std::string fingerprint(const CollectiveRequests& requests) {
  std::string text;
  for (const CollectiveRequest& request : requests) {
    const CollectiveOperationFacts& facts = facts_of(request.operation);
    text += is_transfer(request.operation) ? "transfer" : std::string(facts.name);
    text += fmt::format(",{}.{}", request.tag.step, request.tag.part);
    if (facts.has_elements) text += fmt::format(",{},{}", request.count, to_string(request.element_type));
    if (facts.reduces) text += fmt::format(",{}", to_string(request.reduce_operation));
    if (facts.rooted) text += fmt::format(",{}", request.root);
    text += ';';
  }
  if (text.size() <= most_plain) return text;
  return fmt::format("{} requests: {:016x}{:016x}", requests.size(), fnv1a(text, 0xcbf29ce484222325),
                     fnv1a(text, 0x9e3779b97f4a7c15));
}

}  // namespace cox::detail
