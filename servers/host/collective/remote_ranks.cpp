#include <coxswain/servers/host/collective/remote_ranks.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <algorithm>
#include <cstring>
#include <new>
#include <source_location>
#include <utility>

namespace cox::detail {

RemoteRanks::RemoteRanks(Owner& operation, SharedSequence sequence, const CollectiveRequests& requests,
                         std::span<const DeviceId> places, std::uint16_t own, RankExchange& exchange)
    : operation_(operation),
      exchange_(exchange),
      requests_(requests),
      places_(places),
      own_(own),
      name_{std::move(sequence), 0},
      inputs_(requests.size() * places.size()) {
  for (const DeviceId place : places) {
    const bool remote = place.process != 0 && place.process != own;
    remote_.push_back(remote);
    own_ranks_ += remote ? 0 : 1;
    if (remote && std::ranges::find(others_, place.process) == others_.end()) others_.push_back(place.process);
  }
  constexpr std::size_t most_inputs = 65'536;  // in one message
  if (requests.size() * own_ranks_ > most_inputs)
    throw CollectiveError(CollectiveError::Kind::Validation,
                          "a group of " + std::to_string(requests.size()) + " operations is too large for " +
                              std::to_string(own_ranks_) + " ranks in a process",
                          requests.front().caller.site);
  for (const std::uint16_t process : others_) {
    std::vector<RankPart> parts;
    for (std::size_t place = 0; place < places.size(); ++place)
      if (!remote_[place]) parts.push_back({static_cast<std::uint16_t>(place), {}, {}});
    for (RankPart& part : parts) part.data.resize(requests.size());
    parcels_.push_back({process, std::move(parts)});
  }
}

void RemoteRanks::expect(std::uint64_t number, const std::shared_ptr<void>& self) noexcept {
  try {
    std::call_once(expected_, [&] {
      name_.operation = number;
      exchange_.expect(name_, others_, std::shared_ptr<RankExchange::Operation>(self, this));
    });
  } catch (...) {
    operation_.abort(std::current_exception());
  }
}

void RemoteRanks::set_refusal(std::size_t place, const std::exception_ptr& why) noexcept {
  try {
    const std::string text = describe_cause(why);
    for (RankExchange::Parcel& parcel : parcels_)
      for (RankPart& part : parcel.parts)
        if (part.place == place) part.refusal = text.empty() ? "no reason was given" : text;
  } catch (const std::bad_alloc&) {
    operation_.abort(std::current_exception());
  }
}

void RemoteRanks::send(std::span<const RankBuffers> buffers) noexcept {
  try {
    for (RankExchange::Parcel& parcel : parcels_)
      for (RankPart& part : parcel.parts)
        for (std::size_t i = 0; i < requests_.size() && part.refusal.empty(); ++i) {
          const RankBuffers& its = buffers[i * places_.size() + part.place];
          const Part needed = part_of(requests_[i], part.place, parcel.process);
          if (needed.bytes == 0) continue;
          const std::byte* from = its.source;
          if (its.row_bytes != 0 && its.pitch != 0 && its.pitch != its.row_bytes) {
            auto& packed = packed_.emplace_back(std::make_unique_for_overwrite<std::byte[]>(needed.bytes));
            for (std::size_t at = 0, row = 0; at < needed.bytes; at += its.row_bytes, ++row)
              std::memcpy(packed.get() + at, its.source + row * its.pitch, std::min(its.row_bytes, needed.bytes - at));
            from = packed.get();
          }
          part.data[i] = {from + needed.first, needed.bytes};
        }
  } catch (const std::bad_alloc&) {
    return operation_.abort(std::current_exception());
  }
  exchange_.send(name_, std::move(parcels_));
}

void RemoteRanks::abort(const std::exception_ptr& why) noexcept { exchange_.abort(name_, why); }

RemoteRanks::Answer RemoteRanks::accept(std::uint16_t process, const std::vector<RankExchange::Announced>& ranks,
                                        std::vector<std::span<std::byte>>& memory) noexcept {
  try {
    if (!expects(process, ranks)) return Answer::Wrong;
    for (const RankExchange::Announced& rank : ranks)
      for (std::size_t i = 0; i < rank.bytes.size(); ++i) {
        const Part part = part_of(requests_[i], rank.place, own_);
        if (part.bytes == 0) continue;
        std::unique_ptr<std::byte[]>& input = inputs_[i * places_.size() + rank.place];
        input = std::make_unique_for_overwrite<std::byte[]>(input_bytes(requests_[i]));
        operation_.set_input(rank.place, i, input.get());
        memory.emplace_back(input.get() + part.first, part.bytes);
      }
    return Answer::Accepted;
  } catch (const std::bad_alloc&) {
    operation_.abort(std::current_exception());
    return Answer::Aborted;
  }
}

bool RemoteRanks::expects(std::uint16_t process, const std::vector<RankExchange::Announced>& ranks) const {
  std::vector<bool> is_announced(places_.size());
  for (const RankExchange::Announced& rank : ranks) {
    if (rank.place >= places_.size() || places_[rank.place].process != process || is_announced[rank.place])
      return false;
    is_announced[rank.place] = true;
    if (rank.bytes.size() != (rank.is_refused ? 0 : requests_.size())) return false;
    for (std::size_t i = 0; i < rank.bytes.size(); ++i)
      if (rank.bytes[i] != part_of(requests_[i], rank.place, own_).bytes) return false;
  }
  for (std::size_t place = 0; place < places_.size(); ++place)
    if (places_[place].process == process && !is_announced[place]) return false;
  return true;
}

bool RemoteRanks::received(std::uint16_t place, const std::string& refusal) noexcept {
  if (place >= places_.size() || !remote_[place] || operation_.has_arrived(place)) return false;
  std::exception_ptr why;
  if (!refusal.empty()) {
    try {
      why =
          std::make_exception_ptr(CollectiveError(CollectiveError::Kind::RankFailed, refusal, std::source_location()));
    } catch (const std::bad_alloc&) {
      why = std::current_exception();
    }
  }
  operation_.arrive(place, why);
  return true;
}

void RemoteRanks::sent() noexcept { operation_.note_sent(); }

void RemoteRanks::failed(const std::exception_ptr& why) noexcept { operation_.abort(why); }

// The part of the place's input that a process needs.
RemoteRanks::Part RemoteRanks::part_of(const CollectiveRequest& request, std::size_t place,
                                       std::uint16_t process) const noexcept {
  const CollectiveOperationFacts& facts = facts_of(request.operation);
  if (!facts.has_elements) return {};
  if (is_transfer(request.operation)) return place == 0 ? Part{0, input_bytes(request)} : Part{};
  switch (request.operation) {
    case CollectiveOperation::Reduce:
      return places_[request.root].process == process ? Part{0, input_bytes(request)} : Part{};
    case CollectiveOperation::Broadcast: return request.root == place ? Part{0, input_bytes(request)} : Part{};
    case CollectiveOperation::ReduceScatter:
    case CollectiveOperation::AllToAll: {  // the ranks of a process follow each other
      const auto of_process = [process](DeviceId device) { return device.process == process; };
      const auto first = std::ranges::find_if(places_, of_process);
      const auto ranks = static_cast<std::size_t>(std::ranges::count_if(places_, of_process));
      const std::size_t block = request.count * element_size(request.element_type);
      return {static_cast<std::size_t>(first - places_.begin()) * block, ranks * block};
    }
    default: return {0, input_bytes(request)};
  }
}

std::size_t RemoteRanks::input_bytes(const CollectiveRequest& request) const noexcept {
  const std::size_t elements =
      facts_of(request.operation).input_of_all_size ? request.count * places_.size() : request.count;
  return elements * element_size(request.element_type);
}

}  // namespace cox::detail
