#include <coxswain/runtime/kept/kept_state.hpp>

#include <algorithm>
#include <array>

namespace cox {

std::optional<unsigned> copy_of_epoch(const KeptRecord& record, std::uint64_t epoch, bool two_copies) {
  const KeptMark mark = KeptMark::from(record.mark);
  if (epoch == 0) return std::nullopt;
  for (const unsigned copy : {mark.copy, mark.copy ^ 1U}) {
    const bool is_written = mark.updating && (!two_copies || copy != mark.copy);
    if (!is_written && record.committed[copy] == epoch) return copy;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> common_epoch(const std::vector<KeptRecord>& records, bool two_copies) {
  if (records.empty()) return std::nullopt;
  std::optional<std::uint64_t> newest;
  for (const std::uint64_t epoch : records.front().committed)
    if (epoch > newest.value_or(0) && std::ranges::all_of(records, [&](const KeptRecord& each) {
          return copy_of_epoch(each, epoch, two_copies).has_value();
        }))
      newest = epoch;
  return newest;
}

const char* to_string(KeptState::Kind kind) noexcept {
  static constexpr std::array names{"empty", "whole", "torn"};
  static_assert(names.size() == static_cast<std::size_t>(KeptState::Kind::Torn) + 1);
  return names[static_cast<std::size_t>(kind)];
}

std::string KeptState::to_string() const {
  if (kind == Kind::Empty) return "empty";
  if (kind == Kind::Whole) return "whole at epoch " + std::to_string(epoch) + (suspect ? ", suspect" : "");
  std::string text = "torn";
  for (const Device& each : devices) {
    text += (&each == &devices.front() ? ": " : ", ") + each.device.to_string();
    text += each.updating ? " in update " + std::to_string(each.last_epoch)
                          : " at epoch " + std::to_string(each.last_epoch);
  }
  return text;
}

}  // namespace cox
