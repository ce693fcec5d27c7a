#pragma once

#include <coxswain/collectives/store/pmix_session.hpp>
#include <coxswain/collectives/store/store.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// The values that process 0 of a job has published through PMIx. Only process 0 can set, and a set cannot be taken
/// back; add and compare_set are Unsupported.
class PmixStore final : public Store {
 public:
  PmixStore(std::shared_ptr<PmixSession> session, const std::string& run, std::uint32_t restart);

 private:
  void do_set(const std::string& key, std::span<const std::byte> value, Deadline deadline) override;
  std::vector<std::byte> do_get(const std::string& key, Deadline deadline) override;
  std::int64_t do_add(const std::string& key, std::int64_t amount, Deadline deadline) override;
  std::vector<std::byte> do_compare_set(const std::string& key, std::span<const std::byte> expected,
                                        std::span<const std::byte> desired, Deadline deadline) override;
  void do_close(Deadline deadline) override;

  std::shared_ptr<PmixSession> session_;
};

}  // namespace cox::detail
