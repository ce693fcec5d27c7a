#pragma once

#include <coxswain/runtime/kept/kept_state.hpp>

#include <array>
#include <cstdint>
#include <span>

namespace cox {

/// What a process of a world offers the others of the kept memory that it has opened. Each process sends its offer to
/// all, for instance by an all_gather of its bytes, and all processes derive the same KeptAgreement.
struct KeptOffer {
  std::array<std::uint64_t, 2> epochs{};  ///< KeptState::epochs; 0: none
  std::uint64_t last_epoch = 0;           ///< KeptState::last_epoch
  std::uint64_t runs_without_commit = 0;  ///< KeptState::runs_without_commit
  std::uint64_t suspect = 0;              ///< 1 if KeptState::suspect is set

  [[nodiscard]] static KeptOffer from(const KeptState& state);
};

/// The contents at which all processes of a world continue: KeptSet::continue_at.
struct KeptAgreement {
  /// The newest epoch that all processes hold; 0: there is none. In the mode InPlace that is the epoch at which all are
  /// whole; in the mode Double it can be the one before the last commit of some processes.
  std::uint64_t epoch = 0;
  std::uint64_t last_epoch = 0;           ///< the greatest of any process
  std::uint64_t runs_without_commit = 0;  ///< the most of any process
  bool suspect = false;                   ///< of any process

  /// `offers`: of all processes, in any order. The same offers give the same agreement in all processes.
  [[nodiscard]] static KeptAgreement from(std::span<const KeptOffer> offers);
};

}  // namespace cox
