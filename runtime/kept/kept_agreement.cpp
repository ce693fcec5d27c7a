#include <coxswain/runtime/kept/kept_agreement.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace cox {

static_assert(std::is_trivially_copyable_v<KeptOffer> && std::has_unique_object_representations_v<KeptOffer>,
              "it is sent as bytes");

KeptOffer KeptOffer::from(const KeptState& state) {
  KeptOffer offer{.last_epoch = state.last_epoch,
                  .runs_without_commit = state.runs_without_commit,
                  .suspect = state.suspect ? std::uint64_t{1} : std::uint64_t{0}};
  for (std::size_t i = 0; i < std::min(offer.epochs.size(), state.epochs.size()); ++i)
    offer.epochs[i] = state.epochs[i];
  return offer;
}

KeptAgreement KeptAgreement::from(std::span<const KeptOffer> offers) {
  KeptAgreement agreement;
  if (offers.empty()) return agreement;
  for (const std::uint64_t epoch : offers.front().epochs)
    if (std::ranges::all_of(offers, [epoch](const KeptOffer& offer) {
          return std::ranges::find(offer.epochs, epoch) != offer.epochs.end();
        }))
      agreement.epoch = std::max(agreement.epoch, epoch);
  for (const KeptOffer& offer : offers) {
    agreement.last_epoch = std::max(agreement.last_epoch, offer.last_epoch);
    agreement.runs_without_commit = std::max(agreement.runs_without_commit, offer.runs_without_commit);
    agreement.suspect = agreement.suspect || offer.suspect != 0;
  }
  return agreement;
}

}  // namespace cox
