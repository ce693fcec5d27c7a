#include <coxswain/tests/stand_ins/kept_kernels.hpp>

#include <coxswain/runtime/kept/kept_checksum.hpp>
#include <coxswain/runtime/kept/kept_record.hpp>
#include <coxswain/servers/cuda/memory/kept_mark.hpp>
#include <coxswain/servers/cuda/memory/kept_sum.hpp>
#include <coxswain/tests/stand_ins/kernel_functions.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace cox::test {
namespace {

using Run = FakeCuda::Run;

void mark(FakeCuda& fake, const Run& run) {
  const auto copy = argument<std::int32_t>(run, 5);
  KeptMarkChange change{.kind = static_cast<KeptMarkChange::Kind>(number(run, 1)),
                        .generation = argument<std::uint64_t>(run, 2),
                        .epoch = argument<std::uint64_t>(run, 3),
                        .two_copies = number(run, 4) != 0};
  if (copy >= 0) change.copy = static_cast<unsigned>(copy);
  if (!change.apply(*argument<KeptRecord*>(run, 0))) fake.faulted = true;
}

void begin_sum(const Run& run) {
  *argument<KeptChecksum*>(run, 0) = {argument<std::uint64_t>(run, 1), argument<std::uint64_t>(run, 2), 0, 0};
}

void add_to_sum(const Run& run) {
  const std::size_t bytes = argument<std::uint64_t>(run, 1);
  const std::span<const std::byte> memory(argument<const std::byte*>(run, 0), bytes);
  argument<KeptChecksum*>(run, 2)->sum += checksum_of(memory);  // which begin_sum() has set to 0
}

}  // namespace

void prepare_kept_kernels(FakeCuda& fake) {
  fake.kernels[detail::kept_mark_name] =
      function_kernel({address, word, 8, 8, word, word}, [&fake](const Run& run) { mark(fake, run); });
  fake.kernels[detail::kept_sum_begin_name] = function_kernel({address, 8, 8}, begin_sum);
  fake.kernels[detail::kept_sum_name] = function_kernel({address, 8, address}, add_to_sum);
}

}  // namespace cox::test
