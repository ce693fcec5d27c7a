#include <coxswain/runtime/kept/kept_state.hpp>

#include <algorithm>
#include <array>
#include <functional>

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

std::vector<std::uint64_t> common_epochs(const std::vector<KeptRecord>& records, bool two_copies) {
  std::vector<std::uint64_t> epochs;
  if (records.empty()) return epochs;
  for (const std::uint64_t epoch : records.front().committed)
    if (std::ranges::all_of(records,
                            [&](const KeptRecord& each) { return copy_of_epoch(each, epoch, two_copies).has_value(); }))
      epochs.push_back(epoch);
  std::ranges::sort(epochs, std::greater());
  return epochs;
}

std::optional<std::uint64_t> common_epoch(const std::vector<KeptRecord>& records, bool two_copies) {
  const std::vector<std::uint64_t> epochs = common_epochs(records, two_copies);
  return epochs.empty() ? std::nullopt : std::optional(epochs.front());
}

const char* to_string(KeptState::Kind kind) noexcept {
  static constexpr std::array names{"empty", "whole", "torn", "corrupt"};
  static_assert(names.size() == static_cast<std::size_t>(KeptState::Kind::Corrupt) + 1);
  return names[static_cast<std::size_t>(kind)];
}

namespace {

std::string corrupt_members(const std::vector<KeptState::Device>& devices) {
  std::string text;
  for (const KeptState::Device& device : devices)
    for (const std::string& name : device.corrupt)
      text += (text.empty() ? " '" : ", '") + name + "' on " + device.device.to_string();
  return text;
}

}  // namespace

std::string KeptState::to_string() const {
  if (kind == Kind::Empty) return "empty";
  const bool partly = std::ranges::any_of(devices, [](const Device& each) { return !each.not_checked.empty(); });
  if (kind == Kind::Whole)
    return "whole at epoch " + std::to_string(epoch) + (partly ? ", not checked" : "") + (suspect ? ", suspect" : "");
  if (kind == Kind::Corrupt) return "corrupt at epoch " + std::to_string(epoch) + ":" + corrupt_members(devices);
  std::string text = "torn";
  for (const Device& each : devices) {
    text += (&each == &devices.front() ? ": " : ", ") + each.device.to_string();
    text += each.lost       ? " is lost"
            : each.updating ? " in update " + std::to_string(each.last_epoch)
                            : " at epoch " + std::to_string(each.last_epoch);
    if (!each.corrupt.empty()) text += ", corrupt:" + corrupt_members({each});
  }
  return text;
}

}  // namespace cox
